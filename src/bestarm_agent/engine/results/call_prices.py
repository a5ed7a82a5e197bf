"""The mean price of a call to each candidate, with its interval.

A candidate's price is its mean price over all N examples, like its score: calls differ in length.
What counts is the price of the answered call, also where the reply came from the cache; retries and
judging belong to the study and not to the candidate.

Where contested examples come early more often, they are often also more expensive. With x_t the
t-th price of a candidate and r_t its ratio (``Odds``), the mean of x_1 + ... + x_(t-1) and
(N - t + 1) r_t x_t, over N, is expected to be the mean price (Des Raj); their average over t is
reported, divided by the same of x = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bestarm_agent.domain.events import Asked, CandidatesAdded, Event, ExamplesAdded, Told
from bestarm_agent.domain.spend import usd
from bestarm_agent.selectors.ask_order_intervals import AskOrderIntervals, even_odds
from bestarm_agent.selectors.pull_costs import expected_costs
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import Ask, FloatArray, Pair, State, Tell
from bestarm_agent.stats.intervals.betting_bounds import EVEN, Odds

_SLACK = 1e-6  # between a chance as logged and as the odds have it


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a call to each of K candidates, in dollars."""

    # (K,) mean of what was seen, weighed by how it was drawn; NaN where nothing was
    mean: FloatArray
    lower: FloatArray  # (K,) lower ends of the intervals, jointly valid at all times
    upper: FloatArray  # (K,) upper ends; infinite where nothing bounds the price
    # (K,) best guess, also where nothing was seen; infinite where nothing is known
    guess: FloatArray


class PriceBook:
    """Keeps the prices of a run, fed with its events.

    Prices enter in the order of asking, since expensive calls often come back late. The interval is
    that of the scores, on price over bound, with the bound that the provider gave when the
    candidate joined. A candidate has no interval once a call cost more than its bound, or an
    example was drawn with another chance than the odds say.

    Args:
        confidence: joint level of the intervals, in (0, 1); None states nothing, at no cost.
        odds: how an example that was asked was drawn among those left of its generation.
    """

    def __init__(self, confidence: float | None, odds: Callable[[int], Odds] = even_odds) -> None:
        self._confidence = confidence
        self._odds = odds
        self._is_even = True  # whether all examples so far were drawn uniformly
        self._generations: list[int] = []
        self._table = ScoreTable(0, 0)
        self._bounds: list[float | None] = []
        self._unbounded: set[int] = set()
        self._intervals: AskOrderIntervals | None = None

    def take(self, event: Event) -> None:
        """Take the run's next event in."""
        match event:
            case Asked():
                self._asked(event)
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
        """Estimate the prices from what was told so far."""
        table, bounds = self._table, np.array([_known(b) for b in self._bounds], dtype=float)
        seen = table.n_scored
        mean = np.full(len(bounds), np.nan)
        np.divide(table.spent, seen, out=mean, where=seen > 0)
        if not self._is_even:
            for row in np.flatnonzero((seen > 0) & (seen < table.n_examples)).tolist():
                mean[row] = self._weighed(row)
        intervals = self._opened()
        surest = np.where(np.isfinite(bounds), bounds, 0.0)
        lower = intervals.lower * surest
        upper = np.where(np.isfinite(bounds), intervals.upper * surest, np.inf)
        for row in self._unbounded:
            lower[row], upper[row] = 0.0, np.inf
        return Prices(mean, lower, upper, self._guess(mean, bounds))

    def _weighed(self, row: int) -> float:
        """Mean price of a candidate that has seen some of its examples."""
        table, seqs = self._table, np.array(self._table.row(row))
        known = np.flatnonzero(table.state[seqs] == int(State.DONE))
        price, examples = table.cost[seqs[known]], table.example[seqs[known]].tolist()
        ahead = (table.n_examples - known) * [self._odds(example).ratio for example in examples]
        behind = np.cumsum(price) - price
        return float((behind + ahead * price).sum() / (np.arange(len(known)) + ahead).sum())

    def _asked(self, asked: Asked) -> None:
        table, row, odds = self._table, asked.candidate, self._odds(asked.example)
        self._is_even &= odds == EVEN
        if asked.propensity is not None:
            stated = asked.propensity * odds.ratio * table.n_unseen_of(row)
            if abs(stated - 1.0) > _SLACK:
                self._unbounded.add(row)
        pair = Pair(row, asked.example)
        table.ask(Ask(asked.seq, pair, asked.propensity, asked.reason))

    def _told(self, told: Told) -> None:
        row = int(self._table.candidate[told.seq])
        paid = told.outcome.usd_nanos
        if paid is None:
            self._table.tell(Tell(told.seq, State.VOID))
        else:
            price, bound = usd(paid), self._bounds[row]
            if bound is not None and price > bound * (1 + 1e-9):
                self._unbounded.add(row)
            share = min(1.0, price / bound) if bound else 0.0
            self._table.tell(Tell(told.seq, State.DONE, share, price))
        if self._intervals is not None:
            self._intervals.advance(row)

    def _opened(self) -> AskOrderIntervals:
        if self._intervals is None:
            self._intervals = AskOrderIntervals(
                self._table, self._generations, self._confidence, self._odds
            )
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
