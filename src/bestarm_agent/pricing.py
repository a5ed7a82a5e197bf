"""What a call to each candidate costs: the mean over the examples seen, with its interval.

A candidate's price is its mean price over all N examples, like its score: calls differ in length.
What counts is the price of the answered call, also where the reply came from the cache; retries and
judging belong to the study and not to the candidate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bestarm_agent.domain.events import Asked, CandidatesAdded, Event, ExamplesAdded, Told
from bestarm_agent.domain.spend import usd
from bestarm_agent.selectors.costs import expected_costs
from bestarm_agent.selectors.intervals import AskOrderIntervals
from bestarm_agent.selectors.table import ScoreTable
from bestarm_agent.selectors.types import Ask, FloatArray, Pair, State, Tell


@dataclass(frozen=True, slots=True)
class Prices:
    """What a call to each of K candidates costs, in dollars.

    Attributes:
        mean: (K,) mean of what was seen; NaN where nothing was.
        lower: (K,) lower ends of the intervals, jointly valid at all times.
        upper: (K,) upper ends; infinite where nothing bounds the price.
        guess: (K,) best guess, also where nothing was seen; infinite where nothing is known.
    """

    mean: FloatArray
    lower: FloatArray
    upper: FloatArray
    guess: FloatArray


class PriceBook:
    """Keeps the prices of a run, fed with its events.

    Prices enter in the order of asking, as far as they are told, since dear calls often come back
    late. The interval is the one of the scores, on price over bound: it rests on the bound that
    the provider gave when the candidate joined. If a call ever cost more, its candidate has no
    interval.

    Args:
        confidence: joint level of the intervals, in (0, 1); None states nothing, at no cost.
    """

    def __init__(self, confidence: float | None) -> None:
        self._confidence = confidence
        self._generations: list[int] = []
        self._table = ScoreTable(0, 0)
        self._bounds: list[float | None] = []
        self._overrun: set[int] = set()
        self._intervals: AskOrderIntervals | None = None

    def take(self, event: Event) -> None:
        """Take the run's next event in."""
        match event:
            case Asked():
                pair = Pair(event.candidate, event.example)
                self._table.ask(Ask(event.seq, pair, event.propensity, event.reason))
            case Told():
                self._told(event)
            case CandidatesAdded():
                self._table.add_candidates(len(event.candidates))
                self._bounds += event.costs or (None,) * len(event.candidates)
                self._intervals = None
            case ExamplesAdded():
                self._table.add_examples(len(event.ids))
                self._generations.append(len(event.ids))
                self._intervals = None

    def prices(self) -> Prices:
        """What is known now."""
        table, bounds = self._table, np.array([_known(b) for b in self._bounds], dtype=float)
        seen = table.n_scored
        mean = np.full(len(bounds), np.nan)
        np.divide(table.spent, seen, out=mean, where=seen > 0)
        intervals = self._opened()
        surest = np.where(np.isfinite(bounds), bounds, 0.0)
        lower = intervals.lower * surest
        upper = np.where(np.isfinite(bounds), intervals.upper * surest, np.inf)
        for row in self._overrun:
            lower[row], upper[row] = 0.0, np.inf
        return Prices(mean, lower, upper, self._guess(mean, bounds))

    def _told(self, told: Told) -> None:
        row = int(self._table.candidate[told.seq])
        paid = told.outcome.usd_nanos
        if paid is None:
            self._table.tell(Tell(told.seq, State.VOID))
        else:
            price, bound = usd(paid), self._bounds[row]
            if bound is not None and price > bound * (1 + 1e-9):
                self._overrun.add(row)
            share = min(1.0, price / bound) if bound else 0.0
            self._table.tell(Tell(told.seq, State.DONE, share, price))
        if self._intervals is not None:
            self._intervals.advance(row)

    def _opened(self) -> AskOrderIntervals:
        if self._intervals is None:
            self._intervals = AskOrderIntervals(self._table, self._generations, self._confidence)
        return self._intervals

    def _guess(self, mean: FloatArray, bounds: FloatArray) -> FloatArray:
        """Means, and for the unseen what their bounds say by what those of the others said."""
        if not np.isfinite(bounds).all() or not (bounds > 0).any():
            unseen = np.where(np.isfinite(bounds), bounds, np.inf)
        else:
            unseen = expected_costs(np.maximum(bounds, bounds.max() * 1e-9), self._table)
        return np.where(np.isnan(mean), unseen, mean)


def _known(bound: float | None) -> float:
    return np.inf if bound is None else bound
