"""Tests by betting on the difference between a challenger and a baseline, on common examples.

Both take the N examples in one order, drawn at random before any score is seen. Example t has the
difference d_t = x_t - y_t in [-1, 1], challenger minus baseline, and D is its mean over all N; or,
``on_new``, over the population that the N were drawn from, one independently of the other. The
wealth (6) of a gambler who bets against a hypothesis on such a mean is an e-process: if the
hypothesis is true, it ever reaches 1/a with probability at most a, however often one looks.
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

The bets. Of the first wealth, the share S is staked by a bet that is predicted from the past, the
rest by the grid of ``betting``, which is there for whatever was not expected:

    c_t(b) = (N b - sum_{i < t} d_i) / (N - t + 1)      (b, on new examples)              (4)
    A_t(b) = prod_{i <= t} (1 + min(l_i, 0.98 / (1 + c_i(b))) (d_i - c_i(b)))             (5)
    W_t(b) = S A_t(b) + (1 - S) K_t((1 + b) / 2)                                          (6)

If the mean is at most b, c_t(b) is at least the conditional mean of d_t, so every factor's expected
value is at most 1, whatever bet l_t >= 0 the past suggests: W_t(b) is an e-process. Its factors
fall in c_t, also where the cap holds, so W_t(b) falls in b: one sequence l_t serves all hypotheses,
and what is rejected is an interval (``betting``, (4)).

l_t is Kelly's bet for differences of +1, 0 and -1 whose mean is larger than B by a gap g:

    e_t = c_t(B) + g N / (N - t + 1)     (B + g)              mean of what is left            (7)
    q_t = max((k q_0 + sum_{i < t} d_i^2) / (k + t - 1), |e_t| + k r / (k + t - 1))           (8)
    l_t = argmax_l  p_+ log(1 + l (1 - c)) + (1 - q) log(1 - l c) + p_- log(1 - l (1 + c)),
          p_+ = (q + e) / 2, p_- = (q - e) / 2, c = c_t(B)                                    (9)

Only the share q of the differences that are not 0 has to be learned. If it were |e_t|, all of them
would have one sign, and the first of the other sign would take nearly all wealth; so a small share
r of these is expected at first. Measured with N = 2,000, B = -.05, g = .05, where 10% differ and
the mean is 0: a wealth of 20 after 202 draws (median), with the grid alone after 252.

References:
    Waudby-Smith and Ramdas (2024), "Estimating means of bounded random variables by betting",
    JRSS B 86(1), section 5 and appendix B (predictable bets). Kelly (1956), Bell System Technical
    Journal 35(4). Howard, Ramdas, McAuliffe and Sekhon (2021), "Time-uniform,
    nonparametric, nonasymptotic confidence sequences", Annals of Statistics 49(2), on peeking.
    Berger (1982), "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24(4).
"""

from __future__ import annotations

import math
from array import array
from copy import copy
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bestarm_agent.stats.arrays import BoolArray, FloatArray, IntArray
from bestarm_agent.stats.betting import Bets, Wealth, bet_grid, equal_shares, largest_rejected

_TIE = 1e-9  # means that differ by less are equal: scores such as 0.1 are rounded
# Validity does not rest on these: any bet that is predicted from the past will do. They decide how
# soon a challenger passes that answers about as the baseline does.
_SHARE = 0.8  # S
_GUESS, _CONTRARY, _WEIGHT = 0.08, 0.01, 20.0  # q_0, r, and k in examples
_MOST = 0.98  # below 1, so that no draw takes all wealth
_TINY = 1e-9


class Conclusion(StrEnum):
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
    on_new: bool = False  # whether D is the mean of new examples like these, else of these

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
    def bets(self) -> Bets:
        """Halving bets, down to the least that can pay.

        The Kelly bet on an equal challenger that differs from the baseline on a share p of the
        examples is 1.4 margin / p; smaller ones than for p = .7 are not needed.
        """
        least = max(2.0 * self.margin, bet_grid(self.n_examples, self.alpha).sizes[0])
        steps = int(math.log2(1.0 / least))
        return equal_shares(tuple(2.0**-k for k in range(steps, -1, -1)))


class AimedWealth:
    """The wealth (6) of those who bet against "the mean difference is at most ``mean``".

    Many rows at once: challengers, worlds or hypotheses, each with differences of its own.

    Args:
        n_rows: number of rows.
        mean: the hypothesis b, in [-1, 1); one, or one per row.
        bar: the hypothesis B whose alternative is aimed at; one, or one per row.
        question: margin, size and bets.
    """

    def __init__(
        self, n_rows: int, mean: float | FloatArray, bar: float | FloatArray, question: Question
    ) -> None:
        self._mean = np.broadcast_to(np.asarray(mean, dtype=float), n_rows)[:, None]
        self._bar = np.broadcast_to(np.asarray(bar, dtype=float), n_rows)[:, None]
        self._gap = question.margin
        self._size = None if question.on_new else question.n_examples
        self._grid = Wealth(n_rows, (1.0 + self._mean[:, 0]) / 2.0, question.bets, self._size)
        self._aimed: FloatArray = np.ones(n_rows)
        self._total: FloatArray = np.zeros(n_rows)
        self._squares: FloatArray = np.zeros(n_rows)
        self.n = 0

    def extend(self, differences: FloatArray) -> FloatArray:
        """Take the next (rows, T) differences; return the wealth after each of them."""
        n = self.n + np.arange(differences.shape[-1])
        path: FloatArray = self._grid.extend((1.0 + differences) / 2.0)
        if self._gap > 0.0:  # else there is nothing to aim at
            sums = np.cumsum(np.column_stack([self._total, differences]), axis=-1)
            squares = np.cumsum(np.column_stack([self._squares, differences**2]), axis=-1)
            total, self._total, self._squares = sums[:, :-1], sums[:, -1], squares[:, -1]
            bets = self._bets(n, total, squares[:, :-1])
            # The bets come from the bar B, the odds from the mean that is tested: one sequence of
            # bets for all hypotheses is what makes the wealth fall in the mean. The worst
            # difference, -1, leaves 1 - l (1 + c) of the wealth, hence the cap.
            fair = np.maximum(self._fair(self._mean, n, total), _TINY - 1.0)
            factors = 1.0 + np.minimum(bets, _MOST / (1.0 + fair)) * (differences - fair)
            with np.errstate(over="ignore", under="ignore"):
                factors[:, :1] *= self._aimed[:, None]
                aimed: FloatArray = np.multiply.accumulate(factors, axis=-1)  # (5)
                self._aimed = aimed[:, -1]
                path = _SHARE * aimed + (1.0 - _SHARE) * path  # (6)
        self.n += differences.shape[-1]
        return path

    def _bets(self, n: IntArray, total: FloatArray, squares: FloatArray) -> FloatArray:
        """Return the bets after the first n differences, by their sum and that of squares."""
        fair = self._fair(self._bar, n, total)
        # Of a fixed set, what the first differences lacked must come from the rest, if the mean of
        # all is to be B + g: the gap grows on what is left. New examples owe nothing to those
        # before.
        gap = self._gap if self._size is None else self._gap * self._size / (self._size - n)
        mean = fair + gap  # (7)
        seen, foreseen = _WEIGHT * _GUESS + squares, _WEIGHT * _CONTRARY
        share = np.maximum(seen / (_WEIGHT + n), np.abs(mean) + foreseen / (_WEIGHT + n))  # (8)
        return kelly_bet(fair, mean, share)

    def _fair(self, mean: FloatArray, n: IntArray, total: FloatArray) -> FloatArray:
        """Return (4) after n differences of that sum."""
        if self._size is None:
            return np.broadcast_to(mean, total.shape)
        return np.asarray((self._size * mean - total) / (self._size - n))


def kelly_bet(
    fair: FloatArray | float, mean: FloatArray | float, share: FloatArray | float
) -> FloatArray:
    """Return the bet (9), >= 0, on a difference of +1, 0 or -1.

    It is the root in l of the derivative: l^2 x + l y + e - c = 0.

    Args:
        fair: the mean c that is bet against.
        mean: the expected one, e; taken as c if it is lower.
        share: the chance q that the difference is not 0.
    """
    c, e = np.clip(fair, _TINY - 1.0, 1.0), np.clip(mean, -1.0, 1.0)
    differ = np.clip(share, np.abs(e), 1.0)
    up, down, same = (differ + e) / 2.0, (differ - e) / 2.0, 1.0 - differ
    win, lose = 1.0 - c, -1.0 - c  # on +1 and on -1; -c on 0
    # The derivative of (9), times its three denominators, is x l^2 + y l + (e - c). Of its two
    # roots the one that is 0 at e = c is wanted, in the form 2 (e - c) / (sqrt(...) - y): the usual
    # form is 0 / 0 where x = 0, that is at c = 0.
    x = -win * lose * c
    y = up * win * (lose - c) + down * lose * (win - c) - same * c * (win + lose)
    ahead = np.maximum(e - c, 0.0)
    slope = np.sqrt(np.maximum(y * y - 4.0 * x * ahead, 0.0)) - y
    return np.asarray(2.0 * ahead / np.maximum(slope, _TINY))


class ProvedAfter(NamedTuple):
    """Number of examples after which each statement was proved; infinite while it is not."""

    passed: FloatArray  # (1)
    failed: FloatArray  # (2)
    worse: FloatArray  # (3)


def when_proved(gains: FloatArray, losses: FloatArray, question: Question) -> ProvedAfter:
    """Return when each statement is proved, for many challengers or worlds at once.

    Args:
        gains: (..., T) least possible differences challenger minus baseline, in the common order.
        losses: (..., T) least possible differences baseline minus challenger.
        question: what is asked; looked at after every example.
    """
    bar = question.bar
    passed = _first(gains, bar, bar, question.enough_to_pass, question)
    failed = _first(losses, -bar, -bar, question.enough_to_fail, question)
    worse = np.full_like(failed, np.inf)
    if not question.improve:
        worse = _first(losses, 0.0, -bar, question.enough_to_fail, question)
    # Once all N examples are in, their mean is known and no test is needed. Equal to the bar is no
    # loss, so it passes "not worse", and it is no improvement, so it fails "better".
    if gains.shape[-1] == question.n_examples and not question.on_new:
        passes, fails = _passes_at_end(gains, question), _fails_at_end(losses, question)
        passed = np.where(passes, np.minimum(passed, question.n_examples), passed)
        failed = np.where(fails, np.minimum(failed, question.n_examples), failed)
    return ProvedAfter(passed, failed, worse)


def _first(
    differences: FloatArray, mean: float, bar: float, enough: float, question: Question
) -> FloatArray:
    """Return (...) how many examples refute "the mean difference is at most ``mean``"."""
    rows = differences.reshape(-1, differences.shape[-1])
    refuted = AimedWealth(len(rows), mean, bar, question).extend(rows) >= enough
    first = np.where(refuted.any(axis=-1), refuted.argmax(axis=-1) + 1.0, np.inf)
    return np.asarray(first.reshape(differences.shape[:-1]))


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
        self.gains = array("d")  # least possible differences challenger minus baseline
        self.losses = array("d")  # least possible differences baseline minus challenger
        bar = question.bar
        means, bars = np.array([bar, -bar, 0.0]), np.array([bar, -bar, -bar])
        # Three rows in one: passing bets on the gains, failing and being worse on the losses. The
        # third tests 0 and aims as the second does: one sequence of bets serves all hypotheses.
        self._wealth = AimedWealth(3, means, bars, question)  # against (1), (2) and (3)
        self._shown = [math.inf] * 3
        self._interval = 0, (-1.0, 1.0)  # with the number of examples then

    @property
    def n(self) -> int:
        """Number of common examples so far."""
        return len(self.gains)

    @property
    def is_complete(self) -> bool:
        """Return whether all examples were taken, and nothing is uncertain but missing scores."""
        return self.n == self.question.n_examples and not self.question.on_new

    @property
    def passed_after(self) -> float:
        """Number of examples that showed (1), or infinity."""
        return self._shown_after()[0]

    @property
    def failed_after(self) -> float:
        """Number of examples that showed (2), or infinity."""
        return self._shown_after()[1]

    @property
    def worse_after(self) -> float:
        """Number of examples that showed (3), or infinity."""
        return math.inf if self.question.improve else self._shown_after()[2]

    @property
    def verdict(self) -> Conclusion:
        """The answer that was shown first."""
        if self.passed_after == self.failed_after:  # both infinite
            return Conclusion.UNDECIDED
        return Conclusion.PASSED if self.passed_after < self.failed_after else Conclusion.FAILED

    @property
    def is_decided(self) -> bool:
        """Return whether there is an answer."""
        return self.verdict is not Conclusion.UNDECIDED

    def push(self, challenger: tuple[float, float], baseline: tuple[float, float]) -> None:
        """Take the next example: the range [low, high] of either score; a void one is (0, 1).

        Raises ValueError for a range that is none, or more examples than there are.
        """
        # One chain for order and bounds of all four ends; NaN fails it, too.
        if not -1 <= challenger[0] - baseline[1] <= challenger[1] - baseline[0] <= 1:
            raise ValueError(f"scores are ranges in [0, 1], got {challenger} and {baseline}")
        if self.n >= self.question.n_examples:
            raise ValueError(f"all {self.question.n_examples} examples were taken")
        self.gains.append(challenger[0] - baseline[1])
        self.losses.append(baseline[0] - challenger[1])

    def doubted(self) -> Comparison:
        """Return it as it stands, but not passed; no example is to be pushed to it."""
        other = copy(self)
        other._shown = [math.inf, *self._shown_after()[1:]]
        return other

    def interval(self) -> tuple[float, float]:
        """Bound the mean difference D, at all times.

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
        # A bound found by bisection is rounded outwards by up to 2^-13 and might say that the bar
        # is still possible where the test has refuted it.
        lower = max(lower, bar) if self.passed_after < math.inf else lower
        upper = min(upper, bar) if self.failed_after < math.inf else upper
        return lower, min(upper, 0.0) if self.worse_after < math.inf else upper

    def _shown_after(self) -> list[float]:
        """Return after how many examples each statement was shown; take in those since the last."""
        asked, before = self.question, self._wealth.n
        if before < self.n:
            gains, losses = np.array(self.gains), np.array(self.losses)
            new = np.stack([gains, losses, losses])[:, before:]
            enough = np.array([asked.enough_to_pass, asked.enough_to_fail, asked.enough_to_fail])
            refuted = self._wealth.extend(new) >= enough[:, None]
            for statement in np.flatnonzero(refuted.any(axis=-1)).tolist():
                self._note(statement, before + int(refuted[statement].argmax()) + 1)
            if self.is_complete and _passes_at_end(gains, asked):
                self._note(0, self.n)
            if self.is_complete and _fails_at_end(losses, asked):
                self._note(1, self.n)
        return self._shown

    def _note(self, statement: int, n: int) -> None:
        self._shown[statement] = min(self._shown[statement], float(n))

    def _bound(self, known: array[float], bar: float, enough: float) -> float:
        asked, differences = self.question, np.array(known)
        # The differences that are left are at least -1 each, which bounds a mean of a fixed set for
        # certain.
        least = float((differences.sum() - (asked.n_examples - self.n)) / asked.n_examples)
        if asked.on_new:
            least = -1.0
        if self.is_complete:
            return least

        def is_rejected(mean: float) -> bool:
            wealth = AimedWealth(1, mean, bar, asked).extend(differences[None])
            return bool(wealth.max() >= enough)

        return largest_rejected(is_rejected, least, 1.0)
