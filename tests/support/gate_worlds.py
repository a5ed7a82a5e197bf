"""Simulated gates: a pool of examples, a baseline, challengers whose true difference is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.non_inferiority import ProvedAfter, Question, when_proved

FloatArray = NDArray[np.float64]
_CHUNK = 250  # worlds in memory at once


@dataclass(frozen=True, slots=True)
class World:
    """The setting of a simulated gate; every challenger is alike and drawn on its own."""

    n_examples: int
    difference: float  # mean score of a challenger minus the baseline's, over all the examples
    disagreement: float  # share of the examples on which the two differ; at least |difference|
    n_challengers: int = 1
    void: float = 0.0  # share of pairs that are void; those answered wrongly, twice as often
    base: float = 0.8  # share of the examples that the baseline gets right
    draws: int = 1  # of every pair, whose score is their mean; shares are then those of draws

    def differences(self, runs: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Return (runs, challengers, N) least gains and losses, in a random order of examples.

        The share of right answers and of flips is exact over the N examples; the baseline's answers
        are common to the challengers of a world.
        """
        n = self.n_examples * self.draws
        worse = round(n * (self.disagreement - self.difference) / 2)
        better = worse + round(n * self.difference)
        right = round(n * self.base)
        baseline = np.zeros((runs, 1, n))
        baseline[..., :right] = 1.0
        challengers = np.broadcast_to(baseline, (runs, self.n_challengers, n)).copy()
        self._flip(challengers[..., :right], worse, 0.0, rng)
        self._flip(challengers[..., right:], better, 1.0, rng)
        baseline, challengers = self._means(baseline), self._means(challengers)
        n = self.n_examples
        order = rng.permuted(np.broadcast_to(np.arange(n), (runs, 1, n)), axis=-1)
        baseline = np.take_along_axis(baseline, order, axis=-1)
        challengers = np.take_along_axis(challengers, order, axis=-1)
        low_b, high_b = self._ranges(baseline, rng)
        low_c, high_c = self._ranges(challengers, rng)
        return low_c - high_b, low_b - high_c

    def _means(self, scores: FloatArray) -> FloatArray:
        cells = scores.reshape(*scores.shape[:-1], self.n_examples, self.draws)
        return np.asarray(cells.mean(axis=-1))

    def _flip(self, scores: FloatArray, count: int, value: float, rng: np.random.Generator) -> None:
        """Set ``count`` random scores of every row."""
        ranks = rng.random(scores.shape).argsort(axis=-1).argsort(axis=-1)
        scores[ranks < count] = value

    def _ranges(
        self, scores: FloatArray, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Hide some scores, wrong ones more often: slow answers run into the time-out."""
        chance = np.where(scores < 0.5, 2.0 * self.void, self.void)
        hidden = rng.random(scores.shape) < chance
        return np.where(hidden, 0.0, scores), np.where(hidden, 1.0, scores)


def simulate(world: World, question: Question, runs: int, rng: np.random.Generator) -> ProvedAfter:
    """Return (runs, challengers) when each statement is proved, looking after every example."""
    parts = []
    for start in range(0, runs, _CHUNK):
        gains, losses = world.differences(min(_CHUNK, runs - start), rng)
        parts.append(when_proved(gains, losses, question))
    return ProvedAfter(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def question_of(
    world: World, margin: float, alpha: float = 0.05, *, improve: bool = False
) -> Question:
    """Return the question to the challengers of a world."""
    return Question(margin, improve, alpha, world.n_challengers, world.n_examples)


def wrong(found: ProvedAfter, world: World, question: Question) -> NDArray[np.bool_]:
    """Return (runs,) whether any statement about any challenger was ever wrong.

    A difference that equals the bar is a tie: passing is then right where no improvement is asked
    for, failing where one is.
    """
    true, bar = world.difference, question.bar
    passes = true > bar if question.improve else true >= bar
    mistakes = np.isfinite(found.failed if passes else found.passed)
    if not question.improve and true >= 0.0:
        mistakes |= np.isfinite(found.worse)
    return np.asarray(mistakes.any(axis=-1))


@dataclass(frozen=True, slots=True)
class SlicedRuns:
    """Simulated gates with slices: all examples, then each slice."""

    found: tuple[ProvedAfter, ...]  # of (runs, challengers) each
    differences: tuple[float, ...]  # the true ones
    question: Question


def simulate_sliced(
    slices: Sequence[World], margin: float, alpha: float, runs: int, rng: np.random.Generator
) -> SlicedRuns:
    """Return when each statement is proved, over all examples and in each slice of them.

    The worlds of the slices have as many challengers each.
    """
    sizes = [one.n_examples for one in slices]
    count = slices[0].n_challengers
    question = Question(margin, False, alpha, count, sum(sizes), 1 + len(slices))
    mean = float(np.average([one.difference for one in slices], weights=sizes))
    parts: list[list[ProvedAfter]] = [[] for _ in range(1 + len(slices))]
    for start in range(0, runs, _CHUNK):
        n_runs = min(_CHUNK, runs - start)
        drawn = [one.differences(n_runs, rng) for one in slices]
        kinds = np.broadcast_to(
            np.repeat(np.arange(1, len(sizes) + 1), sizes), (n_runs, sum(sizes))
        )
        places = rng.permuted(kinds, axis=1)
        back = places.argsort(axis=1, kind="stable").argsort(axis=1)[:, None, :]
        gains, losses = (
            np.take_along_axis(np.concatenate(side, axis=-1), back, axis=-1)
            for side in zip(*drawn, strict=True)
        )
        parts[0].append(when_proved(gains, losses, question))
        for k, one in enumerate(drawn, 1):
            parts[k].append(when_proved(*one, replace(question, n_examples=sizes[k - 1])))
    found = tuple(
        ProvedAfter(*(np.concatenate(part) for part in zip(*one, strict=True))) for one in parts
    )
    differences = (mean, *(one.difference for one in slices))
    return SlicedRuns(found, differences, question)


def wrong_verdicts(runs: SlicedRuns) -> NDArray[np.bool_]:
    """Return (runs,) whether the verdict on any challenger could ever be wrong."""
    if min(runs.differences) < -runs.question.margin:
        passed = [np.isfinite(found.passed) for found in runs.found]
        return np.asarray(np.logical_and.reduce(passed).any(axis=-1))
    failed = [np.isfinite(found.failed) for found in runs.found]
    return np.asarray(np.logical_or.reduce(failed).any(axis=-1))


def wrongly_worse(runs: SlicedRuns) -> NDArray[np.bool_]:
    """Return (runs,) whether any part was ever wrongly said to be worse, or by the margin."""
    mistakes = [
        np.isfinite(found.worse if true >= 0.0 else found.failed).any(axis=-1)
        for found, true in zip(runs.found, runs.differences, strict=True)
        if true >= -runs.question.margin
    ]
    return np.asarray(np.logical_or.reduce(mistakes))
