"""E-processes that compare rows on the examples that both have seen.

The noise that examples bring cancels in differences. Rows (candidates) take the examples in one
shared order, drawn at random before any score is seen; each has come a different length. At place t
of the order

    x_t = (1 + V_i,t - V_j,t) / 2                                                          (1)

is a draw without replacement from N values in [0, 1] of mean 1/2 + (mu_i - mu_j) / 2, whatever came
before. Let D_t be the sum of x over the places before t. If mu_i <= mu_j, its conditional mean is

    E[x_t | all rows before t] <= c_t = (N / 2 - D_t) / (N - t)                            (2)

so the wealth of bets on x_t at the odds c_t (``betting``) is an e-process.

**Which row is best** (``rejected``). H_j is "no row is better than j". The opponent i may change
from place to place: (2) holds for every i if H_j is true, as long as i is chosen before any score
of place t is known. So a leader I_t is committed when place t is first asked of any row: the one of
the highest mean among the rows that have been asked all places before. One wealth per row j,

    W_j = sum over bets of w_b prod_t (1 + l_t (x_t(I_t, j) / c_t(I_t, j) - 1)),   1 where I_t = j

is an e-process under H_j. Where rows tie for the best, each of their H_j is true, and it is enough
that one of them survives. So the best row is ever rejected at W_j >= 1 / alpha with probability at
most alpha, with no union over rows.

**How far the leader may be behind** (``lag``). For a row i and a gap d, let W_j(i, d) use
c_t = (N (1 - d) / 2 - D_t) / (N - t) at the places with I_t = i. Let j be the best row, and W* use
the true gap of every opponent: an e-process. A factor falls in c_t, so W_j(i, d) <= W* for every i
and every d up to the true gap of i. Hence "i is less than d behind, since all W_j(i, d) reached
1 / alpha" is wrong for any i, d and time with probability at most alpha in all, and so is the
rejection of the best row.

**Fixed pairs** (``beaten_by``, ``shortfall``): a beats b once the wealth of the pair (a, b), on all
that both have seen, reaches (K - 1) / alpha. The best row is beaten only if one of the K - 1 pairs
(a, best) errs. Sets need this too: if the chosen k rows beat all others and are not the best k,
then one of K - 1 pairs errs, with b and c the rows of rank k and k + 1: (c, b), (b, a better one)
or (a worse one, c). So do statements about rows that seldom lead.

**New examples** (``rejected_on_new``, ``lag_on_new``, ``difference``). If the N examples are
independent draws of some population, (1) has the conditional mean 1/2 + (mu_i - mu_j) / 2 with the
population's means, whatever came before, so the same holds with c_t = 1/2, or (1 - d) / 2 for a gap
d: statements about examples that nobody has, and wider ones, as N examples say little more about
them after the last one than before. Of several draws of one example (``draws``), which depend on
each other, only the first in the order is bet on: its mean is that of the population, whatever came
before, and the later ones tell nothing that can be counted as new.

A lead that all n independent examples can just show is z sqrt(q / n) at level a, z^2 = 2 log(1/a),
q the mean square of V_i - V_j. The Kelly bet on it is z / sqrt(q n): n is known, and q is guessed
from the places before (``kelly_stake``), which a bet may depend on as on all that came before. It
does not depend on the mean that is tested, so factors still fall in c. With a smaller share of
three times that bet, for larger leads, it finds such leads .52 of the time, where the mixture over
all sizes (Shares, below) found .41: means over n = 60 to 1,000, q = .06 to .35, and leads of 2.2
and 3 sqrt(q / n), at a = .025; where it is worst, n = 60 and q = .35, it finds .05 less.

Where examples come in clusters (one document, one user) that are independent draws, one example of
each, drawn beforehand, is bet on (``independent``). In a random order of all examples these stand
as in a random order of their clusters. Earlier examples of a cluster are no part of the wealth of
two rows, but may decide who leads, so only fixed pairs are bet on for new examples then.

Shares. Over all N, w_b = b / (sum of all b): most examples go to rows that are told apart by the
larger bets, and a small bet that is needed in the end loses log(1 / w_b) by its smaller share.

Unknown values enter as the least of V_i and the highest of V_j that are possible. Then D is smaller
and c larger, so each wealth is at most what it would be, and all bounds hold.

A wealth is worked out once it is looked at. Results depend on the values and the order of asking
alone, not on when or how often they are looked at. An order that depends on scores breaks the
guarantee.

References:
    Waudby-Smith and Ramdas (2024), JRSS B 86(1), section 5 (the wealth).
    Baharav and Tse (2019), "Ultra fast medoid identification via correlated sequential halving"
    (why common examples).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np

from bestarm_agent.stats.arrays import BoolArray, FloatArray, IntArray
from bestarm_agent.stats.betting import (
    Bets,
    Wealth,
    bet_grid,
    lower_bound,
)
from bestarm_agent.stats.common_examples import LEADERS, CommonExamples, in_step

# On new examples: Kelly's bet on a lead that all examples just show, and a larger one for leads
# that few examples show. The share of the second costs the first one log(1 / .85) of its wealth.
_ON_NEW = Bets((1.0, 3.0), (0.85, 0.15))
_FINE = 2.0**-11  # precision of a bound, rounded upwards
_CHUNK = 512  # places that are worked out together
_Draws: TypeAlias = tuple[IntArray, FloatArray, FloatArray, BoolArray]  # rows and ``draws_of`` them


class _Against(NamedTuple):
    """A hypothesis that other rows are no worse than an opponent, tested on every row."""

    opponent: int  # a row, or LEADERS
    level: float  # probability with which one wealth may ever be enough
    size: int | None  # N: about the mean of all examples; None: about that of new ones

    @property
    def enough(self) -> float:
        return 1.0 / self.level


@lru_cache(maxsize=64)
def pair_bets(horizon: int, alpha: float) -> Bets:
    """Return the bets of ``bet_grid``, with shares in proportion to their sizes."""
    sizes = bet_grid(horizon, alpha).sizes
    return Bets(sizes, tuple(size / sum(sizes) for size in sizes))


class PairedSequences(CommonExamples):
    """E-processes and intervals for differences of row means on common examples.

    Args:
        n_rows: K >= 0.
        n_examples: N >= 1, size of the population; all of one shared order.
        alpha: probability with which the best row may ever be rejected, in (0, 1).
        pair_alpha: the same for fixed pairs, all together; ``alpha`` if left out.
        leaders: rows that were committed for the first places, where examples were asked before.
        draws: columns of one example: j, j + N / draws, ... are draws of one.
        independent: the examples that are bet on for new ones; all, if empty.

    Example:
        >>> pairs = PairedSequences(2, 40, alpha=0.05)
        >>> for row in range(2):
        ...     pairs.extend(row, np.arange(25), np.full(25, 1.0 - row), np.full(25, 1.0 - row))
        >>> pairs.beaten_by(0)
        array([False,  True])
    """

    def __init__(
        self,
        n_rows: int,
        n_examples: int,
        alpha: float,
        *,
        pair_alpha: float | None = None,
        leaders: Sequence[int] = (),
        draws: int = 1,
        independent: Sequence[int] = (),
    ) -> None:
        pair_alpha = alpha if pair_alpha is None else pair_alpha
        if not (0.0 < alpha < 1.0 and 0.0 < pair_alpha < 1.0):
            raise ValueError(f"alpha must be in (0, 1), got {alpha} and {pair_alpha}")
        super().__init__(n_rows, n_examples, leaders, draws, independent)
        self._alpha, self._in_clusters = alpha, bool(independent)
        # A union bound over the K - 1 pairs with the best row, and not over all K (K - 1) / 2:
        # which row is the best is fixed, though nobody knows it, and statements about pairs without
        # it may be wrong without making a wrong choice.
        self._level_of_pairs = pair_alpha / max(1, n_rows - 1)
        self._wealth: dict[_Against, Wealth] = {}

    def rejected(self) -> BoolArray:
        """Return a (K,) mask of the rows that are shown not to be the best; they stay in it."""
        return self._rejected(self._against(LEADERS))

    def rejected_on_new(self, leader: int, alpha: float) -> BoolArray:
        """Return a (K,) mask of the rows that are shown not to be the best on new examples.

        In clusters: of those that ``leader`` is shown to beat there, pair by pair.
        """
        return self._rejected(self._on_new(leader, alpha))

    def progress_on_new(self, alpha: float, among: BoolArray) -> FloatArray:
        """(K,) logarithm of each row's wealth in ``rejected_on_new``, as a share of what is enough.

        1 where the row is shown not to be the best. Up to date for the rows ``among``.
        """
        test = _Against(LEADERS, alpha, None)
        highest = self._highest(test, among)
        now = np.log(np.maximum(self._wealth[test].now, 1.0)) / np.log(test.enough)
        return np.asarray(np.where(highest >= test.enough, 1.0, now))

    def beaten_by(self, leader: int, among: BoolArray | None = None) -> BoolArray:
        """Return a (K,) mask of the rows ``among`` that ``leader`` is shown to beat, pair by pair.

        A row once in it stays in it. Looking at fewer rows costs less.
        """
        beaten = self._rejected(self._against(leader), among)
        return beaten if among is None else beaten & among

    def lag(
        self, leader: int, others: int | IntArray, least: float = 0, most: FloatArray | float = 1
    ) -> float:
        """Bound by how much one of ``others`` is better than ``leader``, if it is the best of all.

        With all other rows it says how far ``leader`` is behind at most. The bound is in [0, 1],
        rounded upwards. With ``least`` > 0 it is only worked out whether it is above that, which is
        far less work: the result is ``least`` if not, and 1 if so. ``most``, for each of
        ``others``, is what is known of it otherwise.
        """
        return self._largest_gap(self._against(LEADERS), leader, others, least, most)

    def lag_on_new(self, leader: int, others: int | IntArray, alpha: float) -> float:
        """Bound as ``lag`` does, for new examples; holds together with ``rejected_on_new``.

        In clusters: as ``shortfall`` does.
        """
        return self._largest_gap(self._on_new(leader, alpha), leader, others, 0.0)

    def _on_new(self, leader: int, alpha: float) -> _Against:
        # Whoever leads may be known by examples of the cluster whose turn it is, so with clusters
        # candidates meet in fixed pairs.
        if self._in_clusters:
            return _Against(leader, alpha / max(1, len(self.length) - 1), None)
        return _Against(LEADERS, alpha, None)

    def shortfall(
        self, leader: int, others: int | IntArray, least: float = 0, most: FloatArray | float = 1
    ) -> float:
        """Bound by how much one of ``others`` may be better than ``leader``, by that pair alone.

        All such bounds against the best row hold together, at all times, with probability at least
        1 - ``pair_alpha``. The bound is in [0, 1], rounded upwards; the others as in ``lag``.
        """
        return self._largest_gap(self._against(leader), leader, others, least, most)

    def difference(
        self, a: int, b: int, alpha: float, *, on_new: bool = False
    ) -> tuple[float, float]:
        """Bound the mean of row ``a`` minus that of ``b``, in [-1, 1], at all times.

        Over all N examples, or over the population of which they are draws.
        """
        size = None if on_new else self.size
        lower, upper = (self._least(*two, alpha / 2, size) for two in ((a, b), (b, a)))
        return lower, -upper

    def _least(self, a: int, b: int, alpha: float, size: int | None) -> float:
        stop = int(min(self.length[a], self.length[b]))
        bets = bet_grid(self.size, alpha)
        values, _, idle = self.draws_of(a, np.array([b]), 0, stop, on_new=size is None)
        return 2.0 * lower_bound(values[0, ~idle[0]], alpha, size, bets) - 1.0

    def _against(self, opponent: int) -> _Against:
        alpha = self._alpha if opponent == LEADERS else self._level_of_pairs
        return _Against(opponent, alpha, self.size)

    def _rejected(self, test: _Against, among: BoolArray | None = None) -> BoolArray:
        return np.asarray(self._highest(test, among) >= test.enough)

    def _highest(self, test: _Against, among: BoolArray | None = None) -> FloatArray:
        """(K,) highest wealth so far, of those not decided brought up to date.

        Rows in step are worked out together.
        """
        # A hypothesis gets its wealth when somebody first looks at it. Most of the K (K - 1) pairs
        # are never looked at, and the sums of every place are there, so that a late start loses
        # nothing.
        if test not in self._wealth:
            bets, odds = self._bets(test)
            self._wealth[test] = Wealth(len(self.length), 0.5, bets, test.size, odds)
        wealth, opponent = self._wealth[test], test.opponent
        stop = np.minimum(self.length, self.n_known(opponent))
        # A row that was rejected stays rejected, so its wealth need not be followed any longer.
        is_behind = (stop > wealth.n) & (wealth.highest < test.enough)
        if among is not None:
            is_behind &= among
        if opponent != LEADERS:
            is_behind[opponent] = False
        for row in np.flatnonzero(is_behind).tolist():
            start, end = int(wealth.n[row]), int(stop[row])
            if start == end:  # taken along with an earlier row
                continue
            # Rows that go from the same place to the same place share one array operation: after a
            # round of calls that is nearly all of them. Long stretches are cut, as each place takes
            # a number for every row and every bet.
            step = np.flatnonzero(is_behind & (wealth.n == start) & (stop == end))
            for first in range(start, end, _CHUNK):
                values, drawn, idle = self.draws_of(
                    opponent, step, first, min(end, first + _CHUNK), on_new=test.size is None
                )
                wealth.extend(values, rows=step, drawn=drawn, idle=idle)
        return wealth.highest

    def _largest_gap(
        self,
        test: _Against,
        leader: int,
        others: int | IntArray,
        least: float,
        most: FloatArray | float = 1.0,
    ) -> float:
        """Find the largest gap of ``others`` to ``leader``, none above its ``most``.

        With ``least`` > 0: that, if no gap is larger, else 1.

        All are tried at the largest gap so far; the one that is furthest from being excluded there
        is worked out, which seldom leaves more than a few.
        """
        is_asked = least > 0.0  # whether a gap is larger, and not how large it is
        shifted = np.full(len(self._order), True)  # places at which a gap counts
        if test.opponent == LEADERS:
            shifted = self.places_led(leader)
        open_rows = np.atleast_1d(np.asarray(others, dtype=np.int64))
        caps = np.broadcast_to(np.asarray(most, dtype=float), open_rows.shape)
        # The wealth against a gap rises with the gap. A row for which the gap ``least`` is excluded
        # has a smaller one and leaves. Of those that stay, the least excluded is searched first: it
        # is likely to have the largest gap, which then excludes most of the others at once. Before
        # any wealth is known that is the row of the fewest values; looking at all takes longest.
        if len(open_rows) > 1:
            place = int(self.length[open_rows].argmin())
            least = self._largest_gap(
                test, leader, int(open_rows[place]), least, caps[place : place + 1]
            )
        while True:
            open_rows, caps = open_rows[caps > least], caps[caps > least]
            draws = self._draws(test, open_rows)
            wealth = self._wealth_at(test, len(open_rows), draws, shifted, least)
            stays = wealth < test.enough
            if not stays.any():
                return least
            if is_asked:
                return 1.0
            place = int(wealth.argmin())
            gap = self._gap(test, int(open_rows[place]), shifted, least)
            least, stays[place] = max(least, min(float(caps[place]), gap)), False
            open_rows, caps = open_rows[stays], caps[stays]

    def _gap(self, test: _Against, row: int, shifted: BoolArray, low: float) -> float:
        """Find the least gap of a row that is excluded, above ``low``, which is not."""
        high, draws = 1.0, [*self._draws(test, np.array([row]))]
        while high - low > _FINE:
            middle = (low + high) / 2
            is_excluded = self._wealth_at(test, 1, draws, shifted, middle)[0] >= test.enough
            low, high = (low, middle) if is_excluded else (middle, high)
        return high

    def _draws(self, test: _Against, rows: IntArray) -> Iterator[_Draws]:
        """Yield the draws of some rows, each from its first to its last; those in step together."""
        stops = np.minimum(self.length[rows], self.n_known(test.opponent))
        for part, stop in in_step(stops, len(self._bets(test)[0].sizes)):
            yield part, *self.draws_of(test.opponent, rows[part], 0, stop, on_new=test.size is None)

    def _wealth_at(
        self, test: _Against, n_rows: int, draws: Iterable[_Draws], shifted: BoolArray, gap: float
    ) -> FloatArray:
        """(n_rows,) highest wealth against a gap at the ``shifted`` places; infinite if refuted."""
        (bets, odds), highest = self._bets(test), np.ones(n_rows)
        for part, values, drawn, idle in draws:
            mean = np.where(shifted[: values.shape[1]], (1.0 - gap) / 2.0, 0.5)
            wealth = Wealth(len(part), 0.5, bets, test.size, odds)
            wealth.extend(values, drawn=drawn, idle=idle, mean=mean)
            highest[part] = wealth.highest
        return highest

    def _bets(self, test: _Against) -> tuple[Bets, float]:
        """Return the bets of a test, and the odds of ``kelly_stake``, 0 where they stand as is."""
        if test.size is not None:
            return pair_bets(self.size, test.level), 0.0
        return _ON_NEW, 2.0 * np.log(test.enough) / self.n_independent
