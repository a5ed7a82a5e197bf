"""Bets against a hypothesised mean: e-processes, from which ``lower_bound`` derives bounds.

Values x_1, x_2, ... in [0, 1] are drawn from N without replacement (or independently). To test "the
mean is at most m", start with wealth 1 and stake a part of it on every draw, at odds that are fair
if the mean is m:

    c_t(m) = (N m - sum_{i < t} x_i) / (N - t + 1)       (m, with replacement)            (1)
    K_t(m) = sum over bets b of w_b prod_{i <= t} (1 + l_i (x_i / c_i(m) - 1))             (2)
    l_t = min(b sqrt(c_t(m)) N / (N - t + 1), 0.98)                                        (3)

If the mean is mu, draw t has the conditional mean c_t(mu), given all before it. c_t and so every
factor's expected value is at most 1 for m >= mu: K_t(m) is a nonnegative supermartingale, which
ever reaches 1/alpha with probability at most alpha (Ville's inequality). By (3), l_t / c_t and
- l_t fall in c_t, which rises in m: K_t(m) falls in m, the m rejected so far form an interval
[0, L_t), and L_t is a lower bound of the mean at all times at once:

    P(mu < L_t for some t) <= alpha,  L_t = sup {m: K_i(m) >= 1/alpha for some i <= t}     (4)

At t = N the interval is a point. The bets b are on a geometric grid, instead of one bet predicted
from the past, with shares w_b of the first wealth, whose sum is 1. N / (N - t + 1) in (3) is the
finite-population correction and keeps the stake near Kelly's while the rest of the population
becomes certain. Measured on coin flips, N = 1000, alpha = .0025, 60 % drawn: half-width .052,
against .086 with the predictable plug-in bet of the source and .047 for a normal approximation that
holds at one time only.

Shares. After few draws only distant means can be rejected, for which b = 1 is nearly the best bet;
of equal shares it has 1 / (number of bets). ``early_bets`` give it .4, the next one at least .22,
and the rest to a finer grid that begins higher. That narrows the intervals of scores by 5 to 9 % at
10 to 50 draws, and leaves them within 4 % of what they were later (measured by
``benchmarks/stopping/widths.py`` of commit e83ff81).

Unequal chances. If draw J is made with chance p_J among n that are left, then with r = 1 / (n p_J)

    E[r (x_J - c)] = c_t - c for every c,  so E[1 + l r (x_J / c_t - 1)] = 1               (5)

(inverse-probability weighting around c_t). The factor must stay positive for all that might have
been drawn: l r < 1 caps the stake, and the factor still falls in c_t.

Values known from below. For y_t <= x_t, the odds (1) use sums of y and are at least those of x, so
y_t - c_t^y <= x_t - c_t^x: (2) stays a supermartingale however y_t came about, even if it
depends on x_t, on the past, or on other rows.

Assumption: draws are uniform (or of the given chances) among what is left, whatever was seen.

References:
    Waudby-Smith and Ramdas (2024), "Estimating means of bounded random variables by betting",
    JRSS B 86(1): section 4 (capital processes), section 5 (without replacement), appendix B
    (mixtures of bets).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_MAX_STAKE = 0.98  # below 1, so that no draw takes all wealth
_GRID_RATIO = 3.0  # of neighbouring bets; a bet off by its square root loses at most 15 % of width
_EARLY_RATIO = 2.0
_EARLY_SHARE = 0.4  # of the largest early bet
_NEXT_SHARE = 0.22  # of the next one, at least
_TINY = 1e-9  # least odds (rounded to the safe side), and slack of compared sums


class Odds(NamedTuple):
    """Chances of a draw among the n values left."""

    ratio: float  # r = 1 / (n p) for the chance p of what was drawn, > 0; 1 where chances are equal
    most: float  # the largest ratio that might have come out


EVEN = Odds(1.0, 1.0)


def bet_grid(horizon: int, alpha: float) -> tuple[float, ...]:
    """Return bets b in (0, 1], geometric and rising, for ``horizon`` draws at level ``alpha``.

    The smallest is half the Kelly bet of a gap that can just be seen after all draws.
    """
    return _geometric(0.5 * _last_bet(horizon, alpha), _GRID_RATIO)


def early_bets(horizon: int, alpha: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return bets as ``bet_grid`` does, finer and from twice as high, and their shares.

    More is staked on the first draws: for bounds that are looked at after few of many.
    """
    bets = _geometric(_last_bet(horizon, alpha), _EARLY_RATIO)
    rest, n_others = 1.0 - _EARLY_SHARE, len(bets) - 2
    second = max(_NEXT_SHARE, rest / (n_others + 1))
    return bets, (*[(rest - second) / max(1, n_others)] * n_others, second, _EARLY_SHARE)


def _last_bet(horizon: int, alpha: float) -> float:
    """Return the Kelly bet of a gap that can just be seen after all draws."""
    if horizon < 1:
        raise ValueError(f"horizon must be >= 1, got {horizon}")
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha must be in (0, 1), got {alpha}")
    return math.sqrt(2 * math.log(1 / alpha) / horizon)


def _geometric(smallest: float, ratio: float) -> tuple[float, ...]:
    smallest = min(0.5, smallest)
    steps = math.ceil(math.log(1 / smallest) / math.log(ratio))
    return tuple(smallest ** (k / steps) for k in range(steps, -1, -1))


class Wager:
    """The wealth (2) of a mixture of bets against "the mean is at most ``mean``".

    An e-process: under the hypothesis it ever reaches 1/alpha with probability at most alpha.
    ``wealth`` starts at 1, and is infinite once the draws alone refute the hypothesis.

    Args:
        mean: the hypothesis, in (0, 1].
        bets: from ``bet_grid``.
        size: population drawn from without replacement; None with replacement.
        shares: of the first wealth, one per bet, with sum 1; None: all alike.

    Example:
        >>> wager = Wager(0.5, bet_grid(8, 0.05), size=8)
        >>> for _ in range(5):
        ...     wager.push(1.0)
        >>> wager.wealth  # five ones among eight values refute a mean of at most 1/2
        inf
    """

    __slots__ = ("_bets", "_mean", "_size", "_wealths", "n", "total", "wealth")

    def __init__(
        self,
        mean: float,
        bets: tuple[float, ...],
        size: int | None = None,
        shares: tuple[float, ...] | None = None,
    ) -> None:
        self.n = 0
        self.total = 0.0
        self.wealth = 1.0
        self._mean = mean
        self._bets = bets
        self._size = size
        self._wealths = [len(bets) * share for share in shares] if shares else [1.0] * len(bets)

    def push(self, value: float, odds: Odds = EVEN) -> None:
        """Take the next draw, in [0, 1]; a value below the true one is safe."""
        if self._size is None:
            fair, growth = self._mean, 1.0
        else:
            left = self._size - self.n
            fair = max((self._size * self._mean - self.total) / left, _TINY)  # (1)
            growth = self._size / left
        self.n += 1
        self.total += value
        scale, gain = math.sqrt(fair) * growth, odds.ratio * (value / fair - 1.0)
        most = _MAX_STAKE / odds.most  # (3), (5)
        self._wealths = [
            wealth * (1.0 + min(bet * scale, most) * gain)  # (2)
            for bet, wealth in zip(self._bets, self._wealths, strict=True)
        ]
        self._settle()

    def extend(self, values: NDArray[np.float64], odds: NDArray[np.float64] | None = None) -> None:
        """Take several draws in order: the same as pushing each, and faster.

        ``odds`` (n, 2) are those of the draws, as in ``Odds``; None where all are even.
        """
        ratio, most = (1.0, 1.0) if odds is None else odds.T
        drawn = self.total + np.cumsum(values) - values
        factors = log_factors(
            values, drawn, self._mean, self._bets, self._size, self.n, (ratio, most)
        )
        self.n += len(values)
        self.total += float(values.sum())
        self._wealths = [
            wealth * math.exp(min(log, 600.0))
            for wealth, log in zip(self._wealths, factors.sum(axis=1).tolist(), strict=True)
        ]
        self._settle()

    def _settle(self) -> None:
        self.wealth = sum(self._wealths) / len(self._bets)
        if self._size is not None and self.total > self._size * self._mean + _TINY:
            self.wealth = math.inf


def wealth_paths(
    values: NDArray[np.float64], mean: float, bets: tuple[float, ...], size: int
) -> NDArray[np.float64]:
    """Return the wealth of a ``Wager`` after every draw, of many populations at once.

    Args:
        values: (..., T) draws in [0, 1], the last axis in their order; T <= ``size``.
        mean: the hypothesis.
        bets: from ``bet_grid``.
        size: population drawn from without replacement.
    """
    total = np.cumsum(values, axis=-1)
    logs = np.cumsum(log_factors(values, total - values, mean, bets, size), axis=-1)
    wealth = np.exp(np.minimum(logs, 600.0)).mean(axis=0)
    refuted = total > size * mean + _TINY
    return np.asarray(np.where(refuted, math.inf, wealth))


def log_factors(
    values: NDArray[np.float64],
    drawn: NDArray[np.float64],
    mean: float | NDArray[np.float64],
    bets: tuple[float, ...],
    size: int | None,
    start: int = 0,
    odds: tuple[float | NDArray[np.float64], float | NDArray[np.float64]] = EVEN,
) -> NDArray[np.float64]:
    """Return the (bets, ..., draws) logarithms of the factors in (2).

    ``values`` (..., draws) come in the order of their last axis; ``drawn`` is the sum of what was
    drawn before each, ``start`` the number before the first; ``mean`` is one, or one per draw. Of
    the ``odds`` a ratio of 0 bets nothing.
    """
    n = values.shape[-1]
    if size is None:
        fair, growth = np.broadcast_to(mean, n), np.ones(n)
    else:
        left = np.arange(size - start, size - start - n, -1.0)
        fair = np.maximum((size * mean - drawn) / left, _TINY)  # (1)
        growth = size / left
    ratio, most = odds
    stakes = np.multiply.outer(bets, np.sqrt(fair) * growth)
    stakes = np.minimum(stakes, _MAX_STAKE / most)  # (3), (5)
    return np.asarray(np.log1p(stakes * (ratio * (values / fair - 1.0))))
