"""Tests by betting on the difference between a challenger and a baseline, on common examples.

Both take the N examples in one order, drawn at random before any score is seen. Example t has the
difference d_t = x_t - y_t in [-1, 1], challenger minus baseline, and D is its mean over all N. The
wealth of a gambler (``aimed_bets``) who bets against a hypothesis on such a mean is an e-process:
if the hypothesis is true, it ever reaches 1/a with probability at most a, however often one looks.
With the bar B, which is -margin, or +margin where an improvement is asked for:

    "D <= B", against d_t: refuted, the challenger passes                                  (1)
    "D >= B", against -d_t: refuted, it fails                                              (2)
    "D >= 0", as (2) with 0 instead of B: refuted, it is worse, if only by a little        (3)

The bets are aimed at means that are beyond B by the margin: for B = -margin at a challenger that
equals the baseline (1), and at one that is worse by twice the margin (2). (3) is looked at where no
improvement is asked for.

A comparison is about one challenger and all examples, or one challenger and a slice of them: its
parts. A challenger passes if it does so on every part, and fails if it does so on any. C
challengers of P parts share the error probability alpha. The verdict on one whose D is below the
bar on some part can only be wrong by passing, and for that (1) must be refuted on this part: (1) is
tested at a = alpha / C on every part (an intersection-union test, Berger 1982). The verdict on any
other can only be wrong by failing, on any of P parts: (2) and (3) are tested at a = alpha / (C P).
As (2) is never above (3) where B <= 0, there is one of the two on each part whose refutation would
be a mistake. So

    - all verdicts on challengers are right together with probability at least 1 - alpha;
    - so are all statements that a challenger is worse on a part;
    - that it is not worse on a part holds with 1 - alpha for one part of every challenger together.

On a slice N is its size. One random order of all examples, read where it is in a slice, is a
random order of the slice, so the slice's e-process needs no other draw and no weights. Each process
is a function of the order and the scores along it, and Ville's inequality bounds how often it
*ever* reaches 1/a on its way to N. So which pairs are asked first may depend on anything seen,
also on examples further down the order, as long as every process takes its own examples in order.

A score that is not known lies in [low, high]: each test takes the end that speaks against it.

References:
    Waudby-Smith and Ramdas (2024), "Estimating means of bounded random variables by betting",
    JRSS B 86(1), section 5. Howard, Ramdas, McAuliffe and Sekhon (2021), "Time-uniform,
    nonparametric, nonasymptotic confidence sequences", Annals of Statistics 49(2), on peeking.
    Berger (1982), "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24(4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bestarm_agent.stats.arrays import BoolArray, FloatArray
from bestarm_agent.stats.intervals.aimed_bets import Aim, AimedWager, aimed_bets, aimed_paths
from bestarm_agent.stats.intervals.betting_bounds import bet_grid
from bestarm_agent.stats.intervals.whole_sequences import largest_rejected

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
    alpha: float  # probability that any verdict is ever wrong, in (0, 1)
    n_challengers: int  # that share this error probability
    n_examples: int
    n_parts: int = 1  # of which a challenger must pass all

    @property
    def bar(self) -> float:
        """The difference that divides those that pass from those that fail."""
        return self.margin if self.improve else -self.margin

    @property
    def enough_to_pass(self) -> float:
        """The wealth that refutes (1)."""
        return self.n_challengers / self.alpha

    @property
    def enough_to_fail(self) -> float:
        """The wealth that refutes (2) or (3)."""
        return self.enough_to_pass * self.n_parts

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
    bar = question.bar
    to_pass = _bets(gains, bar, question)
    to_fail = _bets(losses, -bar, question)
    passed = _first(gains, to_pass, bar, question.enough_to_pass, question)
    failed = _first(losses, to_fail, -bar, question.enough_to_fail, question)
    worse = np.full_like(failed, np.inf)
    if not question.improve:
        worse = _first(losses, to_fail, 0.0, question.enough_to_fail, question)
    if gains.shape[-1] == question.n_examples:
        passes, fails = _passes_at_end(gains, question), _fails_at_end(losses, question)
        passed = np.where(passes, np.minimum(passed, question.n_examples), passed)
        failed = np.where(fails, np.minimum(failed, question.n_examples), failed)
    return Shown(passed, failed, worse)


def _bets(differences: FloatArray, bar: float, question: Question) -> FloatArray:
    return aimed_bets(differences, bar, question.margin, question.n_examples)


def _first(
    differences: FloatArray, bets: FloatArray, bar: float, enough: float, question: Question
) -> FloatArray:
    """Return (...) how many examples refute "the mean difference is at most ``bar``"."""
    refuted = aimed_paths(differences, bets, bar, question.bets, question.n_examples) >= enough
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
        ('passed', 74.0)
    """

    def __init__(self, question: Question) -> None:
        self.question = question
        self.gains: list[float] = []  # least possible differences challenger minus baseline
        self.losses: list[float] = []  # least possible differences baseline minus challenger
        bar, margin, n = question.bar, question.margin, question.n_examples
        self._aims = Aim(bar, margin, n), Aim(-bar, margin, n)
        self._wagers = [
            AimedWager(mean, question.bets, n, is_aimed=margin > 0.0) for mean in (bar, -bar, 0.0)
        ]
        self._shown = [math.inf] * len(self._wagers)
        self._interval = 0, (-1.0, 1.0)  # with the number of examples then

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
        up, down = (aim.bet_on(one) for aim, one in zip(self._aims, (gain, loss), strict=True))
        for i, difference, bet in ((0, gain, up), (1, loss, down), (2, loss, down)):
            self._wagers[i].push(difference, bet)
            enough = self.question.enough_to_fail if i else self.question.enough_to_pass
            self._note(i, self._wagers[i].wealth >= enough)
        if self.is_complete:
            self._note(0, bool(_passes_at_end(np.array(self.gains), self.question)))
            self._note(1, bool(_fails_at_end(np.array(self.losses), self.question)))

    def interval(self) -> tuple[float, float]:
        """Bound the mean difference over all N examples, at all times.

        The lower end errs as passing does, the upper one as failing.
        """
        if self._interval[0] < self.n:
            self._interval = self.n, self._bounds()
        return self._interval[1]

    def _bounds(self) -> tuple[float, float]:
        bar, asked = self.question.bar, self.question
        lower = self._bound(self.gains, bar, asked.enough_to_pass)
        upper = 0.0 - self._bound(self.losses, -bar, asked.enough_to_fail)  # no -0.0
        # what is shown: the bounds are rounded outwards
        lower = max(lower, bar) if self.passed_after < math.inf else lower
        upper = min(upper, bar) if self.failed_after < math.inf else upper
        return lower, min(upper, 0.0) if self.worse_after < math.inf else upper

    def _note(self, statement: int, is_shown: bool) -> None:
        if is_shown and self._shown[statement] == math.inf:
            self._shown[statement] = float(self.n)

    def _bound(self, known: list[float], bar: float, enough: float) -> float:
        asked, differences = self.question, np.array(known)
        least = (differences.sum() - (asked.n_examples - self.n)) / asked.n_examples
        if self.is_complete:
            return float(least)
        bets = _bets(differences, bar, asked)

        def is_rejected(mean: float) -> bool:
            wealth = aimed_paths(differences, bets, mean, asked.bets, asked.n_examples)
            return bool(wealth.max() >= enough)

        return largest_rejected(is_rejected, float(least), 1.0)
