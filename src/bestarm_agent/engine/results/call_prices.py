"""The mean price of a call to each candidate, with its interval.

A candidate's price is its mean price over all N examples, like its score: calls differ in length.
What counts is the price of the answered call, also where the reply came from the cache; retries and
judging belong to the study and not to the candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bestarm_agent.domain.events import CandidatesAdded, Event, Told
from bestarm_agent.domain.spend import usd
from bestarm_agent.engine.results.outcome_tracker import OutcomeTracker
from bestarm_agent.selectors.ask_order_intervals import even_odds
from bestarm_agent.selectors.pull_costs import expected_costs
from bestarm_agent.selectors.types import FloatArray, State, Tell
from bestarm_agent.stats.intervals.betting_bounds import Odds


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a call to each of K candidates, in dollars."""

    # (K,) mean of what was seen, weighed by how it was drawn; NaN where nothing was
    mean: FloatArray
    lower: FloatArray  # (K,) lower ends of the intervals, jointly valid at all times
    upper: FloatArray  # (K,) upper ends; infinite where nothing bounds the price
    # (K,) best guess, also where nothing was seen; infinite where nothing is known
    guess: FloatArray


class PriceTracker(OutcomeTracker):
    """Keeps the prices of a run, fed with its events.

    The interval is that of price over bound, with the bound that the provider gave when the
    candidate joined. A candidate has no interval once a call cost more than its bound.
    """

    def __init__(
        self,
        confidence: float | None,
        odds: Callable[[int], Odds] = even_odds,
        held_back: int = 0,
    ) -> None:
        super().__init__(confidence, odds, held_back)
        self._bounds: list[float | None] = []

    def take(self, event: Event) -> None:
        """Take the run's next event in."""
        if isinstance(event, CandidatesAdded):
            self._bounds += event.costs or (None,) * len(event.candidates)
        super().take(event)

    def prices(self) -> Prices:
        """Estimate the prices from what was told so far."""
        table, bounds = self._table, np.array([_known(b) for b in self._bounds], dtype=float)
        mean = self._mean_of(table.cost, table.spent)
        intervals = self._opened()
        surest = np.where(np.isfinite(bounds), bounds, 0.0)
        lower = intervals.lower * surest
        upper = np.where(np.isfinite(bounds), intervals.upper * surest, np.inf)
        for row in self._unbounded:
            lower[row], upper[row] = 0.0, np.inf
        return Prices(mean, lower, upper, self._guess(mean, bounds))

    def _tell_of(self, told: Told) -> Tell:
        row = int(self._table.candidate[told.seq])
        paid = told.outcome.usd_nanos
        if paid is None:
            return Tell(told.seq, State.VOID)
        price, bound = usd(paid), self._bounds[row]
        if bound is not None and price > bound * (1 + 1e-9):
            self._unbounded.add(row)
        share = min(1.0, price / bound) if bound else 0.0
        return Tell(told.seq, State.DONE, share, price)

    def _guess(self, mean: FloatArray, bounds: FloatArray) -> FloatArray:
        """Means, and for the unseen what their bounds say by what those of the others said."""
        if not np.isfinite(bounds).all() or not (bounds > 0).any():
            unseen = np.where(np.isfinite(bounds), bounds, np.inf)
        else:
            unseen = expected_costs(np.maximum(bounds, bounds.max() * 1e-9), self._table)
        return np.where(np.isnan(mean), unseen, mean)


def _known(bound: float | None) -> float:
    return np.inf if bound is None else bound
