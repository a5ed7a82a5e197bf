"""The best of a few rows by people's scores, with a judge's scores as control variate.

People score examples in an order drawn at random, all rows that are still in it at each. H are
people's scores, G the judge's, both in [0, 1], of K rows on N examples. As in ``paired_sequences``,
a leader I is fixed before anything of place t is known, and one wealth for each other row j bets
against "j is the best of the K rows by people's scores". With d = H[I] - H[j] and
g = G[I] - G[j] at place t,

    x_t = (1 + d - r (g - m)) / 2,   m = mean of g over the N - t examples without labels       (1)

m is known before place t, and the example is uniform among the N - t, whatever came before: g - m
has the conditional mean 0, whether the judge is any good or not. So the odds of
``paired_sequences`` (2) hold for x_t as they do without the judge. The bets are those of
``betting`` between the least value that x_t can have, -r (1 - m) / 2, and the odds; each wealth is
shared among r in 0, 1/4, ... 1. A judge whose differences are those of people takes the noise of
examples away (r near 1); a bad one costs the share that was laid on r > 0, never validity.

Only the best row's hypothesis is true, and its wealth ever reaches 1 / alpha with probability at
most alpha (Ville): no union over rows. An example that was passed over enters as the worst that is
possible, H[I] = 0 and H[j] = 1, until it is scored.

Where a row was not judged on all examples without labels, m is not known: r = 0 at that place.

**New examples** (``on_new``): the N examples are independent draws, the odds stay 1/2, and r = 0,
as m over these N examples depends on those without labels. Nothing that decides may have seen an
example before its place: not the leader (by labels of the places before alone) and not the choice
of the rows, so the examples must have had no part in that.

**The leader** is the row of the highest

    M[k] = mean of G[k] + Bbar + t / (t + s[k]) (B[k] - Bbar),  B[k] = mean of H[k] - G[k]      (2)
    s[k] = (1/n - 1/N) K / (K - 1) (mean square of H[k] - G[k] less its mean over the rows)
    t = max(.0004, variance of B over the rows - mean of s)

With few labels that is the judge's order, with many people's. It only has to be a good guess. M and
t s / (t + s) are the mean and variance of a normal posterior, from which comes the chance that is
named before anything is proved. Other mixtures (one s of 1/4 for all rows, larger least t) name no
better row after 12, 24 or 48 labelled examples of 600 worlds of real scores.

References:
    ``betting`` and ``paired_sequences`` (the test); Angelopoulos et al. (2023),
    "Prediction-powered inference", Science 382 (a judge's scores as control variate).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bestarm_agent.stats.arrays import BoolArray, FloatArray, IntArray
from bestarm_agent.stats.betting import growth_factors, mean_interval
from bestarm_agent.stats.paired_sequences import pair_bets

_RELIANCE = np.array([0.0, 0.25, 0.5, 0.75, 1.0])  # r
_LEAST_SPREAD = 0.0004  # of the rows' B: the judge may be wrong by .02 about any row
_PRIOR_WEIGHT, _PRIOR_SQUARE = 10.0, 0.1  # of the mean square in s: examples, and its value
_DRAWS = 4000  # for a chance
# of the worlds in which it is foretold what a proof takes: their number, the rows' means and the
# share of answers that are right or wrong by a row's own luck
_WORLDS, _USUAL_MEAN, _USUAL_SPREAD, _USUAL_OWN = 40, 0.7, 0.05, 0.2
_FEWEST = 8  # labelled examples, before it is foretold how many more a proof may take


class LabelledRows:
    """The race of K rows by people's scores, in W worlds at once.

    Args:
        judged: (W, K, N) scores of the judge in [0, 1]; NaN where there is none.
        alpha: probability with which the best row may ever be ruled out, in (0, 1).
        on_new: whether the statement is about new examples; ``judged`` is not looked at then.
        first: (W, K) a guess of the rows' means that has seen none of the examples, for the first
            leader; by default the means of ``judged``, or equal ones ``on_new``.

    Attributes:
        n: examples that were added.
        leader: (W,) row that is committed for the next place.
        alive: (W, K) rows that are not ruled out.
        wealth: (W, K) against "this row is the best".
        means: (W, K) M in (2), of the rows that are alive.
        own_means: (W, K) means of G + B: without what the other rows say.
        variances: (W, K) of what M may be wrong by.

    Example:
        >>> judged = np.zeros((1, 2, 40))  # a judge that says nothing
        >>> race = LabelledRows(judged, alpha=0.05)
        >>> for example in range(15):
        ...     race.add([example], np.array([[0.0, 1.0]]), np.array([[0.0, 1.0]]))
        >>> race.alive
        array([[False,  True]])
    """

    def __init__(
        self,
        judged: FloatArray,
        alpha: float,
        *,
        on_new: bool = False,
        first: FloatArray | None = None,
    ) -> None:
        worlds, rows, size = judged.shape
        is_judged = ~np.isnan(judged) & (not on_new)
        self._judged = np.where(is_judged, judged, np.nan)
        self._size = size
        self._on_new = on_new
        self._enough = 1.0 / alpha
        sizes, shares = pair_bets(size, alpha)
        self._sizes = np.array(sizes)
        self._reliance = _RELIANCE[:1] if on_new else _RELIANCE
        self._shares = np.array(shares)[:, None, None, None] / len(self._reliance)
        n_judged = is_judged.sum(axis=-1)
        sums = np.where(is_judged, judged, 0.0).sum(axis=-1)
        self._mean_judged = np.where(n_judged > 0, sums / np.maximum(n_judged, 1), 0.5)
        self._left = sums  # of the judge's scores on examples without labels
        self._missing = size - n_judged  # of these, how many were not judged
        shape = (worlds, rows)
        self._low, self._high = np.zeros(shape), np.zeros(shape)  # sums of people's scores
        self._bias, self._n_known = np.zeros(shape), np.zeros(shape)  # for B
        self._squares = np.zeros(shape)  # for s
        # Every bet is made with every reliance r, each with a wealth of its own (last axes: worlds,
        # rows): a mixture over both, so nobody has to know beforehand how far the judge can be
        # relied on.
        self._each = np.ones((len(sizes), len(self._reliance), *shape))
        self.n = 0
        self.alive: BoolArray = np.ones(shape, dtype=np.bool_)
        self.wealth: FloatArray = np.ones(shape)
        self.means: FloatArray = self._mean_judged if first is None else first
        self.own_means: FloatArray = self.means
        self.variances: FloatArray = np.full(shape, _LEAST_SPREAD)
        self._worlds = np.arange(worlds)
        self.leader: IntArray = self.means.argmax(axis=1)

    def add(
        self,
        examples: IntArray | list[int],
        low: FloatArray,
        high: FloatArray,
        leader: IntArray | list[int] | None = None,
    ) -> None:
        """Take people's scores of the next example of every world, known to be in [low, high].

        Args:
            examples: (W,) the examples, each new.
            low: (W, K) least scores; 0 of an example that was passed over.
            high: (W, K) highest scores; 1 of one that was passed over. Of rows that were ruled out
                before, neither is looked at.
            leader: (W,) rows that were committed when people were asked, if they are others.
        """
        chosen = self.leader if leader is None else np.asarray(leader)
        judged = self._judged[self._worlds, :, np.asarray(examples)]
        self._bet(chosen[:, None], judged, low, high)
        self._low += low
        self._high += high
        self._left = self._left - np.nan_to_num(judged)
        self._missing = self._missing - np.isnan(judged)
        self.n += 1
        gone = self.alive & (self.wealth >= self._enough)
        # The best row reaches 1 / alpha with probability alpha at most. If all that are left reach
        # it at once, that has happened, and nobody is ruled out: somebody has to be left to name.
        several = (self.alive & ~gone).any(axis=1, keepdims=True)
        self.alive = self.alive & ~(gone & several)
        # The leader of the next place is chosen after this place was counted and before anything of
        # the next one is known: the odds hold for a leader that was chosen so, and for no other.
        self._learn(np.where(np.isnan(judged), self._mean_judged, judged), low, high)
        self.leader = np.where(self.alive, self.means, -np.inf).argmax(axis=1)

    def more(self, world: int = 0) -> int | None:
        """Foretell how many more examples rule all others out, if they are like those so far.

        None after too few of them. Half of the proofs take no more than that, half do; the number
        of all examples that are left is the most.
        """
        if self.n < _FEWEST:
            return None
        unseen = int(self._size - self.n)
        needed, leader = 0.0, int(self.leader[world])
        for row in np.flatnonzero(self.alive[world]).tolist():
            if row == leader:
                continue
            # The wealth grows like exp(rate n), by the best of the bets, which the mixture follows.
            # It looks better than it is, the more so the fewer the examples, hence the larger
            # divisor.
            rate = math.log(float(self._each[..., world, row].max())) / (self.n + _FEWEST)
            missing = math.log(self._enough / float(self.wealth[world, row]))
            needed = max(needed, missing / rate if rate > 0.0 else unseen)
        return min(unseen, math.ceil(needed))

    def _bet(self, leader: IntArray, judged: FloatArray, low: FloatArray, high: FloatArray) -> None:
        unseen = self._size - self.n

        def against(of_leader: FloatArray, own: FloatArray) -> FloatArray:
            return np.take_along_axis(of_leader, leader, axis=1) - own

        # m is known only where both rows were judged on all examples without labels. Elsewhere g is
        # not used at this place (r = 0): with a guess of m, g - m would have a mean other than 0
        # and the bet would no longer be fair.
        missing = np.take_along_axis(self._missing, leader, axis=1) + self._missing
        mean = np.where(missing == 0, against(self._left, self._left) / unseen, 0.0)  # m
        g = np.where(missing == 0, against(judged, judged), 0.0)
        r = np.where(missing == 0, self._reliance[:, None, None], 0.0)[..., None]
        values = (1.0 + against(low, high) - r[..., 0] * (g - mean)) / 2.0  # (1)
        # The sums are of the differences without the judge: his part has the conditional mean 0 at
        # every place, so it does not change what the mean of the rest must be.
        drawn = (self.n + against(self._low, self._high)) / 2.0
        least = -r[..., 0] * (1.0 - mean) / 2.0
        size = None if self._on_new else self._size
        factors = growth_factors(
            values[..., None], drawn[..., None], 0.5, self._sizes, size, self.n, least[..., None]
        )[..., 0]
        rows = np.arange(self.alive.shape[1])
        # A row does not bet against itself. Once one row is left, its wealth stands still.
        idle = ~self.alive | (rows == leader) | (self.alive.sum(axis=1, keepdims=True) == 1)
        self._each *= np.where(idle, 1.0, factors)
        self.wealth = (self._shares * self._each).sum(axis=(0, 1))
        if not self._on_new:  # it would have to be worse than the leader by more than is possible
            self.wealth[~idle & (drawn > self._size / 2.0 + 1e-9)] = math.inf

    def _learn(self, judged: FloatArray, low: FloatArray, high: FloatArray) -> None:
        def middle(values: FloatArray, of: BoolArray) -> FloatArray:
            count = np.maximum(of.sum(axis=1, keepdims=True), 1)
            return np.asarray((values * of).sum(axis=1, keepdims=True) / count)

        # An example that was passed over says nothing of how far the judge is wrong. The bias
        # common to all rows is taken off before squaring, as it does not change their order.
        known, error = (low == high) & self.alive, low - judged
        self._bias += np.where(known, error, 0.0)
        self._squares += np.where(known, (error - middle(error, known)) ** 2, 0.0)
        self._n_known += known
        n, rows = np.maximum(self._n_known, 1.0), max(2, self.alive.shape[1])
        square = self._squares + _PRIOR_WEIGHT * _PRIOR_SQUARE
        square *= rows / (rows - 1) / (self._n_known + _PRIOR_WEIGHT)
        noise = square * (1.0 / n - (0.0 if self._on_new else 1.0 / self._size))  # s
        bias = self._bias / n
        common = middle(bias, self.alive)
        # The rows' biases vary by how the judge treats the rows, and by the luck of few labels.
        # What is left of their variance without the latter says how much of a row's own bias to
        # believe: as the variance of a mean estimated from few groups, it may come out negative,
        # hence the floor.
        real = middle((bias - common) ** 2, self.alive) - middle(noise, self.alive)
        real = np.maximum(_LEAST_SPREAD, real)  # t
        self.own_means = self._mean_judged + bias
        self.means = self._mean_judged + common + real / (real + noise) * (bias - common)  # (2)
        self.variances = real * noise / (real + noise)


@dataclass(frozen=True, slots=True)
class Raced:
    """The state of the race of K rows after the labelled examples of one run."""

    n: int  # examples that have their place, those that were passed over among them
    leaders: tuple[int, ...]  # row that was committed for each place, and for the next
    ruled_out: tuple[int | None, ...]  # (K,) examples after which it was; None: it is not
    means: tuple[tuple[float, float, float], ...]  # (K,) estimate and joint interval
    chance: float  # that the leader is the best of the rows by people's scores
    more: int | None  # about so many more examples to a proof

    @property
    def leader(self) -> int:
        """The row that is the best, as far as is known."""
        return self.leaders[-1]

    @property
    def alive(self) -> tuple[int, ...]:
        """The rows that are not ruled out; one is proved to be the best."""
        return tuple(row for row, place in enumerate(self.ruled_out) if place is None)


def race(
    judged: FloatArray,
    order: Sequence[int],
    scores: Callable[[int, BoolArray], tuple[FloatArray, FloatArray] | None],
    alpha: float,
    *,
    leaders: Sequence[int] = (),
    first: FloatArray | None = None,
    on_new: bool = False,
) -> Raced:
    """Let K rows race on the examples that people scored.

    Args:
        judged: (K, N) the judge's scores; NaN where there is none.
        order: the examples, as people are asked about them.
        scores: returns the (K,) least and highest that people's scores can be at a place, given the
            rows that are still in the race; None ends it. Of other rows, nothing is looked at. NaN
            where nobody scored the same answer that all rows gave: their difference is 0.
        alpha: error probability, of the proof and of the intervals, each.
        leaders: rows that were committed for the first places, when people were asked.
        first: (K,) see ``LabelledRows``.
        on_new: whether the statement is about new examples.
    """
    rows = LabelledRows(
        judged[None], alpha, on_new=on_new, first=None if first is None else first[None]
    )
    committed: list[int] = []
    out: list[int | None] = [None] * len(judged)
    lows, highs = list[FloatArray](), list[FloatArray]()
    for place, example in enumerate(order):
        scored = scores(place, rows.alive[0])
        if scored is None:
            break
        leader = [leaders[place]] if place < len(leaders) else rows.leader.tolist()
        committed += leader
        low, high = (np.nan_to_num(end, nan=0.5)[None] for end in scored)
        rows.add([example], low, high, leader)
        lows.append(np.nan_to_num(scored[0], nan=0.0))
        highs.append(np.nan_to_num(scored[1], nan=1.0))
        for row in np.flatnonzero(~rows.alive[0]).tolist():
            out[row] = out[row] or place + 1
    committed += rows.leader.tolist()
    n, means = len(lows), []
    low, high = (np.array(ends).reshape(n, len(judged)).T for ends in (lows, highs))
    guessed = judged[:, list(order[:n])]
    for row, last in enumerate([place or n for place in out]):
        of_row = low[row, :last], high[row, :last], guessed[row, :last]
        least, most = _mean(*of_row, judged[row], alpha / len(judged))
        # M of a row that left would be drawn to those that are better
        mean = (rows.means if rows.alive[0, row] else rows.own_means)[0, row]
        # The intervals have an error probability of their own. The estimate borrows from other
        # rows, so where it lies outside, it is moved to the end of the interval.
        means.append((float(np.clip(mean, least, most)), least, most))
    chance = _chance(rows, committed[-1])
    return Raced(n, tuple(committed), tuple(out), tuple(means), chance, rows.more())


def labels_needed(n_rows: int, n_examples: int, alpha: float) -> int:
    """Return after how many labelled examples of N half of all races have one row left.

    In worlds where the rows' true means differ by about .05, scores are 0 or 1, nobody judges, and
    what is hard for one row is hard for most: 15 % of the answers of two rows differ.
    """
    random = np.random.default_rng(0)
    means = _USUAL_MEAN + _USUAL_SPREAD * random.standard_normal((_WORLDS, n_rows, 1))
    hard = random.random((_WORLDS, 1, n_examples))
    own = random.random((_WORLDS, n_rows, n_examples))
    is_own = random.random((_WORLDS, n_rows, n_examples)) < _USUAL_OWN
    scores = (np.where(is_own, own, hard) < means).astype(np.float64)
    rows = LabelledRows(np.full(scores.shape, np.nan), alpha)
    while rows.n < n_examples and (rows.alive.sum(axis=1) == 1).sum() < _WORLDS / 2:
        labelled = scores[:, :, rows.n]
        rows.add([rows.n] * _WORLDS, labelled, labelled)
    return rows.n


def _chance(rows: LabelledRows, leader: int) -> float:
    """Return the share of draws of the posterior in which the leader is the best of those left."""
    draws = np.random.default_rng(0).standard_normal((_DRAWS, rows.means.shape[1]))
    means = np.where(rows.alive[0], rows.means[0], -np.inf)
    return float(((means + draws * np.sqrt(rows.variances[0])).argmax(axis=1) == leader).mean())


def _mean(
    low: FloatArray, high: FloatArray, guessed: FloatArray, judged: FloatArray, alpha: float
) -> tuple[float, float]:
    """Bound a row's mean by people's scores, by itself and as the judge's mean corrected."""
    size = len(judged)
    low, high = np.ascontiguousarray(low), np.ascontiguousarray(high)
    if np.isnan(judged).any():
        return mean_interval(low, high, alpha, size)
    least, most = mean_interval(low, high, alpha / 2, size)
    below, above = mean_interval((1 + low - guessed) / 2, (1 + high - guessed) / 2, alpha / 2, size)
    shift = float(judged.mean()) - 1.0
    both = max(least, 2 * below + shift), min(most, 2 * above + shift)
    return both if both[0] <= both[1] else (least, most)
