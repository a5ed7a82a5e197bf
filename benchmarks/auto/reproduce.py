"""Measure ``auto`` beside its rivals on every matrix, and without its parts.

    pip install -e '.[bench]'
    python -m benchmarks.auto.reproduce --data ../shared/data

``auto`` and UCB-E are written a second time here, compiled (``light_auto.py``,
``light_rivals.py``): the package itself would take weeks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from benchmarks.auto import light_auto, light_rivals
from benchmarks.auto.found import GAPS, Found, hit_rates, plain_form, ratio, shares_of
from benchmarks.auto.matrices import MATRICES, Place, scores_of
from benchmarks.report import Bench, markdown, run
from numpy.typing import NDArray

from bestarm_agent.selectors.rules.opt_mai import RoundRule, SequentialHalving, SuccessiveRejects
from bestarm_agent.selectors.types import Problem

Scores: TypeAlias = NDArray[np.float32]
Budgets: TypeAlias = NDArray[np.int64]
Rule: TypeAlias = Callable[[Scores, Budgets, int], Sequence[int]]
ENOUGH = 0.99  # precision after which larger budgets are taken to be as good


def ucb_e(
    scores: Scores, budgets: Budgets, seed: int, *, batch: int = 1, common: bool = False
) -> Sequence[int]:
    """UCB-E; its own examples for every candidate, or common ones."""
    ones, money = np.ones(len(scores)), budgets.astype(np.float64)
    rng = np.random.default_rng(seed)
    return list(light_rivals.run_ucb_e(scores, ones, money, batch, rng, common))


def auto(scores: Scores, budgets: Budgets, seed: int, variant: light_auto.Variant) -> Sequence[int]:
    """The selector ``auto``, compiled; told its budget unless the variant does not narrow."""
    rng = np.random.default_rng(seed)
    return light_auto.answers(scores, budgets, variant, rng)


def in_rounds(
    scores: Scores, budgets: Budgets, seed: int, make: Callable[[Problem], RoundRule]
) -> Sequence[int]:
    """A rule in rounds on common examples, from cumulative sums and the package's schedule."""
    n, m = scores.shape
    [budget] = budgets.tolist()
    plan = make(Problem(n, m, budget=budget, track_intervals=False))._plan
    ties = 1e-9 * np.random.default_rng([seed, 2]).random((n,))
    alive, total, seen, left = np.arange(n), np.zeros(n), 0, budget
    for target, leaving in zip(plan.targets.tolist(), plan.leaving.tolist(), strict=True):
        further = min(min(target, m) - seen, left // len(alive))
        total[alive] += scores[alive, seen : seen + further].sum(axis=1, dtype=np.float64)
        seen, left = seen + further, left - further * len(alive)
        if seen < min(target, m):  # cut short by the budget
            break
        order = np.argsort(total[alive] / max(seen, 1) + ties[alive])
        alive = alive[order[leaving:]]
    return [int(alive[np.argmax(total[alive] + ties[alive])])]


SYSRS = partial(in_rounds, make=SuccessiveRejects)
HALVING = partial(in_rounds, make=SequentialHalving)
RULES: Mapping[str, Rule] = {
    "auto": partial(auto, variant=light_auto.Variant()),
    "ucb-e": ucb_e,
    "ucb-e, batch 16": partial(ucb_e, batch=16),
    "ucb-e, common": partial(ucb_e, common=True),
    "sysrs": SYSRS,
    "halving, common": HALVING,
}
RIVALS = tuple(RULES)[1:]
ANYTIME = (
    "ucb-e",
    "ucb-e, batch 16",
    "ucb-e, common",
    "budget unknown",
)  # one run for all budgets
VARIANTS: Mapping[str, light_auto.Variant] = {
    "as it is": light_auto.Variant(),
    "budget unknown": light_auto.Variant(narrow=False),
    "no rank floor": light_auto.Variant(floor=0.0),
    "half the pulls by rank": light_auto.Variant(floor=0.5),
    "all pulls by rank": light_auto.Variant(floor=1.0),
    "chance squared": light_auto.Variant(sharpness=2.0),
    "variances inflated": light_auto.Variant(inflation=1.25),
    "no factor of examples": light_auto.Variant(factor=False),
    "floor narrowed": light_auto.Variant(sight=2.0),
    "noise of the leaders only": light_auto.Variant(leaders_noise=20.0, all_noise=0.0),
    "own noise only": light_auto.Variant(leaders_noise=1.0, all_noise=0.0),
    "warm-up of 6 examples": light_auto.Variant(warm_up=6),
}
ABLATED = ("LiveCodeBench", "SAT12", "AlpacaEval, real, no annotator", "formal")


def measure(data: Path, place: Place, rule: Rule, seeds: int, *, anytime: bool) -> dict[str, Any]:
    """Run one rule with every seed at every share; afresh for each unless it is anytime."""
    scores = scores_of(data, place)
    means = scores.mean(axis=1, dtype=np.float64)
    shares = shares_of(len(scores), scores.size, place.most)
    budgets = np.array([round(share * scores.size) for share in shares])
    regrets: list[list[float]] = []
    for chunk in [budgets] if anytime else np.split(budgets, len(budgets)):
        found = []
        for seed in range(seeds):
            draws = np.random.default_rng([seed, 1])
            rows, columns = (draws.permutation(size) for size in scores.shape)
            world = np.ascontiguousarray(scores[rows][:, columns], dtype=np.float32)
            found.append(means.max() - means[rows[rule(world, chunk, seed)]])
        regrets += np.array(found).T.tolist()
        if hit_rates(regrets[-1:], 0.0)[0] >= ENOUGH:
            break
    regrets += [regrets[-1]] * (len(shares) - len(regrets))
    return plain_form(shares, regrets)


def run_matrices(bench: Bench) -> dict[str, str]:
    """Every rule on every matrix."""
    order = {title: (place.half, -place.seeds) for title, place in MATRICES.items()}
    titles = sorted(MATRICES, key=order.__getitem__)  # confirmation and small ones first
    tasks = [(title, rule) for title in titles for rule in RULES]
    found = {key: Found.of(value) for key, value in _run(bench, "auto", tasks, RULES).items()}
    tables = {"ratios-all": _ratios(found, list(MATRICES))}
    for half in ("development", "confirmation"):
        its = [title for title, place in MATRICES.items() if place.half == half]
        tables[f"crossings-{half}"] = _crossings(found, its)
        tables[f"ratios-{half}"] = _ratios(found, its)
    return tables


def run_ablation(bench: Bench) -> dict[str, str]:
    """Each ingredient left out, on some development matrices."""
    rules: dict[str, Rule] = {n: partial(auto, variant=v) for n, v in VARIANTS.items()}
    tasks = [(title, name) for title in ABLATED for name in rules]
    found = {k: Found.of(v) for k, v in _run(bench, "ablation", tasks, rules).items()}
    rows = []
    for name in rules:
        cells = [found[title, name].cell() for title in ABLATED]
        mean = [np.mean([found[t, name].average(gap) for t in ABLATED]) for gap in GAPS]
        rows.append([name, *cells, " / ".join(f"{100 * each:.1f}" for each in mean)])
    return {"ablation": markdown(["", *ABLATED, "mean precision"], rows)}


def _run(
    bench: Bench,
    part: str,
    tasks: Sequence[tuple[str, str]],
    rules: Mapping[str, Rule],
) -> dict[tuple[str, str], Any]:
    """Measure what was not measured before, in parallel."""
    wanted = {}
    for title, rule in tasks:
        place, anytime = MATRICES[title], rule in ANYTIME
        seeds = bench.seeds(place.seeds)
        key = {"part": part, "matrix": title, "rule": rule, "seeds": seeds}
        make = partial(measure, bench.data, place, rules[rule], seeds, anytime=anytime)
        wanted[title, rule] = (key, make)
    return bench.all_found(wanted)


def _crossings(found: Mapping[tuple[str, str], Found], titles: Sequence[str]) -> str:
    rows = []
    for title in titles:
        place = MATRICES[title]
        mine = found[title, "auto"].average(0.0)
        best = max(found[title, rival].average(0.0) for rival in RIVALS)
        cells = [found[title, rule].cell() for rule in RULES]
        rows.append([title, str(place.seeds), *cells, f"{100 * mine:.0f} / {100 * best:.0f}"])
    headers = ["matrix", "seeds", *RULES, "mean precision: auto / best rival"]
    return markdown(headers, rows)


def _ratios(found: Mapping[tuple[str, str], Found], titles: Sequence[str]) -> str:
    rows = []
    for gap in GAPS:
        cells = [ratio(found, titles, (rival,), gap) for rival in RIVALS]
        rows.append([f"budget, ε = {gap:g}", *cells, ratio(found, titles, RIVALS, gap)])
    for gap in GAPS:
        means = [np.mean([found[t, r].average(gap) for t in titles]) for r in RULES]
        text = [f"{100 * mean:.1f}" for mean in means]
        rows.append([f"mean precision, ε = {gap:g}: auto {text[0]}", *text[1:], ""])
    return markdown(["", *RIVALS, "the best rival of each matrix"], rows)


if __name__ == "__main__":
    parts = {"matrices": run_matrices, "ablation": run_ablation}
    run(parts, Path(__file__).with_name("README.md"), __doc__)
