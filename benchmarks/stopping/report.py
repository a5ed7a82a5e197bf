"""Tables on rules that stop early: realised error rate and share of the calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from benchmarks.papers.stored_studies import markdown
from scipy.stats import beta, binomtest

LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class Cell:
    """What was tried.

    Attributes:
        matrix: its name in the report.
        rule: name in the registry.
        delta: error probability that the rule was allowed, in (0, 1).
        in_flight: calls at once.
    """

    matrix: str
    rule: str
    delta: float
    in_flight: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one run ended.

    Attributes:
        separated: whether a winner was declared.
        wrong: whether it was declared and has not the highest mean.
        share: calls evaluated, of all cells; those under way at the decision included.
    """

    separated: bool
    wrong: bool
    share: float


Outcomes: TypeAlias = Mapping[Cell, Sequence[Outcome]]


def tables(cut: Outcomes, whole: Outcomes, leading: Sequence[str]) -> dict[str, str]:
    """All tables by marker."""
    return {
        "errors": _errors(cut),
        "worst": _worst(cut),
        "shares": _shares(cut, leading),
        "whole": _shares(whole, leading),
    }


def excess(wrong: int, runs: int, delta: float) -> float:
    """Probability of so many wrong winners or more, were each run wrong with ``delta``."""
    return float(binomtest(wrong, runs, delta, alternative="greater").pvalue)


def _errors(found: Outcomes) -> str:
    """One line per rule, number in flight and delta, over all matrices together."""
    pooled: dict[tuple[str, int, float], list[Outcome]] = {}
    for cell, runs in found.items():
        pooled.setdefault((cell.rule, cell.in_flight, cell.delta), []).extend(runs)
    rows = []
    for (rule, in_flight, delta), runs in sorted(pooled.items()):
        wrong = sum(run.wrong for run in runs)
        p = excess(wrong, len(runs), delta)
        rows.append(
            [
                rule,
                str(in_flight),
                f"{delta:g}",
                f"{len(runs):,}",
                f"{np.mean([run.separated and run.share < 1 for run in runs]):.0%}",
                str(wrong),
                f"{wrong / len(runs):.4f}",
                f"{_at_most(wrong, len(runs)):.4f}",
                f"{p:.2g}{_mark(p, len(pooled))}",
                f"{np.mean([run.share for run in runs]):.0%}",
            ]
        )
    headers = ["rule", "in flight", "δ", "runs", "stopped early", "wrong", "error rate", "at most"]
    return markdown([*headers, "p (rate > δ)", "calls made"], rows)


def _worst(found: Outcomes, count: int = 10) -> str:
    """The settings of the most wrong winners, one matrix at a time."""
    counted = [(sum(run.wrong for run in runs), len(runs), cell) for cell, runs in found.items()]
    n_tests = len(counted)
    counted.sort(key=lambda item: (excess(item[0], item[1], item[2].delta), -item[0]))
    counted = [item for item in counted if item[0]]
    if not counted:
        return "No run declared a wrong winner."
    rows = []
    for wrong, runs, cell in counted[:count]:
        p = excess(wrong, runs, cell.delta)
        rows.append(
            [
                cell.matrix,
                cell.rule,
                str(cell.in_flight),
                f"{cell.delta:g}",
                f"{wrong} of {runs}",
                f"{p:.2g}{_mark(p, n_tests)}",
            ]
        )
    return markdown(["matrix", "rule", "in flight", "δ", "wrong", "p (rate > δ)"], rows)


def _shares(found: Outcomes, leading: Sequence[str]) -> str:
    """Calls made per matrix: 1 and 32 in flight at the first delta, 1 at the second."""
    matrices = list(dict.fromkeys(cell.matrix for cell in found))
    deltas = sorted({cell.delta for cell in found})
    settings = [(delta, in_flight) for delta in deltas for in_flight in (1, 32)]
    rows = []
    for matrix in matrices:
        row = [matrix]
        for rule in leading:
            for delta, in_flight in settings:
                row.append(_share(found.get(Cell(matrix, rule, delta, in_flight), [])))
        rows.append(row)
    headers = [f"{rule}, δ {d:g}, {n} in flight" for rule in leading for d, n in settings]
    return markdown(["matrix", *headers], rows)


def _at_most(wrong: int, runs: int) -> float:
    """Upper end of a one-sided 95 % interval for the error rate (Clopper and Pearson 1934)."""
    return float(beta.ppf(0.95, wrong + 1, runs - wrong)) if wrong < runs else 1.0


def _share(runs: Sequence[Outcome]) -> str:
    if not runs:
        return ""
    shares = np.array([run.share for run in runs])
    wrong = sum(run.wrong for run in runs)
    text = f"{shares.mean():.0%}"
    return f"{text} ({wrong} wrong of {len(runs)})" if wrong else text


def _mark(p: float, tests: int) -> str:
    """Two stars if significant among all tests of the table, one if taken alone."""
    return " **" if p < LEVEL / tests else " *" if p < LEVEL else ""
