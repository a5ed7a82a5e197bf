"""Measure ``auto`` beside its rivals on every matrix: how often each names the best, and regret.

    python -m benchmarks.auto.reproduce --data ../shared/data

The rules are those of the package, replayed. Four seeds take ten minutes on one core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.auto.matrices import MATRICES, Place, scores_of
from benchmarks.report import Bench, markdown, run
from numpy.typing import NDArray

from bestarm_agent.simulation.replay import SimulatedCalls, parse_contenders, replay

SEEDS = 4
CALLS = (5, 10, 20, 50)  # per candidate
MOST, HALF = 25_000, 0.5  # but so many in all, and this share of the cells
GAP = 0.01
RULES = {
    "auto": "auto",
    "ucb-e": "ucb-e",
    "ucb-e, common": "ucb-e[common_examples=true]",
    "sysrs": "sysrs",
    "halving, common": "benchmarks.baselines.halving:SequentialHalving",
}
_CLOSE = 1e-9  # two means that differ by less are equal
Array = NDArray[np.float64]


def budgets_of(n_candidates: int, n_examples: int) -> list[int]:
    """Return the budgets of a matrix in calls."""
    most = min(MOST, int(HALF * n_candidates * n_examples))
    return [min(calls * n_candidates, most) for calls in CALLS]


def regrets(data: Path, place: Place, seed: int) -> dict[str, list[float]]:
    """Return the regret of what each rule names at each budget, which it knows beforehand."""
    scores = scores_of(data, place)
    means = scores.mean(axis=1, dtype=np.float64)
    calls, budgets = SimulatedCalls(scores, seed), budgets_of(*scores.shape)
    found = {}
    for name, spec in RULES.items():
        [contender] = parse_contenders(spec)
        named = {}
        for budget in sorted(set(budgets)):
            [answer] = replay(contender.make, calls, [budget], seed=seed).answers
            named[budget] = answer.best
        found[name] = [float(means.max() - means[named[budget]]) for budget in budgets]
    return found


def run_matrices(bench: Bench) -> dict[str, str]:
    """Replay every rule on every matrix with each seed."""
    seeds = range(bench.seeds(SEEDS))
    wanted = {
        (title, seed): (
            {"part": "auto", "matrix": title, "seed": seed},
            partial(regrets, bench.data, place, seed),
        )
        for seed in seeds
        for title, place in MATRICES.items()
    }
    found = bench.all_found(wanted)
    # (matrices, seeds, budgets) by rule
    by_rule = {
        rule: np.array([[found[title, seed][rule] for seed in seeds] for title in MATRICES])
        for rule in RULES
    }
    return {"rules": _rules(by_rule), "matrices": _matrices(by_rule)}


def _rules(by_rule: Mapping[str, Array]) -> str:
    """Table what each rule reaches, and its difference from ``auto``, over matrices."""
    rows = []
    for what, digits in (("exact, %", 1), ("within .01, %", 1), ("regret", 4)):
        gap = GAP if what.startswith("within") else 0.0
        values = {
            rule: (regret if what == "regret" else 100.0 * (regret <= gap + _CLOSE)).mean(axis=1)
            for rule, regret in by_rule.items()
        }
        for i, calls in enumerate(CALLS):
            own = values["auto"][:, i]
            cells = [_mean(own, digits)]
            for rule in list(RULES)[1:]:
                theirs = values[rule][:, i]
                cells.append(f"{theirs.mean():.{digits}f} ({_mean(theirs - own, digits, '+')})")
            rows.append([f"{what}, {calls} calls", *cells])
    return markdown(["", *RULES], rows)


def _matrices(by_rule: Mapping[str, Array]) -> str:
    """Table the share of right answers on each matrix, all budgets together."""
    rows = []
    for i, (title, place) in enumerate(MATRICES.items()):
        cells = []
        for regret in by_rule.values():
            exact, near = (100 * np.mean(regret[i] <= gap + _CLOSE) for gap in (0.0, GAP))
            cells.append(f"{exact:.0f} / {near:.0f}")
        rows.append([title, place.half, *cells])
    return markdown(["matrix", "half", *RULES], rows)


def _mean(values: Sequence[Any] | Array, digits: int, sign: str = "") -> str:
    """A mean with its standard error over matrices."""
    each = np.asarray(values)
    error = each.std(ddof=1) / np.sqrt(len(each))
    return f"{each.mean():{sign}.{digits}f} ± {error:.{digits}f}"


if __name__ == "__main__":
    run({"matrices": run_matrices}, Path(__file__).with_name("README.md"), __doc__)
