"""Duels of a leader and a challenger: which pair of candidates to look at next.

The aim is that as few challengers as possible that are better than the leader are left behind. The
model gives each challenger a chance to overtake, the normal tail beyond its gap to the leader. Such
a chance falls about like exp(-D n) with the number n of common examples, by D exp(-D n) with one
more. So the next example lowers the sum of all chances most where a chance is still large, and
challengers are drawn by their chances: top-two sampling (Russo 2016; with the variance of the
difference, Qin & You 2023). Of the two, the one that has seen less is pulled, since only common
examples tell them apart.

With prices, the sum of chances is least for a given sum of money where one more dollar takes the
same off each of them: where D exp(-D n) is proportional to the price. So a chance counts for its
price, which is that of the pair, since both see the same examples. Before their first scores the
model takes candidates to be equally good. Where expensive ones turn out to be better, it thinks too
little of them, so prices count less the more they go with quality.

A void pull may hide any score, and pulls may be void because of their score. So it is no evidence
of the mean, but it makes the mean uncertain by its share in the pulls: if the hidden scores had a
mean drawn uniformly from [0, 1], by share / sqrt(12). Leaders with void pulls keep challengers.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from bestarm_agent.selectors.auto.axes_model import Posterior
from bestarm_agent.stats.arrays import BoolArray, FloatArray, IntArray

_NARROWING, _NARROWINGS = 1.5, 12
_VOID_SD = 12**-0.5  # of a mean drawn uniformly from [0, 1]


class Duels:
    """Pairs of a leader and a challenger, with weights by which they are drawn.

    Args:
        ties: (K,) put equals in order.
        out: (K,) those who left the competition.
        void_share: (K,) share of the void pulls in those told, in [0, 1].
        price: (K,) of one more pull, > 0, in any unit. None: one price.
        most_challengers: limits their effective number, >= 1. None: no limit.
        power: of the chances, >= 1. Of thousands of candidates, many poor ones together would
            outweigh a good one: with 2 they do not.

    Attributes:
        order: (K,) candidates by falling posterior mean: the leader, then its challengers.
        floor_weight: (K,) the rank times the square root of the effective price: the floor gives a
            candidate 1 / floor_weight as many examples as the leader.
        weight: (K - 1,) the chance that the challenger is better than the leader, to the power that
            was given, over the mean of their effective prices, or a higher power of that.
        likeliest: the highest chance of a challenger to be better than the leader, in [0, 1].
    """

    def __init__(
        self,
        posterior: Posterior,
        ties: FloatArray,
        *,
        out: BoolArray,
        void_share: FloatArray,
        price: FloatArray | None = None,
        most_challengers: float | None = None,
        power: float = 1.0,
    ) -> None:
        self.order = order = np.lexsort((ties, -posterior.mean, out))
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(1, len(order) + 1)
        price = np.ones(len(order)) if price is None else effective_prices(price, posterior.mean)
        self.floor_weight = np.asarray(rank * np.sqrt(price), dtype=np.float64)
        leader, challengers = int(order[0]), order[1:]
        behind = posterior.mean[leader] - posterior.mean[challengers]
        # Added to the variance and not to the mean: what a void pull hides may be good or bad.
        hidden = (_VOID_SD * void_share) ** 2
        variance = posterior.gap_variance(leader)[challengers] + hidden[leader]
        chance = ndtr(-behind / np.sqrt(variance + hidden[challengers]))
        chance[out[challengers]] = 0.0
        self.likeliest = float(chance.max(initial=0.0))
        weight = chance**power / (0.5 * (price[leader] + price[challengers]))
        if most_challengers is not None:
            weight = narrowed(weight, most_challengers)
        self.weight = weight

    def below_floor(self, allowed: BoolArray, n_seen: IntArray) -> int:
        """Return the ``allowed`` (K,) candidate that is furthest behind its share of the floor."""
        return int(np.where(allowed, n_seen * self.floor_weight, np.inf).argmin())

    def behind(self, field: BoolArray, n_seen: IntArray) -> int:
        """Return who has the fewest examples in a ``field`` (K,), the most promising of equals."""
        in_field = self.order[field[self.order]]
        return int(in_field[n_seen[in_field].argmin()])

    def draw(self, allowed: BoolArray, n_seen: IntArray, rng: np.random.Generator) -> int:
        """Draw a pair of which at least one is ``allowed`` (K,); return the one of it to pull.

        That is the one with fewer of the ``n_seen`` (K,) examples, the leader if equal. If no pair
        has any weight, return the one of all with the fewest.
        """
        leader, challengers = int(self.order[0]), self.order[1:]
        # One of the two is enough: the leader may be waiting while its challenger can be called.
        # Others do not take over the weight of a pair that cannot be asked at all.
        possible = allowed[leader] | allowed[challengers]
        cumulative = np.cumsum(np.where(possible, self.weight, 0.0))
        if not (len(cumulative) and cumulative[-1] > 0.0):
            return self.behind(allowed, n_seen)
        drawn = int(cumulative.searchsorted(rng.random() * cumulative[-1], side="right"))
        challenger = int(challengers[min(drawn, len(cumulative) - 1)])
        if allowed[leader] and allowed[challenger]:
            return leader if n_seen[leader] <= n_seen[challenger] else challenger
        return leader if allowed[leader] else challenger


def effective_prices(price: FloatArray, mean: FloatArray) -> FloatArray:
    """Return relative prices to the power 1 - r, r correlating their logarithms with quality.

    Prices (K,) are > 0, in any unit; results are >= 1, and all exactly 1 for one price. A negative
    correlation with ``mean`` (K,) counts as 0.
    """
    relative = price / price.min(initial=np.inf)
    logs, ahead = np.log(relative), mean - mean.mean()
    logs -= logs.mean()
    spread = float(np.sqrt((logs @ logs) * (ahead @ ahead)))
    # Where better candidates cost more, a low price is a sign of a poor candidate, and the whole
    # price would send the pulls there: its power falls as the correlation grows.
    correlation = float(logs @ ahead) / spread if spread > 0.0 else 0.0
    powered: FloatArray = relative ** (1.0 - max(0.0, min(1.0, correlation)))
    return powered


def narrowed(weight: FloatArray, most: float) -> FloatArray:
    """Raise weights to the power at which they are effectively ``most`` or fewer.

    The power is one of 1.5^0 to 1.5^12. The effective number is (sum w)^2 / sum w^2.
    """
    highest = weight.max(initial=0.0)
    if not highest > 0.0:
        return weight
    relative = weight / highest
    # A power, and not a cut after the first so many: all challengers keep some weight.
    for _ in range(_NARROWINGS):
        if relative.sum() ** 2 <= most * (relative**2).sum():
            break
        relative = relative**_NARROWING
    return np.asarray(relative)
