"""Means of the candidates on slices of the examples, with their intervals.

A candidate's scores on a slice enter in the order of asking, up to the first that is pending. One
random order of all examples, read where it is in the slice, is a random order of the
slice, so the intervals are those of scores: draws without replacement from the slice
(``betting``). For K candidates and S slices each interval has the K S-th part of the error
probability: all hold together, at all times, as a statement of its own beside that of the ranking.
It does not matter how much of each slice a candidate has seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import BoolArray, State
from bestarm_agent.stats.agreement import Measure
from bestarm_agent.stats.betting import mean_interval
from bestarm_agent.store.run_state import RunState

_SHOWN = 30  # candidates


@dataclass(frozen=True, slots=True)
class SliceMean:
    """Known scores of one candidate on one slice of the examples."""

    n: int  # scores
    mean: Measure


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
    members = [_mask(one.examples, len(state.example_ids)) for one in state.slices]
    columns = [_means(state, pairs, row, members, alpha) for row in ranking[:_SHOWN]]
    return tuple(
        SliceMeans(one.name, int(mask.sum()), tuple(column[k] for column in columns))
        for k, (one, mask) in enumerate(zip(state.slices, members, strict=True))
        if mask.any()
    )


def _mask(examples: Sequence[int], n_examples: int) -> BoolArray:
    mask = np.full(n_examples, False)
    mask[list(examples)] = True
    return mask


def _means(
    state: RunState, pairs: Pairs, row: int, slices: Sequence[BoolArray], alpha: float
) -> list[SliceMean]:
    """Return a candidate's mean on each slice, with intervals that err with ``alpha`` each."""
    seqs = np.flatnonzero(state.asks["candidate"] == row)
    example, told = state.asks["example"][seqs], state.told[seqs]
    states, scores = told["state"], told["score"]
    found = []
    for members in slices:
        there = members[example]
        score = scores[there]
        pending = np.flatnonzero(states[there] == int(State.PENDING))
        if pairs.rule.exogenous and len(pending):
            score = score[: pending[0]]
        seen = score[~np.isnan(score)]
        ends = 0.0, 1.0
        if pairs.rule.exogenous:
            low, high = np.nan_to_num(score, nan=0.0), np.nan_to_num(score, nan=1.0)
            ends = mean_interval(low, high, alpha, int(members.sum()))
        mean = float(seen.mean()) if len(seen) else float("nan")
        found.append(SliceMean(len(seen), Measure(mean, *ends)))
    return found
