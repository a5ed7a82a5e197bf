"""Means over the examples of what outcomes tell beside the score, with their intervals.

A quantity enters in the order of asking, since slow or expensive calls often come back late. The
intervals are those of the scores. Where contested examples come early more often, they are often
also more expensive: with x_t the t-th value of a candidate and r_t its ratio (``Odds``), the mean
of x_1 + ... + x_(t-1) and (N - t + 1) r_t x_t, over N, is expected to be the mean (Des Raj); their
average over t is reported, divided by the same of x = 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bestarm_agent.domain.events import (
    Asked,
    CandidatesAdded,
    Event,
    ExamplesAdded,
    Told,
)
from bestarm_agent.selectors.ask_order_intervals import AskOrderIntervals, even_odds
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import Ask, FloatArray, Pair, State, Tell
from bestarm_agent.stats.intervals.betting_bounds import EVEN, Odds

_SLACK = 1e-6  # between a chance as logged and as the odds have it


class OutcomeTracker(ABC):
    """Keeps one quantity of a run, fed with its events.

    A candidate has no interval once an example was drawn with another chance than the odds say.

    Args:
        confidence: joint level of the intervals, in (0, 1); None states nothing, at no cost.
        odds: how an example that was asked was drawn among those left of its generation.
        held_back: examples among which none was drawn: a random part, so that the others are drawn
            like all.
    """

    def __init__(
        self,
        confidence: float | None,
        odds: Callable[[int], Odds] = even_odds,
        held_back: int = 0,
    ) -> None:
        self._confidence = confidence
        self._odds = odds
        self._held_back = held_back
        self._is_even = True  # whether all examples so far were drawn uniformly
        self._generations: list[int] = []
        self._table = ScoreTable(0, 0)
        self._unbounded: set[int] = set()
        self._number_of: dict[int, int] = {}  # in the table, by number of a pending ask
        self._intervals: AskOrderIntervals | None = None

    @abstractmethod
    def _tell_of(self, told: Told) -> Tell:
        """Return the quantity in [0, 1] as a score, VOID where it is not known."""

    def take(self, event: Event) -> None:
        """Take the run's next event in."""
        match event:
            case Asked():
                self._asked(event)
            case Told() if event.seq in self._number_of:
                seq = self._number_of.pop(event.seq)
                self._table.tell(self._tell_of(replace(event, seq=seq)))
                if self._intervals is not None:
                    self._intervals.advance(int(self._table.candidate[seq]))
            case CandidatesAdded():
                self._table.add_candidates(len(event.candidates))
                self._intervals = None
            case ExamplesAdded():
                self._table.add_examples(len(event.ids))
                self._generations.append(len(event.ids))
                self._intervals = None

    def _mean_of(self, values: FloatArray, totals: FloatArray) -> FloatArray:
        """(K,) means of a column of the table, given by ask and summed; NaN where none is known."""
        seen = self._table.n_scored
        mean = np.full(len(seen), np.nan)
        np.divide(totals, seen, out=mean, where=seen > 0)
        if not self._is_even:
            for row in np.flatnonzero((seen > 0) & (seen < self._table.n_examples)).tolist():
                mean[row] = self._weighed(row, values)
        return mean

    def _weighed(self, row: int, values: FloatArray) -> float:
        """Mean of a candidate that has seen some of its examples."""
        table, seqs = self._table, np.array(self._table.row(row))
        known = np.flatnonzero(table.state[seqs] == int(State.DONE))
        value, examples = values[seqs[known]], table.example[seqs[known]].tolist()
        ahead = (table.n_examples - known) * [self._odds(example).ratio for example in examples]
        behind = np.cumsum(value) - value
        return float((behind + ahead * value).sum() / (np.arange(len(known)) + ahead).sum())

    def _asked(self, asked: Asked) -> None:
        table, row, odds = self._table, asked.candidate, self._odds(asked.example)
        self._is_even &= odds == EVEN
        if asked.propensity is not None:
            left = table.n_unseen_of(row) - self._held_back
            stated = asked.propensity * odds.ratio * left
            if abs(stated - 1.0) > _SLACK:
                self._unbounded.add(row)
        pair = Pair(row, asked.example)
        self._number_of[asked.seq] = table.n_asked
        table.ask(Ask(table.n_asked, pair, asked.propensity, asked.reason))

    def _opened(self) -> AskOrderIntervals:
        if self._intervals is None:
            self._intervals = AskOrderIntervals(
                self._table, self._generations, self._confidence, self._odds
            )
        return self._intervals
