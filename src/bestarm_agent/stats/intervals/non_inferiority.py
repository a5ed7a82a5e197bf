"""Tests by betting on the difference between a challenger and a baseline, on common examples.

Both take the N examples in one order, drawn at random before any score is seen. Example t has the
difference d_t = x_t - y_t in [-1, 1], challenger minus baseline, and D is its mean over all N. The
wealth of a gambler (``betting_bounds``) who bets against a hypothesis on such a mean is an
e-process: if the hypothesis is true, it ever reaches 1/a with probability at most a, however often
one looks. With the bar B, which is -margin, or +margin where an improvement is asked for:

    "D <= B", against (1 + d_t) / 2 of mean <= (1 + B) / 2: refuted, the challenger passes    (1)
    "D >= B", against (1 - d_t) / 2 of mean <= (1 - B) / 2: refuted, it fails                 (2)
    "D >= 0", as (2) with B = 0: refuted, it is worse, if only by a little                    (3)

(3) is looked at where no improvement is asked for.

Several comparisons share the error probability: C of them are tested at a = alpha / C each. The
wealth (2) is never above (3) where B <= 0, so for a comparison with D != B there is one
hypothesis whose refutation would be a mistake, and the probability that any of these statements
is ever wrong is at most alpha (union bound). For D = B, (1) and (2) each err with probability at
most a.

A comparison is about one challenger and all examples, or one challenger and a slice of them: N is
then the size of the slice. One random order of all examples, read where it is in a slice, is a
random order of the slice, so the slice's e-process needs no other draw and no weights. Each process
is a function of the order and the scores along it, and Ville's inequality bounds how often it
*ever* reaches 1/a on its way to N. So which pairs are asked first may depend on anything seen,
also on examples further down the order, as long as every process takes its own examples in order.

A score that is not known lies in [low, high]: each test takes the end that speaks against it.

References:
    Waudby-Smith and Ramdas (2024), "Estimating means of bounded random variables by betting",
    JRSS B 86(1), section 5. Howard, Ramdas, McAuliffe and Sekhon (2021), "Time-uniform,
    nonparametric, nonasymptotic confidence sequences", Annals of Statistics 49(2), on peeking.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bestarm_agent.stats.arrays import BoolArray, FloatArray
from bestarm_agent.stats.intervals.betting_bounds import (
    Wager,
    bet_grid,
    wealth_paths,
)
from bestarm_agent.stats.intervals.whole_sequences import lower_bound

_TIE = 1e-9  # means that differ by less are equal: scores such as 0.1 are rounded


class Verdict(StrEnum):
    """The outcome for one challenger."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Question:
    """The question to all challengers, and the error that its answers may have together."""

    margin: float  # in [0, 1)
    improve: bool  # whether "better by more than the margin" is asked, not "not worse"
    alpha: float  # probability that any statement is ever wrong, in (0, 1)
    n_comparisons: int  # that share this error probability
    n_examples: int

    @property
    def bar(self) -> float:
        """The difference that divides those that pass from those that fail."""
        return self.margin if self.improve else -self.margin

    @property
    def enough(self) -> float:
        """The wealth that refutes a hypothesis."""
        return self.n_comparisons / self.alpha

    @cached_property
    def bets(self) -> tuple[float, ...]:
        """Halving bets, down to the least that can pay.

        The Kelly bet on an equal challenger that differs from the baseline on a share p of the
        examples is 1.4 margin / p; smaller ones than for p = .7 are not needed.
        """
        least = max(2.0 * self.margin, bet_grid(self.n_examples, self.alpha)[0])
        steps = int(math.log2(1.0 / least))
        return tuple(2.0**-k for k in range(steps, -1, -1))


class Shown(NamedTuple):
    """Number of examples after which each statement was shown; infinite while it is not."""

    passed: FloatArray  # (1)
    failed: FloatArray  # (2)
    worse: FloatArray  # (3)


def shown(gains: FloatArray, losses: FloatArray, question: Question) -> Shown:
    """Return when each statement is shown, for many challengers or worlds at once.

    Args:
        gains: (..., T) least possible differences challenger minus baseline, in the common order.
        losses: (..., T) least possible differences baseline minus challenger.
        question: what is asked; looked at after every example.
    """
    passed = _first(gains, question.bar, question)
    failed = _first(losses, -question.bar, question)
    worse = np.full_like(failed, np.inf) if question.improve else _first(losses, 0.0, question)
    if gains.shape[-1] == question.n_examples:
        passes, fails = _passes_at_end(gains, question), _fails_at_end(losses, question)
        passed = np.where(passes, np.minimum(passed, question.n_examples), passed)
        failed = np.where(fails, np.minimum(failed, question.n_examples), failed)
    return Shown(passed, failed, worse)


def _first(differences: FloatArray, bar: float, question: Question) -> FloatArray:
    """Return (...) how many examples refute "the mean difference is at most ``bar``"."""
    values = (1.0 + differences) / 2.0
    wealth = wealth_paths(values, (1.0 + bar) / 2.0, question.bets, question.n_examples)
    refuted = wealth >= question.enough
    return np.where(refuted.any(axis=-1), refuted.argmax(axis=-1) + 1.0, np.inf)


def _passes_at_end(gains: FloatArray, question: Question) -> BoolArray:
    """Return whether the mean of all N reaches the bar; an improvement must be above it."""
    gain, bar = gains.mean(axis=-1), question.bar
    return np.asarray(gain > bar + _TIE if question.improve else gain >= bar - _TIE)


def _fails_at_end(losses: FloatArray, question: Question) -> BoolArray:
    loss, bar = losses.mean(axis=-1), -question.bar
    return np.asarray(loss >= bar - _TIE if question.improve else loss > bar + _TIE)


class Comparison:
    """One challenger against the baseline, fed one common example after the other.

    Example:
        >>> comparison = Comparison(Question(0.05, False, 0.05, 1, 400))
        >>> for _ in range(100):
        ...     comparison.push((1.0, 1.0), (1.0, 1.0))
        >>> comparison.verdict.value, comparison.passed_after
        ('passed', 92.0)
    """

    def __init__(self, question: Question) -> None:
        self.question = question
        self.gains: list[float] = []  # least possible differences challenger minus baseline
        self.losses: list[float] = []  # least possible differences baseline minus challenger
        bars = (question.bar, -question.bar, 0.0)
        self._wagers = [
            Wager((1.0 + bar) / 2.0, question.bets, question.n_examples) for bar in bars
        ]
        self._shown = [math.inf] * len(bars)

    @property
    def n(self) -> int:
        """Number of common examples so far."""
        return len(self.gains)

    @property
    def is_complete(self) -> bool:
        """Return whether all examples were taken."""
        return self.n == self.question.n_examples

    @property
    def passed_after(self) -> float:
        """Number of examples that showed (1), or infinity."""
        return self._shown[0]

    @property
    def failed_after(self) -> float:
        """Number of examples that showed (2), or infinity."""
        return self._shown[1]

    @property
    def worse_after(self) -> float:
        """Number of examples that showed (3), or infinity."""
        return math.inf if self.question.improve else self._shown[2]

    @property
    def verdict(self) -> Verdict:
        """The answer that was shown first."""
        if self.passed_after == self.failed_after:  # both infinite
            return Verdict.UNDECIDED
        return Verdict.PASSED if self.passed_after < self.failed_after else Verdict.FAILED

    @property
    def is_decided(self) -> bool:
        """Return whether there is an answer."""
        return self.verdict is not Verdict.UNDECIDED

    def push(self, challenger: tuple[float, float], baseline: tuple[float, float]) -> None:
        """Take the next example: the range [low, high] of either score; a void one is (0, 1)."""
        gain, loss = challenger[0] - baseline[1], baseline[0] - challenger[1]
        self.gains.append(gain)
        self.losses.append(loss)
        for i, (wager, difference) in enumerate(zip(self._wagers, (gain, loss, loss), strict=True)):
            wager.push((1.0 + difference) / 2.0)
            self._note(i, wager.wealth >= self.question.enough)
        if self.is_complete:
            self._note(0, bool(_passes_at_end(np.array(self.gains), self.question)))
            self._note(1, bool(_fails_at_end(np.array(self.losses), self.question)))

    def interval(self) -> tuple[float, float]:
        """Bound the mean difference over all N examples, at all times; each end at the level."""
        lower, upper = self._bound(self.gains), 0.0 - self._bound(self.losses)  # no -0.0
        bar = self.question.bar  # below, what is shown: the bounds are rounded outwards
        lower = max(lower, bar) if self.passed_after < math.inf else lower
        upper = min(upper, bar) if self.failed_after < math.inf else upper
        return lower, min(upper, 0.0) if self.worse_after < math.inf else upper

    def _note(self, statement: int, is_shown: bool) -> None:
        if is_shown and self._shown[statement] == math.inf:
            self._shown[statement] = float(self.n)

    def _bound(self, differences: list[float]) -> float:
        asked = self.question
        values = (1.0 + np.array(differences)) / 2.0
        return 2.0 * lower_bound(values, 1.0 / asked.enough, asked.n_examples, asked.bets) - 1.0
