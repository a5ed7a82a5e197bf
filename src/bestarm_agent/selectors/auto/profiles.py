"""Priors of examples before any score: the means and scales of ``one_factor``.

A row's score at example j is modelled as

    E_ij = m_j + c_j (b_j . a_i + u_i z_j + e_ij)                                              (1)

where a_i are the row's r levels. Without history all examples are alike: m_j = 0, c_j = b_j = 1,
r = 1. With history, a past candidate at ability t (along the direction d in which the mean score of
the factors rises most, sum_j p_j (1 - p_j) v_j with p_j = expit(offset_j)) solves example j
with probability expit(offset_j + t v_j . d) (``example_factors``). A Taylor expansion around
t = 1, one standard deviation above average, where the best candidates are expected, gives

    m_j = expit(offset_j + v_j . d)                                                            (2)
    c_j^2 proportional to m_j (1 - m_j), of mean 1                                             (3)
    c_j b_j = (1, m_j (1 - m_j) v_j . d),  a_i = (rest, t - 1)                                 (4)

with (rest, t - 1) of mean (0, -1), since past candidates have t ~ N(0, 1). The first level, the
same for all examples, stands for what history does not know.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from bestarm_agent.selectors.history import Factors
from bestarm_agent.stats.arrays import FloatArray, IntArray

_STRONG = 1.0  # t of (2): standard deviations of ability above past candidates
_LEAST_NOISE = 0.005  # variance of an example that all past candidates solved
_LEAST_WEIGHT = 0.6  # of the mean: bounds the odds of the least likely draw


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Prior knowledge of m examples, and of levels before any score."""

    mean: FloatArray  # (m,) m_j, expected scores where all levels are 0
    scale: FloatArray  # (m,) c_j > 0, of mean square 1
    slope: FloatArray  # (m, r) b_j
    centre: FloatArray  # (r,) expected levels
    spread: FloatArray  # (r,) variances of the levels, > 0
    least_spread: FloatArray  # (r,) least estimates of these variances, > 0
    worth: float  # number of candidates that ``centre`` and ``spread`` count as, >= 0

    @classmethod
    def plain(cls, n_examples: int) -> Profile:
        """Return the profile without history; the only level is a row's mean."""
        return cls(
            mean=np.zeros(n_examples),
            scale=np.ones(n_examples),
            slope=np.ones((n_examples, 1)),
            centre=np.array([0.5]),
            spread=np.array([0.05]),
            least_spread=np.array([0.02]),  # else a few examples make all rows seem equal for good
            worth=0.0,
        )

    @classmethod
    def of(cls, factors: Factors) -> Profile:
        """Return the profile that past candidates teach: (2) to (4).

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
        mean = expit(factors.offset + _STRONG * loading)  # (2)
        variance = mean * (1.0 - mean)
        noise = np.maximum(variance, _LEAST_NOISE)
        scale = np.sqrt(noise / noise.mean())  # (3)
        spread = np.array([0.02, 1.0])
        return cls(
            mean=mean,
            scale=scale,
            slope=np.column_stack([np.ones(len(mean)), variance * loading]) / scale[:, None],  # (4)
            centre=np.array([0.0, -_STRONG]),
            spread=spread,
            least_spread=0.3 * spread,
            worth=5.0,
        )

    def readings(self) -> tuple[Profile, Profile]:
        """Return the profile, and one that believes of it how hard examples are and no more."""
        return self, replace(self.disbelieved(), mean=self.mean, centre=np.zeros(1))

    def disbelieved(self) -> Profile:
        """Return the profile of one who believes no more than how examples were drawn.

        Candidates differ by the same on all examples, c_j b_j = 1, and c_j^2 follows the weight
        with which an example is drawn. So levels are means weighted by one over it, as of a uniform
        draw; equal weights would take what is contested for the whole.
        """
        weights = self.weights()
        scale = np.sqrt(weights / weights.mean())
        return replace(Profile.plain(len(scale)), scale=scale, slope=1.0 / scale[:, None])

    @property
    def n_levels(self) -> int:
        """Return r."""
        return len(self.centre)

    def at(self, examples: IntArray) -> Profile:
        """Return the profile of some of the examples, in that order."""
        return replace(
            self, mean=self.mean[examples], scale=self.scale[examples], slope=self.slope[examples]
        )

    def joined_by(self, count: int) -> Profile:
        """Append ``count`` average examples, of which nothing is known."""
        return replace(
            self,
            mean=np.append(self.mean, np.full(count, self.mean.mean())),
            scale=np.append(self.scale, np.ones(count)),
            slope=np.append(self.slope, np.tile(self.slope.mean(axis=0), (count, 1)), axis=0),
        )

    def weights(self) -> FloatArray:
        """Return (m,) relative chances of being drawn, of mean about 1.

        Proportional to the spread of a good candidate's score (Neyman's allocation), with a floor.
        """
        weights: FloatArray = np.maximum(self.scale / self.scale.mean(), _LEAST_WEIGHT)
        return weights

    def standardised(self, example: int, score: float) -> float:
        """Return y_ij = (E_ij - m_j) / c_j."""
        return float((score - self.mean[example]) / self.scale[example])
