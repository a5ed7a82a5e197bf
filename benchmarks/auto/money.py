"""What the best candidate costs: ``auto``, told the prices, beside rules that are blind to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TypeAlias

import numpy as np
from benchmarks.auto import light_auto, light_rivals
from benchmarks.auto.matrices import MATRICES
from benchmarks.auto.money_markets import ABLATED, MARKETS, OWN, Market, priced
from benchmarks.auto.money_tables import LEVELS, ablation_table, check_table, rivals_table
from benchmarks.papers.spending import replay_spending
from benchmarks.papers.stored_studies import Bench, measured
from numpy.typing import NDArray

from bestarm_agent.selectors.rules.auto import Auto
from bestarm_agent.selectors.rules.round_based import RoundSelector
from bestarm_agent.selectors.rules.sequential_halving import SequentialHalving
from bestarm_agent.selectors.rules.successive_rejects import SynchronisedSuccessiveRejects
from bestarm_agent.selectors.types import Problem
from bestarm_agent.simulation.score_matrices import FloatArray
from bestarm_agent.simulation.simulated_calls import Conditions, SimulatedCalls

Scores: TypeAlias = NDArray[np.float32]

UCB_E = {"UCB-E": (1, False), "UCB-E, batch 16": (16, False), "UCB-E, common": (1, True)}
IN_ROUNDS: Mapping[str, Callable[[Problem], RoundSelector]] = {
    "SySRs": SynchronisedSuccessiveRejects,
    "halving, common": partial(SequentialHalving, common_examples=True),
}
BLIND = (*UCB_E, *IN_ROUNDS)
AUTO, PACE = "as it is", "prices only pace the budget"
VARIANTS = {
    AUTO: light_auto.Variant(),
    PACE: light_auto.Variant(price=0.0, price_of_floor=0.0),
    "price in full, whatever it goes with": light_auto.Variant(price_forgiven=0.0),
    "price of pairs only": light_auto.Variant(price_of_floor=0.0),
    "price of the floor only": light_auto.Variant(price=0.0),
}
PACKAGED = "the package's own"  # on the first two markets alone, to compare


def measure(bench: Bench, market: Market, rule: str) -> list[list[float]]:
    """(seeds, levels) regrets of one rule; ``rule`` is of BLIND or VARIANTS, or PACKAGED."""
    found = []
    for seed in range(market.seeds):
        matrix = priced(bench, market, seed)
        world = SimulatedCalls(matrix, seed, Conditions())
        scores = np.ascontiguousarray(matrix.scores[world.rows][:, world.columns], dtype=np.float32)
        costs = np.array(world.costs)
        if rule == PACKAGED:
            money = _money(scores, costs)
            bought = replay_spending(Auto, world, money, seed=seed, per_cost=True)
            rows = [one.best for one in bought]
        else:
            rows = [world.rows[who] for who in _named(scores, costs, seed, rule)]
        found.append((matrix.means.max() - matrix.means[rows]).tolist())
    return found


def _named(scores: Scores, costs: FloatArray, seed: int, rule: str) -> list[int]:
    """Rows that are named at each level."""
    money = _money(scores, costs)
    if rule in UCB_E:
        rng, (batch, common) = np.random.default_rng(seed), UCB_E[rule]
        return list(light_rivals.run_ucb_e(scores, costs, np.array(money), batch, rng, common))
    named = []
    for at, amount in enumerate(money):
        rng = np.random.default_rng([seed, at])
        if rule in VARIANTS:
            variant = VARIANTS[rule]
            named += light_auto.answers(scores, np.array([amount]), variant, rng, costs)
        else:
            pulls = int(amount / costs.mean())
            schedule = _schedule(rule, *scores.shape, min(scores.size, max(1, pulls)))
            ties = 1e-9 * rng.random((len(scores),))
            named.append(light_rivals.run_rounds(scores, costs, amount, schedule, ties))
    return named


def _money(scores: Scores, costs: FloatArray) -> list[float]:
    whole = float(costs.sum()) * scores.shape[1]
    return [share * whole for share in LEVELS]


@cache
def _schedule(rule: str, n: int, m: int, budget: int) -> NDArray[np.int64]:
    """The package's own plan for so many pulls."""
    plan = IN_ROUNDS[rule](Problem(n, m, budget=budget, track_intervals=False))._plan
    return np.array([plan.targets, plan.leaving])


def run_money(bench: Bench, jobs: int) -> dict[str, str]:
    """Dollars to 95 %, beside cost-blind rivals; and what each use of the prices is worth."""
    markets = [replace(market, seeds=bench.seeds(market.seeds)) for market in MARKETS]
    ablated = [m for m in markets if m.title in ABLATED and m.prices != OWN]
    rules = (AUTO, *BLIND)
    tasks = [(m, rule) for m in markets for rule in rules]
    tasks += [(m, rule) for m in ablated for rule in VARIANTS if rule not in rules]
    tasks += [(m, PACKAGED) for m in markets[:2]]
    found = _run(bench, tasks, jobs)
    tables = {"money-ablation": ablation_table(found, ablated, tuple(VARIANTS), PACE)}
    tables["money-check"] = check_table(found, markets[:2], (AUTO, PACKAGED))
    for half in ("development", "confirmation"):
        chosen = [m for m in markets if MATRICES[m.title].half == half]
        tables[f"money-{half}"] = rivals_table(found, chosen, rules)
    return tables


def _run(
    bench: Bench, tasks: Sequence[tuple[Market, str]], jobs: int
) -> dict[tuple[Market, str], FloatArray]:
    """Measure what was not measured before, in parallel."""
    wanted = {}
    for market, rule in tasks:
        key = {
            "part": "money",
            "matrix": market.title,
            "prices": market.prices,
            "rule": rule,
            "seeds": market.seeds,
            "levels": list(LEVELS),
        }
        wanted[market, rule] = (key, partial(measure, bench, market, rule))
    return {name: np.array(value) for name, value in measured(bench, wanted, jobs).items()}


PARTS: Mapping[str, Callable[[Bench, int], dict[str, str]]] = {"money": run_money}
