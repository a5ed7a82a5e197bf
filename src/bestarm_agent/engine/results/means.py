"""Means of candidates on slices of the examples, and over the course of a run, with intervals.

A candidate's scores enter in the order of asking, up to the first that was pending. One random
order of all examples, read where it is in a slice, is a random order of the slice, so the intervals
are those of scores: draws without replacement (``betting``). For K candidates and S slices each
interval has the K S-th part of the error probability: all hold together, at all times, as a
statement of its own beside that of the ranking. It does not matter how much of each slice a
candidate has seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import BoolArray, FloatArray, IntArray, State
from bestarm_agent.stats.agreement import Measure
from bestarm_agent.stats.betting import mean_interval
from bestarm_agent.store.run_state import RunState

_SHOWN = 30  # candidates
_MOMENTS = 32  # of a course


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
    shown = [np.flatnonzero(state.asks["candidate"] == row) for row in ranking[:_SHOWN]]
    is_told = state.told["state"] != State.PENDING
    alpha = alpha if pairs.rule.exogenous else 0.0
    found = []
    for one in state.slices:
        members = np.full(len(state.example_ids), False)
        members[list(one.examples)] = True
        n = int(members.sum())
        seqs = [own[members[state.asks["example"][own]]] for own in shown]
        means = [_mean(state, own, is_told, n, alpha) for own in seqs]
        found += [SliceMeans(one.name, n, tuple(means))] if n else []
    return tuple(found)


def _mean(state: RunState, seqs: IntArray, is_told: BoolArray, n: int, alpha: float) -> SliceMean:
    """Return a candidate's mean over some of its asks of ``n``, by what was told of them.

    The interval errs with probability ``alpha``; none is stated for 0.
    """
    scores: FloatArray = np.where(is_told[seqs], state.told["score"][seqs], np.nan)
    ends = 0.0, 1.0
    if alpha:
        scores = scores[: len(seqs) if is_told[seqs].all() else is_told[seqs].argmin()]
        low, high = np.nan_to_num(scores, nan=0.0), np.nan_to_num(scores, nan=1.0)
        ends = mean_interval(low, high, alpha, n)
    seen = scores[~np.isnan(scores)]
    return SliceMean(len(seen), Measure(float(seen.mean()) if len(seen) else float("nan"), *ends))


def course(state: RunState, row: int, alpha: float) -> tuple[list[int], list[Measure]]:
    """Return numbers of outcomes, evenly over a run, and a candidate's mean after each of them.

    The intervals err with probability ``alpha``; none are stated for 0.
    """
    n_told = state.n_told
    moments = np.linspace(0, n_told, min(_MOMENTS, n_told) + 1).astype(int)[1:].tolist()
    seqs, place = np.flatnonzero(state.asks["candidate"] == row), places(state)
    n = len(state.example_ids)
    return moments, [_mean(state, seqs, place < moment, n, alpha).mean for moment in moments]


def places(state: RunState) -> IntArray:
    """Return how many outcomes came before that of each ask; of a pending one, how many came."""
    found = np.full(state.n_asked, state.n_told)
    found[state.order] = np.arange(state.n_told)
    return found
