"""What a run of the study of ``auto`` found, and how two rules compare by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any

import numpy as np

from bestarm_agent.simulation.curves import TARGET, isotonic_crossing

SHARES = (0.005, 0.012, 0.027, 0.06, 0.12, 0.2, 0.36)
SMALL_SHARES = (0.08, 0.12, 0.18, 0.27, 0.4, 0.6, 0.8)  # fewer than 4,000 cells
GAPS = (0.0, 0.01)
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class Found:
    """Precision of one rule on one matrix, at rising shares of the cells.

    Attributes:
        shares: budgets.
        precision: by gap, at each share.
    """

    shares: tuple[float, ...]
    precision: Mapping[float, tuple[float, ...]]

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Found:
        """From its plain form."""
        precision = {gap: tuple(value["precision"][str(gap)]) for gap in GAPS}
        return cls(tuple(value["shares"]), precision)

    def crossing(self, gap: float) -> float | None:
        """Share from which precision is 95 %; None if not reached."""
        return isotonic_crossing(self.shares, self.precision[gap], TARGET)

    def average(self, gap: float) -> float:
        """Mean precision up to 12 % of the cells, or of all budgets of a small matrix."""
        low = [p for s, p in zip(self.shares, self.precision[gap], strict=True) if s <= 0.12]
        return float(np.mean(low if len(low) > 2 else self.precision[gap]))

    def cell(self) -> str:
        """Both crossings, in %."""
        crossings = [self.crossing(gap) for gap in GAPS]
        return "/".join("n.r." if each is None else f"{100 * each:.3g}" for each in crossings)


def shares_of(n_candidates: int, n_cells: int, most: int) -> tuple[float, ...]:
    """The budgets of a matrix: at least one pull of each candidate, at most ``most`` pulls."""
    usual = SMALL_SHARES if n_cells < 4000 else SHARES
    return tuple(share for share in usual if n_candidates <= round(share * n_cells) <= most)


def plain_form(shares: Sequence[float], regrets: Sequence[Sequence[float]]) -> dict[str, Any]:
    """What ``Found.of`` reads, from the regrets of all seeds at each share."""
    hits = {str(gap): hit_rates(regrets, gap).tolist() for gap in GAPS}
    return {"shares": list(shares), "precision": hits}


def hit_rates(
    regrets: Sequence[Sequence[float]], gap: float
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(budgets,) the share of the seeds whose regret is at most ``gap``."""
    return np.asarray((np.array(regrets) <= gap + _CLOSE).mean(axis=1), dtype=np.float64)


def ratio(
    found: Mapping[tuple[str, str], Found],
    titles: Sequence[str],
    rivals: Sequence[str],
    gap: float,
    own: str = "auto",
) -> str:
    """Geometric mean of the ratios of budgets, the worst of them, and how many there are.

    What is not reached counts as reached at the largest budget; matrices on which neither reaches
    it, or both do at the smallest, are left out.
    """
    ratios = []
    for title in titles:
        best = [found[title, rival].crossing(gap) for rival in rivals]
        theirs = min((each for each in best if each is not None), default=None)
        mine, (first, *_, last) = found[title, own].crossing(gap), found[title, own].shares
        if mine is None and theirs is None:
            continue
        if not (mine == theirs == first):
            ratios.append(((mine or last) / (theirs or last), title))
    if not ratios:
        return ""
    mean = exp(sum(log(value) for value, _ in ratios) / len(ratios))
    worst, where = max(ratios)
    return f"**{mean:.2f}** ({len(ratios)}); worst {worst:.2f}, {where}"
