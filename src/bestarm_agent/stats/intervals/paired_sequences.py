"""E-processes that compare rows on the examples that both have seen.

The noise that examples bring cancels in differences. Rows (candidates) take the examples in one
shared order, drawn at random before any score is seen; each has come a different length. At place t
of the order

    x_t = (1 + V_i,t - V_j,t) / 2                                                          (1)

is a draw without replacement from N values in [0, 1] of mean 1/2 + (mu_i - mu_j) / 2, whatever came
before. Let D_t be the sum of x over the places before t. If mu_i <= mu_j, its conditional mean is

    E[x_t | all rows before t] <= c_t = (N / 2 - D_t) / (N - t)                            (2)

so the wealth of bets on x_t at the odds c_t (``betting_bounds``) is an e-process.

**Which row is best** (``rejected``). H_j is "no row is better than j". The opponent i may change
from place to place: (2) holds for every i if H_j is true, as long as i is chosen before any score
of place t is known. So a leader I_t is committed when place t is first asked of any row: the one of
the highest mean among the rows that have been asked all places before. One wealth per row j,

    W_j = mean over bets of prod_t (1 + l_t (x_t(I_t, j) / c_t(I_t, j) - 1)),   1 where I_t = j

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

Unknown values enter as the least of V_i and the highest of V_j that are possible. Then D is smaller
and c larger, so each wealth is at most what it would be, and all bounds hold.

A wealth is worked out once it is looked at. Results depend on the values and the order of asking
alone, not on when or how often they are looked at. Examples may have unequal chances (``Odds``)
if these are known. An order that depends on scores breaks the guarantee.

References:
    Waudby-Smith and Ramdas (2024), JRSS B 86(1), section 5 (the wealth).
    Baharav and Tse (2019), "Ultra fast medoid identification via correlated sequential halving"
    (why common examples).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.intervals.betting_bounds import Odds, bet_grid, log_factors
from bestarm_agent.stats.intervals.common_examples import LEADERS, CommonExamples
from bestarm_agent.stats.intervals.lower_bound import LowerBound

_FINE = 2.0**-11  # precision of a bound, rounded upwards
_CHUNK = 512  # places that are worked out together
_SLACK = 1e-9  # of compared sums


class PairedSequences(CommonExamples):
    """E-processes and intervals for differences of row means on common examples.

    Args:
        n_examples: N >= 1, size of the population; all of one shared order.
        alpha: probability with which the best row may ever be rejected, in (0, 1).
        pair_alpha: the same for fixed pairs, all together; ``alpha`` if left out.
        leaders: rows that were committed for the first places, where examples were asked before.

    Example:
        >>> pairs = PairedSequences(2, 40, alpha=0.05)
        >>> for example in range(25):
        ...     pairs.push(0, example, 1.0, 1.0)
        ...     pairs.push(1, example, 0.0, 0.0)
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
    ) -> None:
        pair_alpha = alpha if pair_alpha is None else pair_alpha
        if not (0.0 < alpha < 1.0 and 0.0 < pair_alpha < 1.0):
            raise ValueError(f"alpha must be in (0, 1), got {alpha} and {pair_alpha}")
        super().__init__(n_rows, n_examples, leaders)
        self._enough = 1.0 / alpha
        self._enough_for_pairs = max(1, n_rows - 1) / pair_alpha
        self._bets = bet_grid(n_examples, alpha)
        self._pair_bets = bet_grid(n_examples, 1.0 / self._enough_for_pairs)
        self._wealth: dict[int, _Wealth] = {}  # by opponent

    def rejected(self) -> NDArray[np.bool_]:
        """Return a (K,) mask of the rows that are shown not to be the best; they stay in it."""
        return self._highest(LEADERS, self._enough) >= self._enough

    def beaten_by(self, leader: int, among: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """Return a (K,) mask of the rows ``among`` that ``leader`` is shown to beat, pair by pair.

        A row once in it stays in it. Looking at fewer rows costs less.
        """
        highest = self._highest(leader, self._enough_for_pairs, among)
        beaten: NDArray[np.bool_] = highest >= self._enough_for_pairs
        return beaten if among is None else beaten & among

    def wealth(self, better: int, worse: int) -> float:
        """Return the e-value for "``better`` beats ``worse``" on all common examples, >= 0."""
        self._highest(better, np.inf, np.arange(len(self._length)) == worse)
        return self._wealth[better].now(worse)

    def lag(self, leader: int, other: int, least: float = 0.0) -> float:
        """Bound by how much ``other`` is better than ``leader``, if it is the best of all.

        The largest over all other rows says how far ``leader`` is behind at most. The bound is in
        [``least``, 1], rounded upwards; a larger ``least`` saves work.
        """
        led = np.frombuffer(self._leaders, dtype=np.int64) == leader
        return self._bound(LEADERS, other, led, least)

    def shortfall(self, leader: int, other: int, least: float = 0.0) -> float:
        """Bound by how much ``other`` may be better than ``leader``, by that pair alone.

        All such bounds against the best row hold together, at all times, with probability at least
        1 - ``pair_alpha``. The bound is in [``least``, 1], rounded upwards.
        """
        return self._bound(leader, other, np.full(len(self._order), True), least)

    def difference(self, a: int, b: int, alpha: float) -> tuple[float, float]:
        """Bound the mean of row ``a`` minus that of ``b``, in [-1, 1], at all times at ``alpha``.

        For reports: replays the common prefix, at some microseconds per example.
        """
        return self._least_difference(a, b, alpha / 2), -self._least_difference(b, a, alpha / 2)

    def _least_difference(self, a: int, b: int, alpha: float) -> float:
        bound = LowerBound(alpha, bet_grid(self._size, alpha), self._size)
        stop = int(min(self._length[a], self._length[b]))
        values, _, (ratio, most) = self.draws(a, np.array([b]), 0, stop)
        for value, one, largest in zip(values[0].tolist(), ratio[0].tolist(), most, strict=True):
            bound.push(value, Odds(one, float(largest)))
        return 2.0 * max(bound.lower, bound.total / self._size) - 1.0

    def _highest(
        self, opponent: int, enough: float, among: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float64]:
        """(K,) highest wealth so far against an opponent, of those not decided brought up to date.

        Rows in step are worked out together.
        """
        if opponent not in self._wealth:
            bets = self._bets if opponent == LEADERS else self._pair_bets
            self._wealth[opponent] = _Wealth(len(self._length), bets)
        wealth = self._wealth[opponent]
        stop = np.minimum(self._length, self.n_known(opponent))
        due = (stop > wealth.n) & (wealth.highest < enough)
        if among is not None:
            due &= among
        if opponent != LEADERS:
            due[opponent] = False
        for row in np.flatnonzero(due).tolist():
            start, end = int(wealth.n[row]), int(stop[row])
            if start == end:  # taken along with an earlier row
                continue
            step = np.flatnonzero(due & (wealth.n == start) & (stop == end))
            for at in range(start, end, _CHUNK):
                draws = self.draws(opponent, step, at, min(end, at + _CHUNK))
                wealth.take(step, at, *draws, self._size)
        return wealth.highest

    def _bound(self, opponent: int, row: int, shifted: NDArray[np.bool_], least: float) -> float:
        """Find the least gap at the ``shifted`` places whose wealth has ever been enough."""
        is_led = opponent == LEADERS
        bets = self._bets if is_led else self._pair_bets
        enough = self._enough if is_led else self._enough_for_pairs
        stop = int(min(self._length[row], self.n_known(opponent)))
        values, drawn, odds = self.draws(opponent, np.array([row]), 0, stop)

        def excludes(gap: float) -> bool:
            mean = np.where(shifted[:stop], (1.0 - gap) / 2.0, 0.5)
            logs = log_factors(values, drawn, mean, bets, self._size, 0, odds)
            paths = np.exp(np.minimum(np.cumsum(logs, axis=-1), 600.0)).mean(axis=0)
            refuted = drawn + values > self._size * mean + _SLACK
            return bool(refuted.any() or paths.max(initial=1.0) >= enough)

        if excludes(least):
            return least
        low, high = least, 1.0
        while high - low > _FINE:
            middle = (low + high) / 2
            low, high = (low, middle) if excludes(middle) else (middle, high)
        return high


class _Wealth:
    """Worth of the bets of all rows against one opponent."""

    __slots__ = ("_bets", "_each", "highest", "n")

    def __init__(self, n_rows: int, bets: tuple[float, ...]) -> None:
        self.n = np.zeros(n_rows, dtype=np.int64)  # places counted in
        self.highest = np.zeros(n_rows)  # at any time so far
        self._bets = bets
        self._each = np.ones((len(bets), n_rows))

    def now(self, row: int) -> float:
        """Return the wealth at the last place, infinite if the draws alone refute the row."""
        return float("inf") if np.isinf(self.highest[row]) else float(self._each[:, row].mean())

    def take(
        self,
        rows: NDArray[np.int64],
        start: int,
        values: NDArray[np.float64],
        drawn: NDArray[np.float64],
        odds: tuple[NDArray[np.float64], NDArray[np.float64]],
        size: int,
    ) -> None:
        """Count (rows, places) draws from place ``start`` on, as ``log_factors`` takes them."""
        logs = np.cumsum(log_factors(values, drawn, 0.5, self._bets, size, start, odds), axis=-1)
        paths = self._each[:, rows, None] * np.exp(np.minimum(logs, 600.0))
        self._each[:, rows] = np.minimum(paths[:, :, -1], 1e250)
        refuted = drawn + values > size / 2 + _SLACK
        best = np.where(refuted, np.inf, paths.mean(axis=0)).max(axis=-1)
        self.highest[rows] = np.maximum(self.highest[rows], best)
        self.n[rows] = start + values.shape[-1]
