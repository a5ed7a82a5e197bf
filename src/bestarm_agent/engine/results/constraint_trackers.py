"""Evidence about a constraint for every candidate: kept, broken, or open.

A mean is compared with its limit. That a percentile is at most a limit is a statement about a mean,
too: that at most 5 % of the examples are above it, for the 95th. So both have the anytime-valid
intervals of scores, drawn without replacement, and the statement is about the study's examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bestarm_agent.config.study.constraints import FIRST_TOKEN, LENGTH, Constraint
from bestarm_agent.domain.events import CandidatesAdded, Event, Told
from bestarm_agent.domain.outcome import Scored
from bestarm_agent.engine.results.call_prices import Prices
from bestarm_agent.engine.results.outcome_tracker import OutcomeTracker
from bestarm_agent.selectors.ask_order_intervals import even_odds
from bestarm_agent.selectors.types import BoolArray, FloatArray, State, Tell
from bestarm_agent.stats.intervals.betting_bounds import Odds

_CALLS = 1000
_LONG = 2**20  # tokens of a reply without a limit, which its mean is counted by


@dataclass(frozen=True, slots=True)
class Finding:
    """One constraint and the (K,) means that it limits; of a percentile, the shares above."""

    constraint: Constraint
    mean: FloatArray  # NaN where nothing was seen
    lower: FloatArray
    upper: FloatArray

    @property
    def kept(self) -> BoolArray:
        """(K,) candidates that are shown to keep it."""
        allowed = self.constraint.allowed
        ends = self.upper <= allowed if self.constraint.at_most else self.lower >= allowed
        return np.asarray(ends)

    @property
    def broken(self) -> BoolArray:
        """(K,) candidates that are shown to break it."""
        allowed = self.constraint.allowed
        ends = self.lower > allowed if self.constraint.at_most else self.upper < allowed
        return np.asarray(ends)

    @property
    def seems_kept(self) -> BoolArray:
        """(K,) candidates whose mean so far keeps it."""
        allowed = self.constraint.allowed
        means = self.mean <= allowed if self.constraint.at_most else self.mean >= allowed
        return np.asarray(means)


def price_finding(constraint: Constraint, prices: Prices) -> Finding:
    """Return what is known of a limit of the price of 1,000 calls."""
    return Finding(constraint, _CALLS * prices.mean, _CALLS * prices.lower, _CALLS * prices.upper)


class ConstraintTracker(OutcomeTracker):
    """Keeps what a constraint limits; ``measures`` are the names of the study's, in their order.

    A mean length is bounded by ``max_tokens``; without it, or where a reply was longer, it has no
    upper end. A reply that failed has no length and no measure, one from the cache no time to its
    first text; like a pair that could not be measured it is counted as either.
    """

    def __init__(
        self,
        constraint: Constraint,
        measures: Sequence[str],
        confidence: float | None,
        odds: Callable[[int], Odds] = even_odds,
        held_back: int = 0,
    ) -> None:
        super().__init__(confidence, odds, held_back)
        self.constraint = constraint
        self._is_length = constraint.name == LENGTH
        self._most: list[int] = []  # by row: most tokens of a reply
        self._unlimited = set[int]()  # rows whose replies may be longer
        self._index = list(measures).index(constraint.of) if constraint.of in measures else None

    def finding(self) -> Finding:
        """Return what is known now."""
        table, intervals = self._table, self._opened()
        lower, upper = intervals.lower.copy(), intervals.upper.copy()
        for row in self._unbounded:
            lower[row], upper[row] = 0.0, 1.0
        if not self._is_length:
            return Finding(self.constraint, self._mean_of(table.score, table.total), lower, upper)
        most = np.array(self._most, dtype=float)
        lower, upper = lower * most, upper * most
        upper[[*self._unbounded, *self._unlimited]] = np.inf
        return Finding(self.constraint, self._mean_of(table.cost, table.spent), lower, upper)

    def take(self, event: Event) -> None:
        """Take the run's next event in."""
        if isinstance(event, CandidatesAdded):
            for candidate in event.candidates:
                most = candidate.params.get("max_tokens")
                if not isinstance(most, int) or most < 1:
                    self._unlimited.add(len(self._most))
                    most = _LONG
                self._most.append(most)
        super().take(event)

    def _tell_of(self, told: Told) -> Tell:
        value = self._value(told)
        if value is None:
            return Tell(told.seq, State.VOID)
        if self.constraint.percentile is not None:
            value = float(value > self.constraint.limit)
        elif self._is_length:
            row = int(self._table.candidate[told.seq])
            if value > self._most[row]:
                self._unlimited.add(row)
            return Tell(told.seq, State.DONE, min(1.0, value / self._most[row]), value)
        return Tell(told.seq, State.DONE, value)

    def _value(self, told: Told) -> float | None:
        outcome = told.outcome
        if self.constraint.of == "latency":
            return outcome.seconds or (0.0 if isinstance(outcome, Scored) else None)
        if not isinstance(outcome, Scored):
            return None
        if self.constraint.of == FIRST_TOKEN:
            return outcome.first_token_seconds
        if self._index is None:
            return float(outcome.usage.output)
        return outcome.measures[self._index] if self._index < len(outcome.measures) else None
