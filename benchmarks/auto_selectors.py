"""The package's own ``auto``: with calls in flight, in money, and stopping by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from auto_matrices import MATRICES, scores_of
from bestarm_agent.selectors.auto import Auto
from bestarm_agent.selectors.types import Problem, Stop
from bestarm_agent.simulation.contenders import parse_contenders
from bestarm_agent.simulation.matrices import FloatArray, ScoreMatrix, load_matrix
from bestarm_agent.simulation.spending import replay_spending
from bestarm_agent.simulation.study import Plan, run_study
from bestarm_agent.simulation.world import Conditions, Latency, World
from bestarm_agent.stats.ranking import isotonic_crossing
from reproduce_study import Bench, markdown, say

FLIGHT_SHARES = (0.012, 0.027, 0.06)
FLIGHTS = (
    "LiveCodeBench",
    "SAT12",
    "GSM8K",
    "AlpacaEval, real, no annotator",
    "LLMRouter",
    "AlpacaEval, no annotator",
)
FLYING = {
    "1 in flight": Conditions(),
    "32 in flight, wrong answers 3 times slower": Conditions(
        in_flight=32, latency=Latency(1.0, 3.0)
    ),
}
STOPPING = ("LiveCodeBench", "LLMRouter", "AlpacaEval, real", "SAT12")
GIVE_UP = 0.4  # share of the cells at which a run that has not stopped is left
LEVELS = (0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
BUYERS = ("auto", "ucb-e", "ucb-e[batch=16]", "sysrs", "sequential-halving[common_examples=true]")
MARKETS = {"LLMRouter": "its prices", "LiveCodeBench": "100-fold", "SAT12": "100-fold"}


def matrix_of(bench: Bench, title: str, costs: FloatArray | None = None) -> ScoreMatrix:
    """One of the study's matrices as the simulator takes it."""
    scores = scores_of(bench.data, MATRICES[title])
    return ScoreMatrix(scores, tuple(map(str, range(len(scores)))), costs, title)


def run_flight(bench: Bench, jobs: int) -> dict[str, str]:
    """Top-1 precision with one call in flight and with many."""
    rows = []
    [contender] = parse_contenders("auto")
    for title in FLIGHTS:
        for label, conditions in FLYING.items():
            seeds = bench.seeds(100)
            key = {"part": "flight", "matrix": title, "how": label, "seeds": seeds}
            found = bench.recall(key)
            if found is None:
                plan = Plan(FLIGHT_SHARES, seeds, conditions=conditions)
                matrix = matrix_of(bench, title)
                replays = run_study(matrix, [contender], plan, jobs=jobs)["auto"]
                best = matrix.means.max() - 1e-9
                right = [[matrix.means[a.best] >= best for a in one.answers] for one in replays]
                found = np.mean(np.array(right, dtype=float), axis=0).tolist()
                bench.keep(key, found)
                say(f"flight: {title}, {label}")
            rows.append([title, label, str(seeds), *(f"{hit:.2f}" for hit in found)])
    headers = [f"{share:.1%} of the cells" for share in FLIGHT_SHARES]
    return {"flight": markdown(["matrix", "calls", "seeds", *headers], rows)}


def run_stops(bench: Bench, jobs: int) -> dict[str, str]:
    """How often a run that stops by itself is wrong, and what it took."""
    rows = []
    for title in STOPPING:
        seeds = bench.seeds(24)
        key = {"part": "stops", "matrix": title, "seeds": seeds}
        found = bench.recall(key)
        if found is None:
            matrix = matrix_of(bench, title)
            found = [_until_it_stops(matrix, seed) for seed in range(seeds)]
            bench.keep(key, found)
            say(f"stops: {title}")
        stopped = [one for one in found if one["stopped"]]
        wrong = sum(not one["right"] for one in stopped)
        took = np.median([one["share"] for one in found])
        rows.append([title, str(seeds), str(len(stopped)), str(wrong), f"{100 * took:.1f}"])
    headers = ["matrix", "runs", "stopped", "of these wrong", "median % of the cells (all runs)"]
    return {"stops": markdown(headers, rows)}


def _until_it_stops(matrix: ScoreMatrix, seed: int) -> dict[str, Any]:
    world = World(matrix, seed, Conditions())
    selector = Auto(Problem(*world.shape, seed=seed, stop_when_separated=True))
    most = round(GIVE_UP * matrix.scores.size)
    while selector.table.n_asked < most and (asks := selector.ask()):
        selector.tell([world.outcome(asks[0])])
    best = matrix.means[world.rows[selector.best().best]]
    return {
        "stopped": selector.stopped() is Stop.SEPARATED,
        "right": bool(best >= matrix.means.max() - 1e-9),
        "share": selector.table.n_asked / matrix.scores.size,
    }


def run_money(bench: Bench, jobs: int) -> dict[str, str]:
    """Share of the money for the whole grid from which precision is 95 %."""
    rows = []
    for title, prices in MARKETS.items():
        seeds = bench.seeds(24)
        cells = []
        for buyer in BUYERS:
            key = {"part": "money", "matrix": title, "rule": buyer, "seeds": seeds}
            found = bench.recall(key)
            if found is None:
                found = _precision(bench, title, buyer, seeds)
                bench.keep(key, found)
                say(f"money: {title}, {buyer}")
            crossing = isotonic_crossing(LEVELS, found)
            share = "n.r." if crossing is None else f"{100 * crossing:.1f}"
            cells.append(f"{share} ({np.mean(found):.2f})")
        rows.append([title, prices, str(seeds), *cells])
    return {"money": markdown(["matrix", "prices", "seeds", *BUYERS], rows)}


def _precision(bench: Bench, title: str, buyer: str, seeds: int) -> list[float]:
    [contender] = parse_contenders(buyer)
    hits = np.zeros(len(LEVELS))
    for seed in range(seeds):
        matrix = matrix_of(bench, title, _costs(bench, title, seed))
        world = World(matrix, seed, Conditions())
        whole = float(np.sum(world.costs or ())) * world.shape[1]
        levels = [share * whole for share in LEVELS]
        per_cost = buyer == "auto"
        bought = replay_spending(contender.make, world, levels, seed=seed, per_cost=per_cost)
        best = matrix.means.max() - 1e-9
        hits += [matrix.means[purchase.best] >= best for purchase in bought]
    return list(hits / seeds)


def _costs(bench: Bench, title: str, seed: int) -> FloatArray:
    """Real prices, or synthetic ones spread log-uniformly over a factor of 100."""
    matrix = load_matrix(str(bench.data / MATRICES[title].location))
    if MARKETS[title] == "its prices" and matrix.costs is not None:
        return matrix.costs
    exponents = np.random.default_rng([seed, 77]).random((len(matrix.scores),))
    return np.asarray(100.0**exponents)


PARTS: Mapping[str, Callable[[Bench, int], dict[str, str]]] = {
    "flight": run_flight,
    "stops": run_stops,
    "money": run_money,
}
