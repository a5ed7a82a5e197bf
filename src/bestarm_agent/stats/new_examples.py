"""Reach of N examples: what they can tell apart, and how likely a lead is to last.

Two candidates are compared by the differences of their scores on common examples. With q the mean
square of these differences (the share of the examples on which exactly one of the two is right,
where scores are 0 or 1), the mean of n differences has a standard error of sqrt(q / n). The test
that may be looked at all the time (``PairedSequences.rejected_on_new``) rejects at level a from a
lead of about sqrt(2 log(1/a)) standard errors on, so it finds a difference with probability .8 if
that is

    r = c sqrt(q / N),   c = sqrt(2 log(1/a)) + .84                                         (1)

Measured for K = 2, a = .025 and q = .15: a lead of 3.1 sqrt(q / N) of N = 100 and of 3.3 of N =
1,000 is shown with probability .8; (1) says 3.56, which is on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Self

import numpy as np

from bestarm_agent.stats.arrays import BoolArray, FloatArray, IntArray

USUAL_DIFFERING = 0.15  # share of differing answers that is taken for granted before any is seen
# Of the error probability; the rest is for the intervals of leads. With one best candidate the
# whole of it would do, as its hypothesis alone is true. Of two that are exactly equal and the best,
# both are true, and either may be shown to be ahead: twice the level. Measured at .05, one of two
# was shown in up to 7 % of 8,000 runs; at half of it in up to 3.5 %.
SHARE_OF_TEST = 0.5
OF_WINNER = 0.8  # of what is left of the error probability, for each winner that is confirmed
FEWEST_EXAMPLES = 30  # to choose by
_PRIOR_WEIGHT = 10  # of that share, in examples
_MANY = 10**9  # examples of a mean that is known
_POWER = 0.8416  # normal quantile of the probability .8
# Standard deviation of differences between good candidates, for shrinkage: the usual one, and the
# most. In 192 studies drawn from shared matrices, "probably at most so much worse" (9 in 10) held
# in 93 % by this one alone, and by the candidates' own in 89 % with bounds .72 as wide.
_SPREAD = 0.1
_LEAST_SPREAD = 0.05  # counts as what one more candidate would show
_ENOUGH, _FEWEST_RIVALS = 10, 3  # scores of a candidate, and such candidates, that show a spread
_WIDE = 0.3  # of those between a good candidate and any other
_LIKELY_ENOUGH = 0.8  # probability of what is forecast
_MOST_TIMES = 20  # so many times the examples seen are forecast at most
_LUCKS = 64  # equally likely ones that stand for all
_SURE = 1.96  # standard errors that a lead may be wrong by


@dataclass(frozen=True, slots=True)
class Lead:
    """The difference of two candidates on the examples that both have seen."""

    mean: float  # of the one's score minus the other's, in [-1, 1]; 0 without an example
    n: int  # common examples
    differing: float  # q, with the usual share as so many examples more

    @property
    def chance(self) -> float:
        """Return the probability that the one is better on new examples, in (0, 1)."""
        return float(Leads.of([self]).chances()[0])

    def most(self, probability: float) -> float:
        """Return what the lead on new examples does not exceed, with that probability."""
        return float(Leads.of([self]).most(probability)[0])

    def is_level(self, n_examples: int, alpha: float) -> bool:
        """Tell whether all ``n_examples`` would leave the two nearer than they can tell apart."""
        return bool(Leads.of([self]).are_level(n_examples, alpha)[0])


@dataclass(frozen=True, slots=True)
class Leads:
    """The leads of a candidate over k others, as arrays of the fields of ``Lead``."""

    mean: FloatArray  # (k,)
    n: IntArray  # (k,)
    differing: FloatArray  # (k,)
    spread: float = _SPREAD  # standard deviation of differences between the candidates

    @classmethod
    def of(cls, leads: Sequence[Lead]) -> Self:
        """Put leads side by side."""
        n = np.array([lead.n for lead in leads], dtype=np.int64)
        return cls(
            np.array([lead.mean for lead in leads], dtype=float),
            n,
            np.array([lead.differing for lead in leads], dtype=float),
        )

    @classmethod
    def by_sums(cls, total: FloatArray, squares: FloatArray, n: IntArray) -> Self:
        """Return the leads by (k,) sums, and sums of squares, of ``n`` (k,) differences."""
        differing = (squares + _PRIOR_WEIGHT * USUAL_DIFFERING) / (n + _PRIOR_WEIGHT)
        leads = cls(total / np.maximum(n, 1), n, differing)
        return replace(leads, spread=leads._own_spread())

    def _own_spread(self) -> float:
        """Return the spread of differences that sampling does not explain, in (0, ``_SPREAD``].

        The usual one where fewer than three have scores enough.
        """
        seen = self.n >= _ENOUGH
        if (k := int(seen.sum())) < _FEWEST_RIVALS:
            return _SPREAD
        # Of the k + 1 means, that of the one among them: its lead over itself is 0. The noise of a
        # lead is that of two means, half each, and so is the spread of differences. What is left
        # counts as k candidates, and ``_LEAST_SPREAD`` as one, so that it is never 0.
        means, noise = (
            np.append(self.mean[seen], 0.0),
            (self.differing[seen] / self.n[seen]).mean() / 2,
        )
        variance = 2.0 * max(0.0, float(means.var(ddof=1) - noise))
        return min(_SPREAD, math.sqrt((k * variance + _LEAST_SPREAD**2) / (k + 1)))

    @classmethod
    def by_means(cls, own: tuple[float, int], mean: FloatArray, n: IntArray) -> Self:
        """Return the leads by means and numbers of scores, seen on different examples."""
        own_mean, own_n = own
        # On different examples the noise does not cancel: the variances of both means add up. They
        # are written as what q would be if the two had ``fewest`` examples in common, so that one
        # kind of lead serves both cases.
        fewest, its = np.minimum(n, own_n), np.where(n > 0, mean, 0.0)
        variance = own_mean * (1.0 - own_mean) * fewest / own_n if own_n else 0.0
        variance = variance + its * (1.0 - its) * fewest / np.maximum(n, 1)
        lead = (own_mean if own_n else 0.0) - its
        return cls.by_sums(lead * fewest, fewest * variance, fewest)

    def __len__(self) -> int:
        """Return k."""
        return len(self.n)

    def __getitem__(self, places: BoolArray | IntArray) -> Leads:
        """Return some of them."""
        return Leads(self.mean[places], self.n[places], self.differing[places], self.spread)

    def each(self) -> list[Lead]:
        """Return them one by one."""
        columns = (self.mean.tolist(), self.n.tolist(), self.differing.tolist())
        return [Lead(*fields) for fields in zip(*columns, strict=True)]

    @property
    def believed(self) -> tuple[FloatArray, FloatArray]:
        """Return (k,) means and (k,) standard deviations on new examples, as believed now.

        Normal, with differences spread about 0 by ``spread`` before any example is seen. So a
        lead that was seen shrinks, the more so the fewer examples it rests on and the nearer the
        candidates are to each other: it belongs to a candidate that was chosen for it.
        """
        return self._believed(self.spread)

    def _believed(self, prior: float) -> tuple[FloatArray, FloatArray]:
        variance = np.where(self.n > 0, self.differing / np.maximum(self.n, 1), np.inf)
        # A normal prior around 0 times a normal likelihood: the posterior mean is the lead times
        # ``weight``, and the posterior variance is ``weight`` times that of the lead. Without an
        # example the likelihood is flat, and the prior is what remains.
        weight = prior**2 / (prior**2 + variance)
        spread = np.where(self.n > 0, weight * np.minimum(variance, 1.0), prior**2)
        return weight * self.mean, np.sqrt(spread)

    def chances(self, gap: float = 0.0) -> FloatArray:
        """Return the (k,) probabilities of being at most ``gap`` behind on new examples.

        A priori the other may be as good a candidate, or any other: half each. A lead that is near
        to 0 is shrunk as one over a rival; one that a rival could hardly have left is not, or many
        hopeless candidates together would look like a chance.
        """
        near, far = self.believed, self._believed(_WIDE)
        variance = self.differing / np.maximum(self.n, 1)
        # the likelihoods of the lead that was seen: normal, its variance that of both together
        log_odds = np.zeros(len(self))
        for sign, spread in ((1.0, _WIDE), (-1.0, self.spread)):
            total = spread**2 + variance
            log_odds += sign * -0.5 * (np.log(total) + self.mean**2 / total)
        odds = np.where(self.n > 0, log_odds, 0.0)
        share = np.exp(-np.logaddexp(0.0, -odds))
        below = [_below((mean + gap) / deviation) for mean, deviation in (near, far)]
        return np.asarray((1.0 - share) * below[0] + share * below[1], dtype=float)

    def most(self, probability: float) -> FloatArray:
        """Return (k,) what the leads on new examples do not exceed, each with that probability."""
        mean, deviation = self.believed
        return mean + deviation * NormalDist().inv_cdf(probability)

    def are_level(self, n_examples: int, alpha: float) -> BoolArray:
        """(k,) mask of those that all ``n_examples`` would leave nearer than these can show."""
        # The mean of all N differs from that of the n seen by a variance of q (1/n - 1/N): the
        # finite population's share of uncertainty, which is gone once all are seen.
        unseen = np.maximum(1.0 / np.maximum(self.n, 1) - 1.0 / n_examples, 0.0)
        error = np.sqrt(self.differing * unseen)
        enough = self.n >= min(FEWEST_EXAMPLES, n_examples)
        most = self.resolution(n_examples, alpha)
        return np.asarray(enough & (np.abs(self.mean) + _SURE * error <= most))

    def resolution(self, n_examples: int, alpha: float) -> FloatArray:
        """Return (k,) the ``resolution`` of so many examples."""
        return np.minimum(1.0, _constant(alpha) * np.sqrt(self.differing / n_examples))


@lru_cache(maxsize=1)
def _normal() -> tuple[FloatArray, FloatArray]:
    """Return points of the standard normal distribution: numbers, and the probabilities below."""
    points = np.linspace(-9.0, 9.0, 9001)
    return points, np.array([0.5 * math.erfc(-z / math.sqrt(2.0)) for z in points.tolist()])


def _below(z: FloatArray) -> FloatArray:
    """Return the probabilities that a standard normal number is below each of ``z``.

    Between points 1/500 apart, which leaves an error of at most 2e-7: there may be 64,000 leads,
    and scipy takes half a second to import.
    """
    return np.interp(z, *_normal())


def chance_of_all(chances: Sequence[float] | FloatArray) -> float:
    """Return the probability that one candidate is better than all others, by that of each.

    These leads share the luck of the one: with means of as many scores, half of the variance of
    each difference is its own, so that two of them have a correlation of 1/2. With u ~ N(0, 1)

        P = E[prod_j Phi(sqrt(2) Phi^-1(chance_j) + u)]

    As if they were independent, P would be too small: .38 where .52 were the best, in 192 studies
    drawn from shared matrices; this said .49.

    Example:
        >>> round(chance_of_all([0.9] * 4), 2), round(0.9**4, 2)
        (0.74, 0.66)
    """
    points, below = _normal()
    luck = np.interp((np.arange(_LUCKS) + 0.5) / _LUCKS, below, points)
    # of thousands with few answers each, most have a chance that others have, too
    each, count = np.unique(np.asarray(chances, dtype=float), return_counts=True)
    own = math.sqrt(2.0) * np.interp(each, below, points)
    return float((_below(own[:, None] + luck) ** count[:, None]).prod(axis=0).mean())


def lead_of(low: FloatArray, high: FloatArray) -> Lead:
    """Return the lead by differences on common examples, known to lie in [low, high]."""
    middle = (low + high) / 2.0
    sums = np.array([middle.sum()]), np.array([(middle**2).sum()])
    return Leads.by_sums(*sums, np.array([len(low)])).each()[0]


def chance_of_at_least(bar: float, mean: float, n: int) -> float:
    """Return the probability that a mean, seen on n >= 1 examples, is at least ``bar`` on others.

    Example:
        >>> round(chance_of_at_least(0.9, 0.95, 60), 2)
        0.93
    """
    return Leads.by_means((mean, n), np.array([bar]), np.array([_MANY])).each()[0].chance


def resolution(differing: float, n_examples: int, alpha: float) -> float:
    """Return the difference that so many examples show with probability .8, as (1), at most 1.

    Example:
        >>> round(resolution(0.15, 300, 0.025), 3)
        0.08
    """
    return min(1.0, _constant(alpha) * math.sqrt(differing / n_examples))


def nearness(differing: float, n_examples: int) -> float:
    """Return the difference below which two candidates are not worth telling apart.

    It is what remains uncertain about new examples after all N: 1.96 sqrt(q / N). Choosing the
    leader as soon as it is shown to be so near to the best lost nothing on examples that had no say
    in the choice (halves of the shared matrices, ``docs/algorithms.md``).
    """
    return _SURE * math.sqrt(differing / n_examples)


def examples_needed(difference: float, differing: float, alpha: float) -> int:
    """Return how many examples show a difference > 0 with probability .8, as (1).

    The difference is one that somebody names. What was *seen* of a winner is larger than the truth,
    since it was chosen for it: that takes ``examples_to_prove``.

    Example:
        >>> examples_needed(0.05, 0.15, 0.025)
        760

    Raises:
        ValueError: the difference is not above 0, or so small that no number of them shows it.
    """
    needed = math.inf
    if difference > 0:
        needed = _constant(alpha) ** 2 * differing / difference / difference
    if not needed < math.inf:  # NaN is none either
        raise ValueError(f"no number of examples shows a difference of {difference}")
    return math.ceil(needed)


def examples_to_prove(leads: Leads | Sequence[Lead], alpha: float) -> int | None:
    """Return how many examples in all should show leads that were seen; None: who knows.

    It is the smallest n with which all are shown with probability ``_LIKELY_ENOUGH``, where a lead
    on new examples is as ``Lead.believed`` says: with k examples seen, of the mean x,

        mean of n = (k x + (n - k) d + noise) / n,   d ~ believed,   noise ~ N(0, (n - k) q)  (2)

    and it is shown from c sqrt(q / n) on, with c as in (1) without the power. Of chosen winners of
    460 studies drawn from shared matrices and of 900 worlds, 134 had a forecast, and 78 % of these
    came true; 71 % of 173 by a fixed spread and the least probable lead alone.
    """
    if not isinstance(leads, Leads):
        leads = Leads.of(leads)
    if not len(leads) or not leads.n.all():
        return None
    low = int(leads.n.max())
    high = _MOST_TIMES * low

    def enough(n: int) -> bool:
        each = _shown_by(leads, n, alpha)
        # all are at most as probable as the least probable one, which is known sooner
        return bool(each.min() >= _LIKELY_ENOUGH) and chance_of_all(each) >= _LIKELY_ENOUGH

    # With more and more examples the probability tends to that of d > 0. Where that is too low, or
    # reached too late, no number is named.
    if not enough(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _shown_by(leads: Leads, n: int, alpha: float) -> FloatArray:
    """Return the (k,) probabilities that ``n`` examples show each of the leads, as (2)."""
    (mean, deviation), unseen = leads.believed, n - leads.n
    # Two parts: the examples seen keep their mean x, and those to come have the mean d, of which
    # only the posterior is known, besides the noise of single examples. Treating all n as new would
    # forget that the lead seen so far counts in the test, too.
    expected = (leads.n * leads.mean + unseen * mean) / n
    error = np.sqrt((unseen * deviation / n) ** 2 + unseen * leads.differing / n**2)
    least = np.sqrt(2.0 * math.log(1.0 / alpha) * leads.differing / n)
    # Where nothing is uncertain (no example more), the lead is shown or it is not.
    certain = np.where(expected > least, np.inf, -np.inf)
    return _below(np.divide(expected - least, error, out=certain, where=error > 0))


def _constant(alpha: float) -> float:
    return math.sqrt(2.0 * math.log(1.0 / alpha)) + _POWER
