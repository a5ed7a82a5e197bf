"""Bets against "the mean difference is at most b" that pay if it is larger by an expected gap.

Differences d_1, d_2, ... in [-1, 1] are drawn from N without replacement. Of the first wealth, the
share S is staked by a bet that is predicted from the past, the rest by the grid of
``betting_bounds``, which is there for whatever was not expected:

    c_t(b) = (N b - sum_{i < t} d_i) / (N - t + 1)                                        (1)
    A_t(b) = prod_{i <= t} (1 + min(l_i, 0.98 / (1 + c_i(b))) (d_i - c_i(b)))             (2)
    W_t(b) = S A_t(b) + (1 - S) K_t((1 + b) / 2)                                          (3)

If the mean is at most b, c_t(b) is at least the conditional mean of d_t, so every factor's expected
value is at most 1, whatever bet l_t >= 0 the past suggests: W_t(b) is an e-process. Its factors
fall in c_t, also where the cap holds, so W_t(b) falls in b: one sequence l_t serves all hypotheses,
and what is rejected is an interval (``betting_bounds``, (4)).

l_t is Kelly's bet for differences of +1, 0 and -1 whose mean is larger than B by a gap g:

    e_t = c_t(B) + g N / (N - t + 1)                          mean of what is left            (4)
    q_t = max((k q_0 + sum_{i < t} d_i^2) / (k + t - 1), |e_t| + k r / (k + t - 1))           (5)
    l_t = argmax_l  p_+ log(1 + l (1 - c)) + (1 - q) log(1 - l c) + p_- log(1 - l (1 + c)),
          p_+ = (q + e) / 2, p_- = (q - e) / 2, c = c_t(B)                                    (6)

Only the share q of the differences that are not 0 has to be learned. If it were |e_t|, all of them
would have one sign, and the first of the other sign would take nearly all wealth; so a small share
r of these is expected at first. Measured with N = 2,000, B = -.05, g = .05, where 10% differ and
the mean is 0: a wealth of 20 after 202 draws (median), with the grid alone after 252.

References:
    Kelly (1956), Bell System Technical Journal 35(4). Waudby-Smith and Ramdas (2024), "Estimating
    means of bounded random variables by betting", JRSS B 86(1), appendix B (predictable bets).
"""

from __future__ import annotations

import numpy as np

from bestarm_agent.stats.arrays import FloatArray, IntArray
from bestarm_agent.stats.intervals.betting_bounds import Wager, wealth_paths

_SHARE = 0.8  # S
_GUESS, _CONTRARY, _WEIGHT = 0.08, 0.01, 20.0  # q_0, r, and k in examples
_MOST = 0.98  # below 1, so that no draw takes all wealth
_TINY = 1e-9


class Aim:
    """The bet l_t, one draw after the other.

    Args:
        bar: the hypothesis B that is bet against.
        gap: by how much the mean is expected to be larger, >= 0; at 0 the grid has all wealth.
        size: number of differences in all.
    """

    __slots__ = ("_bar", "_n", "_size", "_squares", "_total", "gap")

    def __init__(self, bar: float, gap: float, size: int) -> None:
        self.gap = gap
        self._bar = bar
        self._size = size
        self._n = 0
        self._total = 0.0
        self._squares = 0.0

    def bet_on(self, difference: float) -> float:
        """Take the next difference; return the bet on it, which rests on those before it."""
        past = self._n, self._total, self._squares
        bet = float(_bets(self._bar, self.gap, self._size, *past))
        self._n += 1
        self._total += difference
        self._squares += difference * difference
        return bet


def aimed_bets(differences: FloatArray, bar: float, gap: float, size: int) -> FloatArray:
    """Return the bets of an ``Aim`` on (..., T) differences, of many populations at once."""
    n = np.arange(differences.shape[-1])
    before = np.cumsum(differences, axis=-1) - differences
    squares = np.cumsum(differences**2, axis=-1) - differences**2
    return _bets(bar, gap, size, n, before, squares)


def _bets(
    bar: float,
    gap: float,
    size: int,
    n: IntArray | int,
    total: FloatArray | float,
    squares: FloatArray | float,
) -> FloatArray:
    """Return the bets on the differences after the first n, by their sum and that of squares."""
    fair = (size * bar - total) / (size - n)  # (1)
    mean = fair + gap * size / (size - n)  # (4)
    seen, foreseen = _WEIGHT * _GUESS + squares, _WEIGHT * _CONTRARY
    share = np.maximum(seen / (_WEIGHT + n), np.abs(mean) + foreseen / (_WEIGHT + n))  # (5)
    return kelly_bet(fair, mean, share)


def kelly_bet(
    fair: FloatArray | float, mean: FloatArray | float, share: FloatArray | float
) -> FloatArray:
    """Return the bet (6), >= 0, on a difference of +1, 0 or -1.

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
    x = -win * lose * c
    y = up * win * (lose - c) + down * lose * (win - c) - same * c * (win + lose)
    ahead = np.maximum(e - c, 0.0)
    slope = np.sqrt(np.maximum(y * y - 4.0 * x * ahead, 0.0)) - y
    return np.asarray(2.0 * ahead / np.maximum(slope, _TINY))


class AimedWager:
    """The wealth (3) of one who bets against "the mean is at most ``mean``".

    Args:
        mean: the hypothesis b, in [-1, 1).
        grid: from ``bet_grid``.
        size: number of differences in all.
        is_aimed: whether there is a gap to aim at.
    """

    __slots__ = ("_aimed", "_grid", "_mean", "_share", "_size", "_total")

    def __init__(
        self, mean: float, grid: tuple[float, ...], size: int, *, is_aimed: bool = True
    ) -> None:
        self._mean = mean
        self._size = size
        self._share = _SHARE if is_aimed else 0.0
        self._grid = Wager((1.0 + mean) / 2.0, grid, size)
        self._aimed = 1.0
        self._total = 0.0

    def push(self, difference: float, bet: float) -> None:
        """Take the next difference, and the bet of the ``Aim`` on it."""
        fair = (self._size * self._mean - self._total) / (self._size - self._grid.n)  # (1)
        fair = max(fair, _TINY - 1.0)
        self._aimed *= 1.0 + min(bet, _MOST / (1.0 + fair)) * (difference - fair)  # (2)
        self._total += difference
        self._grid.push((1.0 + difference) / 2.0)

    @property
    def wealth(self) -> float:
        """The wealth now; infinite once the draws alone refute the hypothesis."""
        return self._share * self._aimed + (1.0 - self._share) * self._grid.wealth  # (3)


def aimed_paths(
    differences: FloatArray, bets: FloatArray, mean: float, grid: tuple[float, ...], size: int
) -> FloatArray:
    """Return the wealth of an ``AimedWager`` after every draw, of many populations at once.

    ``bets`` (..., T) are those on the ``differences``, from ``aimed_bets``; of an aim without a gap
    they are all 0.
    """
    by_grid = wealth_paths((1.0 + differences) / 2.0, (1.0 + mean) / 2.0, grid, size)
    if not bets.any():
        return by_grid
    left = size - np.arange(differences.shape[-1])
    before = np.cumsum(differences, axis=-1) - differences
    fair = np.maximum((size * mean - before) / left, _TINY - 1.0)  # (1)
    factors = np.minimum(bets, _MOST / (1.0 + fair)) * (differences - fair)  # (2)
    logs = np.minimum(np.cumsum(np.log1p(factors), axis=-1), 600.0)
    return np.asarray(_SHARE * np.exp(logs) + (1.0 - _SHARE) * by_grid)  # (3)
