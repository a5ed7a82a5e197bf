"""Measure ``auto`` beside its rivals on every matrix, and without its parts.

    python -m benchmarks.auto.reproduce --data ../shared/data --scale .05

The rules are those of the package, replayed: with all seeds it takes most of a day on two cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from benchmarks.auto.found import GAPS, Found, hit_rates, plain_form, ratio, shares_of
from benchmarks.auto.matrices import MATRICES, Place, scores_of
from benchmarks.report import Bench, markdown, run

from bestarm_agent.selectors.auto import rule as auto
from bestarm_agent.simulation.replay import SimulatedCalls, replay
from bestarm_agent.simulation.replay_many import parse_contenders

ENOUGH = 0.99  # precision after which larger budgets are taken to be as good
RULES = {
    "auto": "auto",
    "ucb-e": "ucb-e",
    "ucb-e, batch 16": "ucb-e[batch=16]",
    "ucb-e, common": "ucb-e[common_examples=true]",
    "sysrs": "sysrs",
    "halving, common": "benchmarks.baselines.halving:SequentialHalving",
}
RIVALS = tuple(RULES)[1:]
# Constants of ``auto`` that an ablation changes.
VARIANTS: Mapping[str, Mapping[str, float]] = {
    "as it is": {},
    "no rank floor": {"_FLOOR": 0.0},
    "half the pulls by rank": {"_FLOOR": 0.5},
    "all pulls by rank": {"_FLOOR": 1.0},
    "model fitted half as often": {"_SHARE_NEW": 0.04},
}
ABLATED = ("LiveCodeBench", "SAT12", "AlpacaEval, real, no annotator", "formal")


def measure(
    data: Path, place: Place, rule: str, seeds: int, constants: Mapping[str, float]
) -> dict[str, Any]:
    """Run one rule with every seed at every share; afresh for each, if it plans for its budget."""
    scores = scores_of(data, place)
    means = scores.mean(axis=1, dtype=np.float64)
    shares = shares_of(len(scores), scores.size, place.most)
    budgets = [round(share * scores.size) for share in shares]
    [contender] = parse_contenders(rule)
    regrets: list[list[float]] = []
    with patch.dict(vars(auto), constants):
        for chunk in [budgets] if rule.startswith("ucb-e") else [[one] for one in budgets]:
            found = [
                [float(means.max() - means[answer.best]) for answer in one.answers]
                for seed in range(seeds)
                for one in [replay(contender.make, SimulatedCalls(scores, seed), chunk, seed=seed)]
            ]
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
    rules: dict[str, tuple[str, dict[str, float]]] = {n: (spec, {}) for n, spec in RULES.items()}
    found = _run(bench, "auto", tasks, rules)
    tables = {"ratios-all": _ratios(found, list(MATRICES))}
    for half in ("development", "confirmation"):
        its = [title for title, place in MATRICES.items() if place.half == half]
        tables[f"crossings-{half}"] = _crossings(found, its)
        tables[f"ratios-{half}"] = _ratios(found, its)
    return tables


def run_ablation(bench: Bench) -> dict[str, str]:
    """Each ingredient left out, on some development matrices."""
    rules = {name: ("auto", constants) for name, constants in VARIANTS.items()}
    tasks = [(title, name) for title in ABLATED for name in rules]
    found = _run(bench, "ablation", tasks, rules)
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
    rules: Mapping[str, tuple[str, Mapping[str, float]]],
) -> dict[tuple[str, str], Found]:
    """Measure what was not measured before, in parallel."""
    wanted = {}
    for title, name in tasks:
        place, (rule, constants) = MATRICES[title], rules[name]
        seeds = bench.seeds(place.seeds)
        key = {"part": part, "matrix": title, "rule": name, "seeds": seeds}
        wanted[title, name] = key, partial(measure, bench.data, place, rule, seeds, constants)
    return {name: Found.of(value) for name, value in bench.all_found(wanted).items()}


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
