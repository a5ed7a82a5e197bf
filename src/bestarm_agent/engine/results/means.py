"""Means over the examples of what outcomes tell besides the score, with their intervals.

One quantity is the price, the seconds or the output tokens of the answered call, or the score by a
further scorer. A candidate's mean is over all N examples, like that of its score: calls differ in
length. Retries, waits and judging belong to the study and not to the candidate, and a reply from
the cache counts with what the call that bought it cost and took.

The intervals are those of scores (``RowIntervals``), of value over bound: a quantity enters
in the order of asking, since slow or expensive calls often come back late. Where contested examples
come early more often, they are often also more expensive: with x_t the t-th value of a candidate
and r_t its ratio (``Odds``), the mean of x_1 + ... + x_(t-1) and (N - t + 1) r_t x_t, over N, is
expected to be the mean (Des Raj); their average over t is reported, divided by the same of x = 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bestarm_agent.config.study.objective import LENGTH, PRICE, SECONDS
from bestarm_agent.domain.events import Asked, CandidatesAdded, Event, ExamplesAdded, Told
from bestarm_agent.domain.outcome import Scored
from bestarm_agent.domain.spend import usd
from bestarm_agent.selectors.answer import OddsOf, RowIntervals, even_odds
from bestarm_agent.selectors.rule import expected_costs
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import Ask, FloatArray, Pair, State, Tell
from bestarm_agent.stats.betting import EVEN

_CALLS = 1000  # whose price is told
_LONG = 2**20  # tokens of a reply without a limit, which its mean is counted by
_SLACK = 1e-6  # between a chance as logged and as the odds have it


@dataclass(frozen=True, slots=True)
class Means:
    """One quantity of K candidates."""

    # (K,) of what was seen, weighed by how it was drawn; NaN where nothing was
    mean: FloatArray
    lower: FloatArray  # (K,) lower ends of the intervals, jointly valid at all times
    upper: FloatArray  # (K,) upper ends; infinite where nothing bounds the quantity


class MeanTracker:
    """Keeps the mean of one quantity of a run, fed with its events.

    Each value has a bound: of a price what the provider said when the candidate joined, of seconds
    the time-out of a call, of tokens ``max_tokens``, of a measure 1. Without one, or once a value
    was above it, a candidate's interval has no upper end. It has no interval once an example was
    drawn with another chance than the odds say. A reply that failed has no length and no measure;
    like a pair that could not be measured it is counted as either.

    Args:
        name: the quantity, as limits name it: ``PRICE`` (dollars of 1,000 calls), ``SECONDS``,
            ``LENGTH``, or one of the ``measures``.
        confidence: joint level of the intervals, in (0, 1); None states nothing, at no cost.
        odds: how an example that was asked was drawn among those left.
        measures: names of the study's further scorers, in their order.
        timeout: seconds that a call may take.
    """

    def __init__(
        self,
        name: str,
        confidence: float | None,
        odds: OddsOf = even_odds,
        *,
        measures: Sequence[str] = (),
        timeout: float = float("inf"),
    ) -> None:
        self._name = name
        self._index = list(measures).index(name) if name in measures else None
        self._timeout = timeout
        self._confidence = confidence
        self._odds = odds
        self._is_even = True  # whether all examples so far were drawn uniformly
        self._table = ScoreTable(0, 0)  # the score of a pair is its value over the bound
        self._bounds: list[float] = []  # by row
        self._loose = set[int]()  # rows whose values may be above their bound
        self._unknown = set[int]()  # rows without an interval
        self._number_of: dict[int, int] = {}  # in the table, by number of a pending ask
        self._intervals: RowIntervals | None = None

    def take(self, event: Event) -> None:
        """Take the run's next event in."""
        match event:
            case Asked():
                self._asked(event)
            case Told() if event.seq in self._number_of:
                self._told(self._number_of.pop(event.seq), event)
            case CandidatesAdded():
                for bound in self._bounds_of(event):
                    if not np.isfinite(bound):
                        self._loose.add(len(self._bounds))
                        bound = _LONG if self._name == LENGTH else 0.0
                    self._bounds.append(bound)
                self._table.add_candidates(len(event.candidates))
                self._intervals = None
            case ExamplesAdded():
                self._table.add_examples(len(event.ids))
                self._intervals = None

    def means(self) -> Means:
        """Estimate the means from what was told so far."""
        table, bounds = self._table, np.array(self._bounds)
        mean = np.full(len(bounds), np.nan)
        np.divide(table.spent, table.n_scored, out=mean, where=table.n_scored > 0)
        if not self._is_even:
            partly = (table.n_scored > 0) & (table.n_scored < table.n_examples)
            for row in np.flatnonzero(partly).tolist():
                mean[row] = self._weighed(row)
        if self._intervals is None:
            alpha = None if self._confidence is None else 1.0 - self._confidence
            self._intervals = RowIntervals(table, alpha, self._odds)
        lower, upper = (end * bounds for end in self._intervals.bounds())
        unknown = [*self._unknown]
        lower[unknown], upper[unknown] = 0.0, bounds[unknown]
        upper[[*self._loose]] = np.inf
        return Means(mean, lower, upper)

    def guesses(self) -> FloatArray:
        """(K,) means; of the unseen what their bounds say, by what those of the others said.

        Infinite where nothing is known.
        """
        mean, bounds = self.means().mean, np.array(self._bounds)
        bounds[[*self._loose]] = np.inf
        unseen = bounds
        if np.isfinite(bounds).all() and (bounds > 0).any():
            unseen = expected_costs(np.maximum(bounds, bounds.max() * 1e-9), self._table)
        return np.where(np.isnan(mean), unseen, mean)

    def _bounds_of(self, event: CandidatesAdded) -> Iterator[float]:
        for candidate, cost in zip(
            event.candidates, event.costs or [None] * len(event.candidates), strict=True
        ):
            most = candidate.params.get("max_tokens")
            if self._name == PRICE:
                yield np.inf if cost is None else _CALLS * cost
            elif self._name == SECONDS:
                yield self._timeout
            elif self._name == LENGTH:
                yield most if isinstance(most, int) and most > 0 else np.inf
            else:
                yield 1.0

    def _asked(self, asked: Asked) -> None:
        table, row, odds = self._table, asked.candidate, self._odds(asked.example)
        self._is_even &= odds == EVEN
        if asked.propensity is not None:
            left = table.n_unseen_of(row)
            if abs(asked.propensity * odds.ratio * left - 1.0) > _SLACK:
                self._unknown.add(row)
        pair = Pair(row, asked.example)
        self._number_of[asked.seq] = table.n_asked
        table.ask(Ask(table.n_asked, pair, asked.propensity, asked.reason))

    def _told(self, seq: int, told: Told) -> None:
        row, value = int(self._table.candidate[seq]), self._value(told)
        bound = self._bounds[row]
        if value is None:
            self._table.tell(Tell(seq, State.VOID))
        else:
            if value > bound * (1 + 1e-9):
                self._loose.add(row)
            share = min(1.0, value / bound) if bound else 0.0
            self._table.tell(Tell(seq, State.DONE, share, value))

    def _value(self, told: Told) -> float | None:
        """Return the quantity; None where it is not known."""
        outcome = told.outcome
        if self._name == PRICE:
            return None if outcome.usd_nanos is None else _CALLS * usd(outcome.usd_nanos)
        if self._name == SECONDS:
            return outcome.seconds or (0.0 if isinstance(outcome, Scored) else None)
        if not isinstance(outcome, Scored):
            return None
        if self._name == LENGTH:
            return float(outcome.usage.output)
        if self._index is None or self._index >= len(outcome.measures):
            return None
        return outcome.measures[self._index]

    def _weighed(self, row: int) -> float:
        """Mean of a candidate that has seen some of its examples."""
        table, seqs = self._table, np.array(self._table.row(row))
        known = np.flatnonzero(table.state[seqs] == int(State.DONE))
        value, examples = table.cost[seqs[known]], table.example[seqs[known]].tolist()
        ahead = (table.n_examples - known) * [self._odds(example).ratio for example in examples]
        behind = np.cumsum(value) - value
        return float((behind + ahead * value).sum() / (np.arange(len(known)) + ahead).sum())
