"""Who is compared with whom: leaders against those that may overtake them.

Where candidates differ in price, the chance that a challenger is wrongly left behind should be the
larger the dearer it is. If that chance falls like exp(-D n) with n pulls at price c, the sum of all
such chances is least for a given sum of money where D exp(-D n) is proportional to c: where another
dollar takes the same off everybody's chance. So a chance counts for its price, which is that of
the pair, since both see the same examples. The model takes candidates for alike before their first
scores. Where the dear ones turn out to be the better ones it thinks too little of them, and prices
count the less the more they go with quality.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from scipy.special import ndtr

from bestarm_agent.selectors.types import BoolArray, FloatArray, IntArray
from bestarm_agent.stats.outlook import Outlook

_INFLATION = 1.25  # of posterior variances: the model is too sure of itself
_SHARPNESS = 2  # power of the chance to overtake; else many poor rivals outweigh a good one
_SHARPENING, _SHARPENINGS = 1.5, 12
_REDRAWS = 8
_OPTIMISM = 2.0  # standard deviations
_IN_SIGHT = 2.0  # ranks that the floor reaches, in sizes of the field


@dataclass(frozen=True, slots=True, eq=False)
class Contest:
    """Pairs of a leader and a challenger, and how much each is worth a look.

    Attributes:
        order: (K,) candidates by falling posterior mean.
        rank: (K,) place in that order from 1; leaders all have 1.
        burden: (K,) the rank times the square root of the weighed price: whoever is kept in sight,
            whatever the chances say, has seen 1 / burden as many examples as the leader.
        leaders: (L,) the candidates that would be named now.
        challengers: (K - L,) the others.
        weight: (L, K - L) the squared chance that the challenger is better than the leader, for the
            mean of both their weighed prices, or a higher power of that.
        reach: (L * (K - L),) running sums of the weights, row by row.
        optimistic: (K,) posterior means plus two standard deviations.
        in_sight: the last rank that the floor reaches.
    """

    order: IntArray
    rank: IntArray
    burden: FloatArray
    leaders: IntArray
    challengers: IntArray
    weight: FloatArray
    reach: FloatArray
    optimistic: FloatArray
    in_sight: int

    @classmethod
    def of(
        cls,
        outlook: Outlook,
        top_k: int,
        ties: FloatArray,
        *,
        out: BoolArray,
        price: FloatArray | None = None,
        field: float | None = None,
    ) -> Contest:
        """Set up the contest.

        Args:
            outlook: what the model expects.
            top_k: how many are wanted.
            ties: (K,) numbers that put equals in order.
            out: (K,) candidates that are out of the competition.
            price: (K,) cost of one more pull, > 0, in any unit; None for one price.
            field: the largest effective number of challengers to each leader, >= 1; None for as
                many as there are chances.
        """
        order = np.lexsort((ties, -outlook.mean, out))
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.maximum(1, np.arange(1, len(order) + 1) - top_k + 1)
        price = np.ones(len(order)) if price is None else weighed(price, outlook.mean)
        leaders, challengers = order[:top_k], order[top_k:]
        weight = np.empty((len(leaders), len(challengers)))
        for at, leader in enumerate(leaders.tolist()):
            behind = outlook.mean[leader] - outlook.mean[challengers]
            variance = outlook.gap_variance(leader)[challengers]
            chance = ndtr(-behind / np.sqrt(_INFLATION * variance))
            worth = chance**_SHARPNESS / (0.5 * (price[leader] + price[challengers]))
            weight[at] = np.where(out[challengers], 0.0, worth)
        in_sight = len(order)
        if field is not None:
            weight = sharpened(weight, field * len(leaders))
            in_sight = ceil(_IN_SIGHT * field)
        optimistic = outlook.mean + _OPTIMISM * outlook.sd
        burden = np.asarray(rank * np.sqrt(price), dtype=np.float64)
        reach = np.cumsum(weight)
        return cls(order, rank, burden, leaders, challengers, weight, reach, optimistic, in_sight)

    def least_loaded(self, allowed: BoolArray, n_seen: IntArray) -> int:
        """Whose ``n_seen`` (K,) times burden is the least of those ``allowed`` (K,) and in sight.

        Where nobody in sight is allowed, of all that are.
        """
        near = allowed & (self.rank <= self.in_sight)
        load = np.where(near if near.any() else allowed, n_seen * self.burden, np.inf)
        return int(load.argmin())

    def draw(self, allowed: BoolArray, n_seen: IntArray, rng: np.random.Generator) -> int:
        """Draw a pair of which one at least is ``allowed`` (K,), and say who of it to pull.

        Whoever has fewer of the ``n_seen`` (K,) examples is pulled, the leader if equal. If no pair
        is worth a look, whoever is most promising.
        """
        pair = self._pair(self.reach, rng)
        for _ in range(_REDRAWS):
            if pair is None or allowed[pair[0]] or allowed[pair[1]]:
                break
            pair = self._pair(self.reach, rng)
        else:
            possible = allowed[self.leaders][:, None] | allowed[self.challengers]
            pair = self._pair(np.cumsum(np.where(possible, self.weight, 0.0)), rng)
        if pair is None:
            return int(np.where(allowed, self.optimistic, -np.inf).argmax())
        leader, challenger = pair
        if allowed[leader] and allowed[challenger]:
            return leader if n_seen[leader] <= n_seen[challenger] else challenger
        return leader if allowed[leader] else challenger

    def _pair(self, reach: FloatArray, rng: np.random.Generator) -> tuple[int, int] | None:
        """Draw a leader and a challenger by weight; None if all weights are 0."""
        if not (len(reach) and reach[-1] > 0.0):
            return None
        at = int(reach.searchsorted(rng.random() * reach[-1], side="right"))
        row, column = divmod(min(at, len(reach) - 1), len(self.challengers))
        return int(self.leaders[row]), int(self.challengers[column])


def weighed(price: FloatArray, mean: FloatArray) -> FloatArray:
    """Relative prices to the power 1 - r, r being the correlation of their logarithms with quality.

    Args:
        price: (K,) > 0, in any unit.
        mean: (K,) posterior means; a negative correlation counts as 0.

    Returns:
        (K,) >= 1; all exactly 1 for one price.

    Example:
        >>> weighed(np.array([0.1, 0.4, 0.1]), np.array([0.5, 0.5, 0.5])).round(6)
        array([1., 4., 1.])
        >>> weighed(np.array([0.1, 0.4, 1.6]), np.array([0.5, 0.6, 0.7])).round(6)
        array([1., 1., 1.])
    """
    relative = price / price.min(initial=np.inf)
    logs, ahead = np.log(relative), mean - mean.mean()
    logs -= logs.mean()
    spread = float(np.sqrt((logs @ logs) * (ahead @ ahead)))
    correlation = float(logs @ ahead) / spread if spread > 0.0 else 0.0
    powered: FloatArray = relative ** (1.0 - max(0.0, min(1.0, correlation)))
    return powered


def sharpened(weight: FloatArray, most: float) -> FloatArray:
    """Raise weights to the power at which they are effectively ``most`` or fewer.

    The effective number is (sum w)^2 / sum w^2. The power is a multiple of 1.5, up to 1.5^12.

    Example:
        >>> sharpened(np.array([0.5, 0.25, 0.0]), most=1.5).round(2)
        array([1.  , 0.21, 0.  ])
    """
    highest = weight.max(initial=0.0)
    if not highest > 0.0:
        return weight
    relative = weight / highest
    for _ in range(_SHARPENINGS):
        if relative.sum() ** 2 <= most * (relative**2).sum():
            break
        relative = relative**_SHARPENING
    return np.asarray(relative)


def chance_of_being_best(
    outlook: Outlook, candidate: int, draws: FloatArray, out: BoolArray
) -> float:
    """Probability that a candidate's mean is the highest, as far as the model can tell.

    Args:
        outlook: what the model expects.
        candidate: one of the jointly modelled ones; for any other the answer is 0.
        draws: (D, n) standard normal numbers, for the n that are modelled jointly.
        out: (K,) candidates that are out of the competition.

    Returns:
        A share of the D draws, in [0, 1]; the variances are inflated as in the contest.
    """
    at = np.flatnonzero(outlook.active == candidate)
    if not len(at):
        return 0.0
    values, vectors = np.linalg.eigh(outlook.covariance)
    root = vectors * np.sqrt(_INFLATION * np.maximum(values, 0.0))
    means = outlook.mean[outlook.active] + draws @ root.T
    means[:, out[outlook.active]] = -np.inf
    return float((means.argmax(axis=1) == at[0]).mean())
