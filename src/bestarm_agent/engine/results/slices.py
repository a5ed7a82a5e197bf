"""Means of the candidates on slices of the examples, with their intervals.

A candidate's scores on a slice enter in the order of asking, up to the first that is pending. One
random order of all examples, read where it is in the slice, is a random order of the
slice, so the intervals are those of scores: draws without replacement from the slice
(``betting``). For K candidates and S slices each interval has the K S-th part of the error
probability: all hold together, at all times, as a statement of its own beside that of the ranking.
It does not matter how much of each slice a candidate has seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bestarm_agent.domain.example import Slice
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import BoolArray, IntArray, State
from bestarm_agent.stats.betting import EVEN, mean_interval
from bestarm_agent.store.run_state import RunState

_SHOWN = 30  # candidates


@dataclass(frozen=True, slots=True)
class SliceMean:
    """Known scores of one candidate on one slice of the examples."""

    n: int  # scores
    mean: float | None  # None without a score
    lower: float  # lower end of its interval
    upper: float  # upper end


@dataclass(frozen=True, slots=True)
class SliceMeans:
    """One slice of the examples, and the first candidates on it."""

    name: str  # "language=de"
    n_examples: int
    means: tuple[SliceMean, ...]  # of the first rows, in their order


def slice_means(
    state: RunState, pairs: Pairs, ranking: Sequence[int], confidence: float
) -> tuple[SliceMeans, ...]:
    """Return the means on each slice of the first candidates of a ranking, in its order.

    There are no intervals where examples are not drawn with equal chances.
    """
    if not state.slices or not pairs.rule.seeks_best:
        return ()
    alpha = (1.0 - confidence) / max(1, len(state.candidates) * len(state.slices))
    answers = [_Answers(state, pairs, row) for row in ranking[:_SHOWN]]
    found = []
    for one, members in _members(state.slices, len(state.example_ids)):
        means = tuple(candidate.mean(members, alpha) for candidate in answers)
        found.append(SliceMeans(one.name, int(members.sum()), means))
    return tuple(found)


def _members(slices: Sequence[Slice], n_examples: int) -> Iterator[tuple[Slice, BoolArray]]:
    """Yield each slice with a mask of its examples, if there are any."""
    for one in slices:
        mask = np.full(n_examples, False)
        mask[list(one.examples)] = True
        if mask.any():
            yield one, mask


class _Answers:
    """Asks and known scores of a candidate, in order."""

    def __init__(self, state: RunState, pairs: Pairs, row: int) -> None:
        seqs: IntArray = np.flatnonzero(state.asks.candidate == row)
        asked = state.asks.example[seqs]
        told = seqs[seqs < len(state.told.state)]
        states = np.full(len(state.example_ids), int(State.PENDING))
        states[asked[: len(told)]] = state.told.state[told]
        scores = np.full(len(states), np.nan)
        scores[asked[: len(told)]] = state.told.score[told]
        self._example, self._state, self._score = asked, states[asked], scores[asked]
        self._is_even = pairs.rule.exogenous and all(
            pairs.rule.odds_of(example) == EVEN for example in asked.tolist()
        )

    def mean(self, members: BoolArray, alpha: float) -> SliceMean:
        """Return the mean on some of the examples, with an interval that errs with ``alpha``."""
        there = members[self._example]
        state, score = self._state[there], self._score[there]
        pending = np.flatnonzero(state == int(State.PENDING))
        if self._is_even and len(pending):
            score = score[: pending[0]]
        known = score[~np.isnan(score)]
        mean = float(known.mean()) if len(known) else None
        if not self._is_even:
            return SliceMean(len(known), mean, 0.0, 1.0)
        low, high = np.nan_to_num(score, nan=0.0), np.nan_to_num(score, nan=1.0)
        return SliceMean(len(known), mean, *mean_interval(low, high, alpha, int(members.sum())))
