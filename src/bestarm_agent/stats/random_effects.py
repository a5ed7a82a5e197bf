"""Variance of scores within examples and between them, from several draws of each.

One-way random-effects analysis of variance: draw j of example i scores x_ij = m + a_i + e_ij, with
variance b^2 of a_i (between examples) and mean variance w^2 of e_ij (within them). Of n examples
with k draws each,

    MSW = sum_ij (x_ij - x_i)^2 / (n (k - 1)),    MSB = k sum_i (x_i - x)^2 / (n - 1),
    E MSW = w^2,                                  E MSB = w^2 + k b^2,

so MSW estimates w^2, and (MSB - MSW) / k estimates b^2 (0 if that is negative): Searle, Casella &
McCulloch 1992, "Variance Components", chapter 3. Drawing alone gives the mean of all n k scores
the variance w^2 / (n k): Miller 2024, "Adding Error Bars to Evals" (arXiv 2411.00640).

With k_i draws of example i, T in all (section 3.6 there),

    MSW = sum_ij (x_ij - x_i)^2 / (T - n),        MSB = sum_i k_i (x_i - x)^2 / (n - 1),
    E MSB = w^2 + k_0 b^2,                        k_0 = (T - sum_i k_i^2 / T) / (n - 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from bestarm_agent.stats.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class DrawSpread:
    """Spread of one candidate's scores, as standard deviations."""

    n_examples: int  # n >= 2
    n_draws: float  # of each, k >= 2; the mean number where they differ
    within: float  # w >= 0, between draws of one example
    between: float  # b >= 0, between the expected scores of examples

    @property
    def of_mean(self) -> float:
        """Standard deviation of the candidate's mean that drawing alone causes."""
        return self.within / math.sqrt(self.n_examples * self.n_draws)

    @property
    def share_if_drawn_once(self) -> float:
        """Share of the calls that say as much of the mean if each draws a new example, in (0, 1].

        With r draws of each of m examples the variance is (b^2 + w^2 / r) / m, for m r calls.
        """
        within, between = self.within**2, self.between**2
        spread = self.n_draws * between + within
        return (between + within) / spread if spread else 1.0

    def as_json(self) -> dict[str, float]:
        """Return it as a JSON object."""
        derived = {"of_mean": self.of_mean, "share_if_drawn_once": self.share_if_drawn_once}
        return {**asdict(self), **derived}


def spread_of(scores: FloatArray, examples: IntArray) -> DrawSpread | None:
    """Estimate the spread of (T,) scores of the draws of ``examples``, as often as each was drawn.

    None while there are no two examples, or none was drawn twice.
    """
    _, place, counts = np.unique(examples, return_inverse=True, return_counts=True)
    n, total = len(counts), len(scores)
    if n < 2 or total == n:
        return None
    means = np.bincount(place, weights=scores) / counts
    within = float(((scores - means[place]) ** 2).sum()) / (total - n)
    spread = float((counts * (means - scores.mean()) ** 2).sum()) / (n - 1)
    k_0 = (total - float((counts**2).sum()) / total) / (n - 1)
    between = max(0.0, (spread - within) / k_0)
    return DrawSpread(n, total / n, math.sqrt(within), math.sqrt(between))


@dataclass(slots=True)
class DrawSums:
    """Sums over the examples of one candidate, each with the same number of draws."""

    _n_examples: int = 0
    _n_draws: int = 0  # of all examples
    _within: float = 0.0  # squares of deviations from the example's mean
    _mean: float = 0.0  # of the examples' means
    _between: float = 0.0  # squares of their deviations from it

    def push(self, values: Sequence[float]) -> None:
        """Add the scores of an example's draws."""
        mean = math.fsum(values) / len(values)
        self._n_examples += 1
        self._n_draws += len(values)
        self._within += math.fsum((value - mean) ** 2 for value in values)
        step = mean - self._mean  # Welford's update: sums of squares would cancel
        self._mean += step / self._n_examples
        self._between += step * (mean - self._mean)

    def spread(self) -> DrawSpread | None:
        """Estimate the spread; None before there are two examples of two draws."""
        n = self._n_examples
        k = self._n_draws // n if n else 0
        if n < 2 or k < 2:
            return None
        within = self._within / (n * (k - 1))
        between = max(0.0, self._between / (n - 1) - within / k)
        return DrawSpread(n, k, math.sqrt(within), math.sqrt(between))
