"""Bets against a hypothesised mean: e-processes, and the bounds and intervals that follow.

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

The bound of 1 - x is an upper bound of the mean; each has half of an interval's alpha (union
bound). At t = N the interval is a point. The bets b are on a geometric grid, instead of one bet
predicted from the past, with shares w_b of the first wealth, whose sum is 1. N / (N - t + 1) in
(3) is the finite-population correction and keeps the stake near Kelly's while the rest of the
population becomes certain. Measured on coin flips, N = 1000, alpha = .0025, 60 % drawn: half-width
.052, against .086 with the predictable plug-in bet of the source and .047 for a normal
approximation that holds at one time only.

Shares. After few draws only distant means can be rejected, for which b = 1 is nearly the best bet;
of equal shares it has 1 / (number of bets). ``early_bets`` give it .4, the next one at least .22,
and the rest to a finer grid that begins higher. That narrows the intervals of scores by 5 to 9 % at
10 to 50 draws, and leaves them within 4 % of what they were later (widths.py, commit e83ff81).

Values known from below. For y_t <= x_t, the odds (1) use sums of y and are at least those of x, so
y_t - c_t^y <= x_t - c_t^x: (2) stays a supermartingale however y_t came about, even if it
depends on x_t, on the past, or on other rows.

Assumption: draws are uniform among what is left, whatever was seen.

References:
    Waudby-Smith and Ramdas (2024), "Estimating means of bounded random variables by betting",
    JRSS B 86(1): section 4 (capital processes), section 5 (without replacement), appendix B
    (mixtures of bets).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from bestarm_agent.stats.arrays import BoolArray, FloatArray, IntArray

# Any bets that do not depend on the draw itself keep the statements above true. So but for the cap
# and the slack, the numbers below decide only how wide an interval is.
_MAX_STAKE = 0.98  # below 1, so that no draw takes all wealth
_GRID_RATIO = 3.0  # of neighbouring bets; a bet off by its square root loses at most 15 % of width
_EARLY_RATIO = 2.0
_EARLY_SHARE = 0.4  # of the largest early bet
_NEXT_SHARE = 0.22  # of the next one, at least
_PRIOR_SQUARE = 0.15  # of differences, before any is seen: as many differ as usual
_PRIOR_N = 10.0
_TINY = 1e-9  # least odds (rounded to the safe side), and slack of compared sums
_FINE = 1 / 128  # step of a bound's grid, as a share of Hoeffding's radius
_GUESSES = 6  # tries at a bound before the range of what it can be is halved
_ALIKE = 0.8  # rows of more than this share of values, of those of the longest, are padded to it
_BLOCK = 1 << 17  # factors that are worked out at a time: about what a core's cache holds


class Bets(NamedTuple):
    """A mixture of bets."""

    sizes: tuple[float, ...]  # b, rising, in (0, 1]
    shares: tuple[float, ...]  # w_b of the first wealth, with sum 1


def bet_grid(horizon: int, alpha: float) -> Bets:
    """Return bets b of equal shares, geometric, for ``horizon`` draws at level ``alpha``.

    The smallest is half the Kelly bet of a gap that can just be seen after all draws.
    """
    return equal_shares(_geometric(0.5 * _last_bet(horizon, alpha), _GRID_RATIO))


def equal_shares(sizes: tuple[float, ...]) -> Bets:
    """Return bets that each begin with the same wealth."""
    return Bets(sizes, (1.0 / len(sizes),) * len(sizes))


def early_bets(horizon: int, alpha: float) -> Bets:
    """Return bets as ``bet_grid`` does, finer and from twice as high, the larger ones favoured.

    More is staked on the first draws: for bounds that are looked at after few of many.
    """
    sizes = _geometric(_last_bet(horizon, alpha), _EARLY_RATIO)
    rest, n_others = 1.0 - _EARLY_SHARE, len(sizes) - 2
    second = max(_NEXT_SHARE, rest / (n_others + 1))
    return Bets(sizes, (*[(rest - second) / max(1, n_others)] * n_others, second, _EARLY_SHARE))


def _last_bet(horizon: int, alpha: float) -> float:
    """Return the Kelly bet of a gap that can just be seen after all draws."""
    if horizon < 1:
        raise ValueError(f"horizon must be >= 1, got {horizon}")
    _check_level(alpha)
    return math.sqrt(2 * math.log(1 / alpha) / horizon)


def _geometric(smallest: float, ratio: float) -> tuple[float, ...]:
    smallest = min(0.5, smallest)
    steps = math.ceil(math.log(1 / smallest) / math.log(ratio))
    return tuple(smallest ** (k / steps) for k in range(steps, -1, -1))


def growth_factors(
    values: FloatArray,
    drawn: FloatArray,
    mean: float | FloatArray,
    sizes: FloatArray,
    size: int | None,
    start: int = 0,
    least: float | FloatArray = 0.0,
    stake: float | FloatArray = 1.0,
) -> FloatArray:
    """Return the (bets, ..., draws) factors in (2).

    ``values`` (..., draws) come in the order of their last axis; ``drawn`` is the sum of what was
    drawn before each, ``start`` the number before the first; ``mean`` is one, or one per draw.

    ``least`` is the least that each value can be, at most 0: below it where something of mean 0 was
    taken from a value in [0, 1] (a control variate). x and c are counted from there then, in (2)
    and in (3); ``drawn`` is the sum of what the values were without it.

    ``stake`` multiplies all bets, of each draw by what was known before it.
    """
    if size is None:
        # The odds are floored, since the factors divide by them. Higher odds make every factor
        # smaller, so the floor is on the safe side. With replacement the odds never change, and no
        # draw makes the rest of a population more certain: there is no finite-population correction
        # either.
        fair: FloatArray = np.maximum(np.broadcast_to(mean, values.shape), _TINY) - least
        scale = np.sqrt(fair)
    else:
        unseen = np.arange(size - start, size - start - values.shape[-1], -1.0)
        fair = np.maximum((size * mean - drawn) / unseen, _TINY) - least  # (1)
        scale = np.sqrt(fair) * (size / unseen)
    factors = np.multiply.outer(sizes, scale * stake)
    # The cap comes after ``stake`` has multiplied the bets. Below the cap l / c falls in c, and at
    # the cap it does so too, as l is constant there. So a factor falls in the mean that is tested
    # wherever the cap begins, and the rejected means form an interval (4).
    np.minimum(factors, _MAX_STAKE, out=factors)  # (3)
    factors *= (values - least) / fair - 1.0
    factors += 1.0
    return factors


def kelly_stake(squares: FloatArray, n: FloatArray, odds: float) -> FloatArray:
    """Return (rows, draws) stakes by how far values lay from 1/2 before each draw.

    Of a value x let y = 2 x - 1, of the mean square q. A mean of y that n draws can just show at
    level a is z sqrt(q / n), z^2 = 2 log(1 / a), and the Kelly bet on it is z / sqrt(q n): only q
    has to be guessed, by the values before, as if there had been ``_PRIOR_N`` more. A mixture that
    knows nothing of q spends most of its wealth on bets of the wrong size.

    Args:
        squares: sums of y^2 before each draw.
        n: numbers of values in them.
        odds: z^2 / n, for the draws in all.
    """
    q = (squares + _PRIOR_N * _PRIOR_SQUARE) / (n + _PRIOR_N)
    stakes: FloatArray = np.sqrt(2.0 * odds / q)  # (3) multiplies by sqrt(1/2)
    return stakes


def sums_before(values: FloatArray, first: FloatArray | float) -> FloatArray:
    """Return (rows, draws + 1) sums of the (rows, draws) values before each place, and of all.

    ``first`` (rows,) are the sums to begin with. Adds in order: alike in blocks of any size.
    """
    sums = np.empty((len(values), values.shape[1] + 1))
    sums[:, 0], sums[:, 1:] = first, values
    return np.asarray(np.add.accumulate(sums, axis=-1, out=sums))


class Wealth:
    """The wealth (2) of bets against "the mean is at most ``mean``", for many rows at once.

    An e-process for each row: under the hypothesis it ever reaches 1/alpha with probability at most
    alpha. It is infinite once the draws alone refute the hypothesis.

    Args:
        n_rows: number of rows, each with draws of its own.
        mean: the hypothesis m, in (0, 1]; one, or one per row.
        bets: the mixture.
        size: N, drawn from without replacement; None with replacement.
        odds: of ``kelly_stake``, which multiplies the bets then; 0 leaves them as they are.

    Attributes:
        n: (rows,) draws counted in.
        now: (rows,) the wealth after them.
        highest: (rows,) the highest wealth so far, at least the first one of 1.

    Example:
        >>> wealth = Wealth(1, 0.5, bet_grid(8, 0.05), size=8)
        >>> float(wealth.extend(np.ones((1, 5)))[0, -1])  # five ones of eight: more than 1/2
        inf
    """

    def __init__(
        self,
        n_rows: int,
        mean: float | FloatArray,
        bets: Bets,
        size: int | None = None,
        odds: float = 0.0,
    ) -> None:
        self.n: IntArray = np.zeros(n_rows, dtype=np.int64)
        self.now: FloatArray = np.ones(n_rows)
        self.highest: FloatArray = np.ones(n_rows)
        self._sizes, self._shares = np.array(bets.sizes), np.array(bets.shares)[:, None, None]
        self._size = size
        self._mean: FloatArray = np.full(n_rows, mean, dtype=float)
        # Every bet keeps a product of its own: the mixture is the sum of products (2), not the
        # product of the bets' mean factors. So the best of the bets carries the wealth in the end,
        # whichever it is.
        self._each: FloatArray = np.ones((len(bets.sizes), n_rows))  # of every bet
        self._total: FloatArray = np.zeros(n_rows)  # of the draws
        self._odds = odds
        self._squares: FloatArray = np.zeros(n_rows)  # of what ``kelly_stake`` heeds
        self._staked: FloatArray = np.zeros(n_rows)  # draws in them

    def extend(
        self,
        values: FloatArray,
        *,
        rows: IntArray | slice = slice(None),
        drawn: FloatArray | None = None,
        idle: BoolArray | None = None,
        control: FloatArray | None = None,
        mean: FloatArray | None = None,
    ) -> FloatArray:
        """Count in (rows, draws) values in [0, 1]; return the wealth after each of them.

        In one block or many, the result is the same. Values below the true ones are safe.

        Args:
            values: the next draws, in their order.
            rows: whose draws they are, all with as many before; by default of all rows.
            drawn: sums of what was drawn before each, if they are others than those of ``values``
                so far (a row may meet several opponents).
            idle: (rows, draws) mask of the draws on which nothing is bet.
            control: (2, rows, draws) what is taken from each value, of mean 0 whatever came before,
                and the most that it could have been (``control``).
            mean: (draws,) hypotheses m for these draws, by default the rows'.
        """
        if not values.size:
            return np.zeros(values.shape)
        if drawn is None:
            sums = sums_before(values, self._total[rows])
            drawn, self._total[rows] = sums[:, :-1], sums[:, -1]
        mean, start = self._mean[rows, None] if mean is None else mean, int(self.n[rows][0])
        stake: float | FloatArray = 1.0
        # The stakes rest on the draws before each one, also within this block: a bet may depend on
        # all that came before its draw, and on nothing that came later.
        if self._odds:
            stake = self._stake(values, rows, idle)
        taken, most = (0.0, 0.0) if control is None else control
        each = growth_factors(
            values - taken, drawn, mean, self._sizes, self._size, start, -most, stake
        )
        if idle is not None:
            np.copyto(each, 1.0, where=idle)
        # The wealth before the block goes into its first factor, and the products run on from
        # there. So the multiplications are those of single draws, in the same order, and round
        # alike in any blocks. A bet that wins for long may become infinite and one that loses 0:
        # both are what they should be.
        with np.errstate(over="ignore", under="ignore"):
            each[..., 0] *= self._each[:, rows]
            np.multiply.accumulate(each, axis=-1, out=each)
            path: FloatArray = (self._shares * each).sum(axis=0)  # adds alike in blocks of any size
        # Values are at least 0. Once the draws alone add up to more than N m, no values that are
        # left can make the mean m: the hypothesis is refuted for certain, however small the wealth
        # is.
        if self._size is not None:
            path[drawn + values > self._size * mean + _TINY] = math.inf
        self._each[:, rows] = each[..., -1]
        self.n[rows] += values.shape[-1]
        self.now[rows] = path[:, -1]
        self.highest[rows] = np.maximum(self.highest[rows], path.max(axis=-1))
        return path

    def _stake(
        self, values: FloatArray, rows: IntArray | slice, idle: BoolArray | None
    ) -> FloatArray:
        """Return the stakes of the next draws, and count these in."""
        counted = np.ones(values.shape) if idle is None else (~idle).astype(float)
        squares = sums_before(counted * (2.0 * values - 1.0) ** 2, self._squares[rows])
        n = sums_before(counted, self._staked[rows])
        self._squares[rows], self._staked[rows] = squares[:, -1], n[:, -1]
        return kelly_stake(squares[:, :-1], n[:, :-1], self._odds)


class LowerBound:
    """The bound (4) of one mean, given more and more values.

    It is rounded down to a multiple of a power of 1/2, at most 1/128 of the radius that Hoeffding's
    inequality gives for so many values. So it depends on the values alone, not on the blocks in
    which they came: since K_t(m) falls in m, the next multiple that is not rejected yet is watched,
    and the values are replayed only when that one is rejected, too, or when the grid gets finer.

    Args:
        alpha: probability with which the bound may ever exceed the mean, in (0, 1).
        bets: from ``bet_grid`` or ``early_bets``.
        size: N, drawn from without replacement; None with replacement.

    Attributes:
        lower: the bound; starts at 0 and never falls. Without replacement, at least the sum of the
            values over N, less the rounding.
        total: sum of the values so far.
        draws: these values, in order; not to be changed.
    """

    def __init__(self, alpha: float, bets: Bets, size: int | None = None) -> None:
        self.lower = 0.0
        self.total = 0.0
        self._alpha = alpha
        self._bets = bets
        self._size = size
        self.draws = array("d")
        self._controls: FloatArray | None = None  # (2, draws), once there are any
        self._watched: tuple[float, Wealth] | None = None  # the next multiple, and the bets on it

    def extend(self, values: FloatArray, control: FloatArray | None = None) -> None:
        """Take the next values, in [0, 1]; ``control`` (2, n) as in ``Wealth``, always or never."""
        if not len(values):
            return
        self.append(values)
        if control is not None:
            before = control[:, :0] if self._controls is None else self._controls
            self._controls = np.append(before, control, axis=1)
        every = None if self._controls is None else self._controls[:, None]
        news = None if control is None else control[:, None]
        step = _step(len(self.draws), self._alpha, self._size)
        if len(values) == len(self.draws):
            self._advance(step, 0, math.inf)
            return
        # The usual case is the last one: the watched multiple takes the new values and is not
        # rejected, so that a call costs one multiplication a draw. On a finer grid the next
        # multiple is another one, and its wealth starts from the first draw.
        number = math.floor(self.lower / step) + 1
        if self._watched is None or self._watched[0] != number * step:
            wealth = Wealth(1, number * step, self._bets, self._size)
            wealth.extend(np.array(self.draws)[None], control=every)
            self._watched = number * step, wealth
        else:
            self._watched[1].extend(values[None], control=news)
        highest = float(self._watched[1].highest[0])
        if highest * self._alpha >= 1.0:
            self._advance(step, number, math.sqrt(math.log(highest)))

    def _advance(self, step: float, low: int, above: float) -> None:
        """Move to the largest multiple of ``step`` that is rejected, of which ``low`` is one."""
        test = self._alpha, self._bets, self._size
        draws, n, steps = np.array(self.draws), np.array([len(self.draws)]), np.array([step])
        [multiple], wealth = _largest_multiple(
            draws[None], n, steps, test, np.array([low]), np.array([above]), self._controls
        )
        self.lower = float(multiple) * step
        self._watched = None if wealth is None else ((multiple + 1) * step, wealth)

    def append(self, values: FloatArray) -> None:
        """Take the next values, and leave the bound as it is: where they are the last of all."""
        self.total = float(np.cumsum([self.total, *values])[-1])  # in order, whatever the blocks
        self.draws.extend(values.tolist())


def _step(n: int, alpha: float, size: int | None) -> float:
    """Return the step of a bound's grid after ``n`` values."""
    # A power of two: every multiple of a coarser step is one of the finer step, too, so the bound
    # stays on the grid when the step falls, and never has to be rounded again.
    unseen = 1.0 if size is None else (size - n + 1) / size
    radius = math.sqrt(math.log(1.0 / alpha) / 2.0 * unseen / n)
    return min(0.25, 2.0 ** math.floor(math.log2(_FINE * radius)))


def _largest_multiple(
    values: FloatArray,
    n: IntArray,
    step: FloatArray,
    test: tuple[float, Bets, int | None],
    low: IntArray,
    above: FloatArray,
    control: FloatArray | None = None,
) -> tuple[IntArray, Wealth | None]:
    """Return (k,) the largest multiples of ``step`` (k,) whose means are rejected.

    With them, of a single row, the bets on the next multiple, if it was looked at.

    The root of the logarithm of the highest wealth about falls in proportion to the distance of a
    mean to that of the values, which tells where to look.

    Args:
        values: (k, most) values of each row, the first ``n`` (k,), and zeros.
        n: numbers of values, at least 1.
        step: the grids'.
        test: the level, the bets, and the size of the population.
        low: (k,) multiples that are rejected, as 0 is.
        above: (k,) the roots there, or below; infinite where unknown.
        control: (2, most) of a single row.
    """
    alpha, bets, size = test
    enough, low, above = math.sqrt(-math.log(alpha)), low.copy(), above.copy()
    high, below = np.rint(1.0 / step).astype(np.int64), np.zeros(len(low))  # 1 is never rejected
    total = values.sum(axis=1)
    mean, zero = total / n, total / n / step
    if size is not None:  # what the sum of the values alone refutes need not be tried
        low = np.maximum(low, np.floor((total - 2.0 * _TINY) / (size * step)).astype(np.int64))
    idle = np.arange(values.shape[1]) >= n[:, None] if n.min() < values.shape[1] else None
    n_tries, watched = 0, None
    while len(rows := np.flatnonzero(high - low > 1)):
        n_tries += 1
        root_low, root_high, least, most = above[rows], below[rows], low[rows], high[rows]
        # Until a try above the bound has won anything, the root is taken to reach 0 at the mean of
        # the values: nothing is to be won by betting against what was seen. The values may have
        # risen or fallen so far that this mean is no longer in question.
        is_told = (root_high > 0.0) | (zero[rows] <= least + 1) | (zero[rows] >= most)
        end = np.where(is_told, most, zero[rows])
        guess = middle = (least + end) / 2.0
        if np.isfinite(root_low).all():
            guess = least + (root_low - enough) / (root_low - root_high) * (end - least)
        elif n_tries == 1:  # the normal approximation, with the variance of scores of 0 or 1
            spread = np.maximum(mean * (1.0 - mean), 1.0 / n)[rows]
            unseen = 1.0 if size is None else 1.0 - n[rows] / size
            guess = zero[rows] - enough * np.sqrt(2.0 * unseen * spread / n[rows]) / step[rows]
        else:
            with np.errstate(divide="ignore", invalid="ignore"):
                guess = least + (root_low - enough) / (root_low - root_high) * (end - least)
                through_zero = zero[rows] - (zero[rows] - most) * enough / root_high
            through_zero = np.where((root_high > 0.0) & (zero[rows] > most), through_zero, middle)
            guess = np.where(np.isfinite(root_low), guess, through_zero)
        # The range halves at times, even where the guesses creep along from one end.
        guess = guess if n_tries < _GUESSES or n_tries % 3 else middle
        tried = np.minimum(np.maximum(np.floor(guess), least + 1), most - 1).astype(np.int64)
        wealth = Wealth(len(rows), tried * step[rows], bets, size)
        wealth.extend(
            values[rows],
            idle=None if idle is None else idle[rows],
            control=None if control is None else control[:, None],
        )
        root, rejected = np.sqrt(np.log(wealth.highest)), wealth.highest * alpha >= 1.0
        low[rows[rejected]], above[rows[rejected]] = tried[rejected], root[rejected]
        watched = watched if rejected.any() else wealth
        high[rows[~rejected]], below[rows[~rejected]] = tried[~rejected], root[~rejected]
    return low, watched


def lower_bounds(
    rows: Sequence[FloatArray], alpha: float, size: int | None, bets: Bets
) -> FloatArray:
    """Return (k,) the ``lower_bound`` of each of k rows of values.

    Rows of about as many values are worked out together, the shorter ones padded.
    """
    _check_level(alpha)
    bounds, lengths = np.zeros(len(rows)), np.array([len(row) for row in rows], dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
    while len(order):
        most = int(lengths[order[0]])
        n_alike = np.count_nonzero(lengths[order] > _ALIKE * most)
        part = order[: min(n_alike, max(1, _BLOCK // (most * len(bets.sizes))))]
        values, n = np.zeros((len(part), most)), lengths[part]
        for k, row in enumerate(part.tolist()):
            values[k, : lengths[row]] = rows[row]
        step = np.array([_step(of_row, alpha, size) for of_row in n.tolist()])
        none = np.zeros(len(part), dtype=np.int64)
        rejected, _ = _largest_multiple(
            values, n, step, (alpha, bets, size), none, np.full(len(part), np.inf)
        )
        bounds[part] = rejected * step
        if size is not None:
            bounds[part] = np.maximum(bounds[part], sums_before(values, 0.0)[:, -1] / size)
        order = order[len(part) :]
    return bounds


def lower_bound(values: FloatArray, alpha: float, size: int | None, bets: Bets) -> float:
    """Return the ``LowerBound`` of values that are all there, and what is certain if it is more.

    Example:
        >>> lower_bound(np.ones(20), 0.05, 100, bet_grid(100, 0.05)) > 0.8
        True
    """
    return float(lower_bounds([np.asarray(values, dtype=float)], alpha, size, bets)[0])


def largest_rejected(is_rejected: Callable[[float], bool], low: float, high: float) -> float:
    """Return the largest mean between ``low`` and ``high`` that is rejected, rounded down by 2^-13.

    All below one that is rejected must be, too.
    """
    # Stopping at the lower end rounds to the safe side: ``low`` was rejected, or is where the
    # search began, and everything below a rejected mean is rejected.
    while high - low > 2.0**-13:
        middle = (low + high) / 2.0
        if is_rejected(middle):
            low = middle
        else:
            high = middle
    return low


class MeanInterval:
    """The two-sided confidence sequence of the mean of N values in [0, 1], of which some are seen.

    With probability at least 1 - ``alpha`` the mean lies in [lower, upper] at every time, so the
    number of values seen may depend on anything. Both ends are cut to what is certain, as unseen
    values lie in [0, 1]: (sum of the values seen) / N, and that plus (number unseen) / N. They do
    not depend on the blocks in which values came. Once all values are in, both are the mean, if all
    could be measured. Before that they only move inwards, unless the bounds of the two sides
    contradict each other (probability at most ``alpha``): then they say what is certain, no more.

    Args:
        size: N >= 1.
        alpha: error probability, in (0, 1).
        bets: of either side; by default ``early_bets``.

    Example:
        >>> interval = MeanInterval(3, 0.05)
        >>> interval.extend(np.array([1.0, 0.0, 0.5]), np.array([1.0, 1.0, 0.5]))
        >>> interval.lower, interval.upper
        (0.5, 0.8333333333333334)
    """

    def __init__(self, size: int, alpha: float, bets: Bets | None = None) -> None:
        if size < 1:
            raise ValueError(f"size must be >= 1, got {size}")
        _check_level(alpha)
        self.lower, self.upper = 0.0, 1.0
        self._size = size
        bets = bets or early_bets(size, alpha / 2)
        self._below = LowerBound(alpha / 2, bets, size)  # of x
        self._above = LowerBound(alpha / 2, bets, size)  # of 1 - x
        # Without this, two sums that round apart would make a range of a mean that is known.
        self._is_known = True  # whether no value so far is a range only

    @property
    def n(self) -> int:
        """Return the number of values seen."""
        return len(self._below.draws)

    def extend(self, low: FloatArray, high: FloatArray, control: FloatArray | None = None) -> None:
        """Take the next values, known to lie in [low, high].

        Args:
            low: (n,) lower ends.
            high: (n,) upper ends; larger than ``low`` where a value could not be measured.
            control: (3, n) what is taken from each value, of mean 0 whatever came before, and the
                least and the most that it could have been (``control``); always or never.

        Raises:
            ValueError: a range is not within [0, 1], or there are more values than N.
        """
        check_ranges(low, high)
        if self.n + len(low) > self._size:
            raise ValueError(f"there are {self._size} values in all, got {self.n + len(low)}")
        is_last = self.n + len(low) == self._size  # then the mean is known, and no bet is needed
        # What is taken from a value is added to 1 less the value: the other side sees it mirrored.
        of_below = None if control is None else control[[0, 2]]
        of_above = None if control is None else -control[[0, 1]]
        sides = (self._below, low, of_below), (self._above, 1.0 - high, of_above)
        for bound, values, of_values in sides:
            if is_last:
                bound.append(values)
            else:
                bound.extend(values, of_values)
        self._is_known = self._is_known and bool((low == high).all())
        # What is certain needs no alpha: unseen values are at least 0, and at most 1.
        least, most = self._below.total / self._size, 1.0 - self._above.total / self._size
        if self.n == self._size:
            self.lower, self.upper = _in_full(self._below.draws, self._above.draws, self._is_known)
            return
        lower, upper = max(self._below.lower, least), min(1.0 - self._above.lower, most)
        if lower > upper:  # from then on: both bounds only grow
            lower, upper = least, most
        self.lower, self.upper = lower, upper


def _in_full(low: array[float], gaps: array[float], is_known: bool) -> tuple[float, float]:
    """Return the ends of the mean of values that are all seen, at least ``low``, ``gaps`` below 1.

    ``is_known``: each is known, and not a range only.
    """
    least = math.fsum(low) / len(low)  # fsum makes rows of equal values tie in any order
    return least, least if is_known else max(least, 1.0 - math.fsum(gaps) / len(low))


class MeanIntervals:
    """Intervals of the means of K rows of N values, jointly valid at every time (union bound).

    Args:
        alpha: joint error probability, in (0, 1); None leaves every interval at [0, 1], at no cost.

    Attributes:
        lower, upper: (K,) ends of the intervals, in [0, 1]; not to be written.
        length: (K,) values seen.
    """

    def __init__(self, n_rows: int, size: int, alpha: float | None) -> None:
        self._size = size
        self._alpha = None if alpha is None else alpha / max(1, n_rows)
        self._rows: dict[int, MeanInterval] = {}  # most of many are never used
        # values of rows that got all of theirs at once: most of a stored run get no more
        self._once: dict[int, tuple[FloatArray, FloatArray]] = {}
        self.lower, self.upper = np.zeros(n_rows), np.ones(n_rows)
        self.length: IntArray = np.zeros(n_rows, dtype=np.int64)

    def extend(
        self, row: int, low: FloatArray, high: FloatArray, control: FloatArray | None = None
    ) -> None:
        """Take a row's next values, known to lie in [low, high]; see ``MeanInterval``."""
        self.length[row] += len(low)
        if self._alpha is None or not len(low):
            return
        if row not in self._rows:
            self._rows[row] = MeanInterval(self._size, self._alpha)
            before = self._once.pop(row, (low[:0], high[:0]))
            low, high = np.append(before[0], low), np.append(before[1], high)
        self._rows[row].extend(low, high, control)
        self.lower[row], self.upper[row] = self._rows[row].lower, self._rows[row].upper

    def extend_all(self, news: Iterable[tuple[int, FloatArray, FloatArray]]) -> None:
        """Take the next values of some rows, each named once, as ``extend`` would one by one.

        Rows that had none before are worked out together.
        """
        fresh: list[tuple[int, FloatArray, FloatArray]] = []
        for row, low, high in news:
            if self._alpha is None or self.length[row] or not 0 < len(low) < self._size:
                self.extend(row, low, high)
            else:
                check_ranges(low, high)
                fresh.append((row, low, high))
        if not fresh or self._alpha is None:
            return
        rows, lows, highs = zip(*fresh, strict=True)
        gaps, alpha = [1.0 - high for high in highs], self._alpha / 2
        bets = early_bets(self._size, alpha)
        lower, upper = (lower_bounds(side, alpha, self._size, bets) for side in (lows, gaps))
        upper = 1.0 - upper
        for k in np.flatnonzero(lower > upper).tolist():  # as in ``MeanInterval``
            lower[k] = np.cumsum(lows[k])[-1] / self._size
            upper[k] = 1.0 - np.cumsum(gaps[k])[-1] / self._size
        own = list(rows)
        self.lower[own], self.upper[own] = lower, upper
        self.length[own] = list(map(len, lows))
        self._once.update((row, (low, high)) for row, low, high in fresh)


def check_ranges(low: FloatArray, high: FloatArray) -> None:
    """Raise ValueError unless 0 <= low <= high <= 1 everywhere."""
    bad = ~((low >= 0.0) & (low <= high) & (high <= 1.0))  # NaN fails this too
    if bad.any():
        raise ValueError(
            f"0 <= low <= high <= 1 must hold, got low={low[bad][0]}, high={high[bad][0]}"
        )


def mean_interval(
    low: FloatArray, high: FloatArray, alpha: float, size: int
) -> tuple[float, float]:
    """Bound the mean of ``size`` values, of which the first are known as ranges [low, high].

    By the bets of ``bet_grid``. Results are kept: a standing is built again and again from scores
    that stay.
    """
    return _mean_interval(low.tobytes(), high.tobytes(), alpha, size)


@lru_cache(maxsize=4096)
def _mean_interval(low: bytes, high: bytes, alpha: float, size: int) -> tuple[float, float]:
    interval = MeanInterval(size, alpha, bet_grid(size, alpha / 2))
    interval.extend(np.frombuffer(low), np.frombuffer(high))
    return interval.lower, interval.upper


def bounds_on_new(
    low: FloatArray, high: FloatArray, alpha: float, bets: Bets
) -> tuple[float, float]:
    """Bound the mean of what values in [0, 1] are independent draws of, each known as a range.

    At all times. ``bets`` are for an end at alpha / 2.
    """
    below, above = lower_bounds([low, 1.0 - high], alpha / 2, None, bets).tolist()
    return below, 1.0 - above


def _check_level(alpha: float) -> None:
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha must be in (0, 1), got {alpha}")
