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
from dataclasses import dataclass
from statistics import NormalDist

from bestarm_agent.stats.arrays import FloatArray

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
_SPREAD = 0.1  # standard deviation of differences between good candidates, for shrinkage
_LIKELY_ENOUGH = 0.8  # probability of what is forecast
_MOST_TIMES = 20  # so many times the examples seen are forecast at most
_SURE = 1.96  # standard errors that a lead may be wrong by


@dataclass(frozen=True, slots=True)
class Lead:
    """The difference of two candidates on the examples that both have seen."""

    mean: float  # of the one's score minus the other's, in [-1, 1]; 0 without an example
    n: int  # common examples
    differing: float  # q, with the usual share as so many examples more

    @property
    def believed(self) -> tuple[float, float]:
        """Return mean and standard deviation of the lead on new examples, as believed now.

        Normal, with differences spread about 0 by ``_SPREAD`` before any example is seen. So a
        lead that was seen shrinks, the more so the fewer examples it rests on: it belongs to a
        candidate that was chosen for it.
        """
        if not self.n:
            return 0.0, _SPREAD
        variance = self.differing / self.n
        weight = _SPREAD**2 / (_SPREAD**2 + variance)
        return weight * self.mean, math.sqrt(weight * variance)

    @property
    def chance(self) -> float:
        """Return the probability that the one is better on new examples, in (0, 1)."""
        mean, deviation = self.believed
        return _below(mean / deviation)

    def chance_within(self, gap: float) -> float:
        """Return the probability that the one is at most ``gap`` behind the other, in (0, 1)."""
        mean, deviation = self.believed
        return _below((mean + gap) / deviation)

    def most(self, probability: float) -> float:
        """Return what the lead on new examples does not exceed, with that probability."""
        mean, deviation = self.believed
        return mean + deviation * NormalDist().inv_cdf(probability)

    def is_level(self, n_examples: int, level: float) -> bool:
        """Tell whether all ``n_examples`` would leave the two nearer than they can tell apart."""
        if self.n < min(FEWEST_EXAMPLES, n_examples):
            return False
        error = math.sqrt(self.differing * (1.0 / self.n - 1.0 / n_examples))
        most = resolution(self.differing, n_examples, level)
        return abs(self.mean) + _SURE * error <= most


def _below(z: float) -> float:
    """Return the probability that a standard normal number is below ``z``."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def lead_of(low: FloatArray, high: FloatArray) -> Lead:
    """Return the lead by differences on common examples, known to lie in [low, high]."""
    middle, n = (low + high) / 2.0, len(low)
    squares = float((middle**2).sum()) + _PRIOR_WEIGHT * USUAL_DIFFERING
    mean = float(middle.sum()) / n if n else 0.0
    return Lead(mean, n, min(1.0, squares / (n + _PRIOR_WEIGHT)))


def lead_of_means(one: tuple[float, int], other: tuple[float, int]) -> Lead:
    """Return the lead by means and numbers of scores, seen on different examples."""
    (mean, n), (its_mean, its_n) = one, other
    if not (n and its_n):
        return Lead(0.0, 0, USUAL_DIFFERING)
    fewest = min(n, its_n)
    variance = sum(p * (1.0 - p) * fewest / count for p, count in (one, other))
    prior = _PRIOR_WEIGHT * USUAL_DIFFERING
    return Lead(mean - its_mean, fewest, (fewest * variance + prior) / (fewest + _PRIOR_WEIGHT))


def chance_of_at_least(bar: float, mean: float, n: int) -> float:
    """Return the probability that a mean, seen on n >= 1 examples, is at least ``bar`` on others.

    Example:
        >>> round(chance_of_at_least(0.9, 0.95, 60), 2)
        0.87
    """
    return lead_of_means((mean, n), (bar, _MANY)).chance


def resolution(differing: float, n_examples: int, level: float) -> float:
    """Return the difference that so many examples show with probability .8, as (1), at most 1.

    Example:
        >>> round(resolution(0.15, 300, 0.025), 3)
        0.08
    """
    return min(1.0, _constant(level) * math.sqrt(differing / n_examples))


def nearness(differing: float, n_examples: int) -> float:
    """Return the difference below which two candidates are not worth telling apart.

    It is what remains uncertain about new examples after all N: 1.96 sqrt(q / N). Choosing the
    leader as soon as it is shown to be so near to the best lost nothing on examples that had no say
    in the choice (halves of the shared matrices, ``docs/algorithms.md``).
    """
    return _SURE * math.sqrt(differing / n_examples)


def examples_needed(difference: float, differing: float, level: float) -> int:
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
        needed = _constant(level) ** 2 * differing / difference / difference
    if not needed < math.inf:  # NaN is none either
        raise ValueError(f"no number of examples shows a difference of {difference}")
    return math.ceil(needed)


def examples_to_prove(leads: Sequence[Lead], level: float) -> int | None:
    """Return how many examples in all should show leads that were seen; None: who knows.

    It is the smallest n with which all are shown with probability ``_LIKELY_ENOUGH``, where a lead
    on new examples is as ``Lead.believed`` says: with k examples seen, of the mean x,

        mean of n = (k x + (n - k) d + noise) / n,   d ~ believed,   noise ~ N(0, (n - k) q)  (2)

    and it is shown from c sqrt(q / n) on, with c as in (1) without the power. Leads share the luck
    of the winner, so the least probable one counts, not their product.
    """
    if not leads or any(not lead.n for lead in leads):
        return None
    low, high = max(lead.n for lead in leads), _MOST_TIMES * max(lead.n for lead in leads)

    def enough(n: int) -> bool:
        return min(_shown_by(lead, n, level) for lead in leads) >= _LIKELY_ENOUGH

    if not enough(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _shown_by(lead: Lead, n: int, level: float) -> float:
    """Return the probability that ``n`` examples show a lead, as (2)."""
    (mean, deviation), more = lead.believed, n - lead.n
    expected = (lead.n * lead.mean + more * mean) / n
    variance = (more * deviation / n) ** 2 + more * lead.differing / n**2
    least = math.sqrt(2.0 * math.log(1.0 / level) * lead.differing / n)
    return _below((expected - least) / math.sqrt(variance)) if variance else float(expected > least)


def _constant(level: float) -> float:
    return math.sqrt(2.0 * math.log(1.0 / level)) + _POWER
