"""What is known of examples before anybody is asked about them.

A row's score at an example is taken to be

    E_ij = mean_j + scale_j (slope_j . a_i + u_i z_j + e_ij)

where a_i are the row's r levels. Without history every example is like every other: mean 0, scale
and slope 1, one level. History adds a level: past candidates differ in ability, and examples in how
much ability matters, in how hard they are and, at the scores of good candidates, in how noisy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from bestarm_agent.stats.factors import Factors

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]

_STRONG = 1.0  # standard deviations of ability above past candidates: where the contest is expected
_LEAST_NOISE = 0.005  # variance: an example that everybody solved may surprise
_LEAST_WEIGHT = 0.6  # of the mean: bets must survive the rarest draw of all


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """What is known of m examples, and of levels before any score.

    Attributes:
        mean: (m,) expected scores where all levels are 0.
        scale: (m,) standard deviations of the rest, > 0, relative to each other: their mean square
            is 1.
        slope: (m, r) effect of the levels on (E - mean) / scale.
        centre: (r,) expected levels.
        spread: (r,) their variances, > 0.
        least_spread: (r,) what estimates of these may not fall below, > 0.
        worth: how many candidates' levels ``centre`` and ``spread`` are worth, >= 0.
    """

    mean: FloatArray
    scale: FloatArray
    slope: FloatArray
    centre: FloatArray
    spread: FloatArray
    least_spread: FloatArray
    worth: float

    @classmethod
    def plain(cls, n_examples: int) -> Profile:
        """Nothing is known; the only level is a row's mean."""
        return cls(
            mean=np.zeros(n_examples),
            scale=np.ones(n_examples),
            slope=np.ones((n_examples, 1)),
            centre=np.array([0.5]),
            spread=np.array([0.05]),
            least_spread=np.array([0.02]),  # else a few examples make all rows seem alike for good
            worth=0.0,
        )

    @classmethod
    def of(cls, factors: Factors) -> Profile:
        """What past candidates teach, put straight around those a standard deviation above average.

        Ability is the direction of the factors in which a candidate's mean score rises most. The
        second level, the same for all examples, stands for what history knows nothing about.

        Example:
            >>> easy_to_hard = Factors(np.array([6.0, 0.0, -6.0]), np.ones((3, 1)))
            >>> profile = Profile.of(easy_to_hard)
            >>> profile.mean.round(2), profile.weights().round(2)
            (array([1.  , 0.73, 0.01]), array([0.6 , 2.23, 0.6 ]))
        """
        chance = expit(factors.offset)
        steepest = (chance * (1.0 - chance)) @ factors.loadings
        length = float(np.linalg.norm(steepest))
        loading = factors.loadings @ (steepest / length) if length > 0 else 0.0 * factors.offset
        mean = expit(factors.offset + _STRONG * loading)
        variance = mean * (1.0 - mean)
        noise = np.maximum(variance, _LEAST_NOISE)
        scale = np.sqrt(noise / noise.mean())
        spread = np.array([0.02, 1.0])
        return cls(
            mean=mean,
            scale=scale,
            slope=np.column_stack([np.ones(len(mean)), variance * loading]) / scale[:, None],
            centre=np.array([0.0, -_STRONG]),
            spread=spread,
            least_spread=0.3 * spread,
            worth=5.0,
        )

    @property
    def n_levels(self) -> int:
        """Number of levels, r."""
        return len(self.centre)

    def at(self, examples: IntArray) -> Profile:
        """The same of some of the examples, in that order."""
        return replace(
            self, mean=self.mean[examples], scale=self.scale[examples], slope=self.slope[examples]
        )

    def joined_by(self, count: int) -> Profile:
        """With ``count`` more examples that nothing is known about: average ones."""
        return replace(
            self,
            mean=np.append(self.mean, np.full(count, self.mean.mean())),
            scale=np.append(self.scale, np.ones(count)),
            slope=np.append(self.slope, np.tile(self.slope.mean(axis=0), (count, 1)), axis=0),
        )

    def weights(self) -> FloatArray:
        """(m,) how much more often than others an example is worth looking at, of mean about 1.

        Proportional to the spread of a good candidate's score: Neyman's allocation for the
        difference of two.
        """
        weights: FloatArray = np.maximum(self.scale / self.scale.mean(), _LEAST_WEIGHT)
        return weights

    def standardised(self, example: int, score: float) -> float:
        """(E - mean) / scale."""
        return float((score - self.mean[example]) / self.scale[example])
