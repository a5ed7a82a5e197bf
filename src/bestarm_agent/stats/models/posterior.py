"""The posterior of the rows' means that a fit of ``one_factor`` gives; notation as there.

The mean over all m examples, seen and unseen (a finite population), is

    m M_i = sum_j m_j + sum_{j < L_i} c_j y_ij
            + sum_{j >= L_i} c_j (b_j . a_i + u_i z_j + e_ij)                                  (9)

With z_j from (3) it is linear in the levels, and so, with P_j = 1 where nobody has seen j,

    H_ik = (1/m) ([i = k] sum_{j >= L_i} c_j b_j - u_i w_k sum_{L_i <= j < L_k} c_j b_j / P_j)  (10)
    Cov(M)_ik = (H V H')_ik + (u_i u_k / m^2) sum_{j >= max(L_i, L_k)} c_j^2 / P_j
                + [i = k] (s_i^2 sum_{j >= L_i} c_j^2 + d_i^2 Var u_i) / m^2                   (11)

where the last term is what (6) does not know of u_i, Var u_i = s_i^2 / (sum_{j < L_i} Z_j +
s_i^2 / v), times its effect on m M_i if the levels follow by least squares:

    d_i = sum_{j >= L_i} c_j z_j
          - (sum_{j >= L_i} c_j b_j)' (sum_{j < L_i} b_j b_j')^-1 sum_{j < L_i} b_j z_j        (12)

Where models M_h of equal weight disagree, their mixture is wider than each of them:

    E M = mean_h E_h M,   Cov M = mean_h (Cov_h M + (E_h M - E M) (E_h M - E M)')             (13)

The weights stay equal. Learned from one-step-ahead log scores they go to the model that knows best
how noisy each example is, by hundreds of nats within a run, also where it misjudges candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np

from bestarm_agent.stats.arrays import FloatArray, IntArray
from bestarm_agent.stats.models.prefix_scores import PrefixRows
from bestarm_agent.stats.models.prefix_sums import FittedSums, KnownSums

LOADING_SPREAD = 0.02  # v
_LEAST_VARIANCE = 1e-14
_LEAST_GRAM = 1e-9  # keeps (12) solvable where the examples seen do not determine all levels


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """Posterior of the rows' means over all m examples."""

    mean: FloatArray  # (K,) posterior means; not clipped to [0, 1]
    sd: FloatArray  # (K,) posterior standard deviations
    active: IntArray  # (n,) rows that are modelled jointly, ascending
    covariance: FloatArray  # (n, n) of their means; other rows count as independent

    @classmethod
    def unfitted(cls, rows: PrefixRows) -> Posterior:
        """Return smoothed means of the scores seen, for use before the first fit."""
        mean = (rows.totals[:, -1] + 1.0) / (rows.length + 2.0)
        return cls(mean, np.ones(len(mean)), np.arange(0), np.zeros((0, 0)))

    def gap_variance(self, leader: int) -> FloatArray:
        """Return the (K,) variances of the leader's mean minus each other mean, > 0.

        Var(M_l - M_i) = C_ll + C_ii - 2 C_li among active rows, sd_l^2 + sd_i^2 elsewhere.
        """
        variance = self.sd**2 + self.sd[leader] ** 2
        at = int(np.searchsorted(self.active, leader))
        if at < len(self.active) and self.active[at] == leader:
            own = self.covariance.diagonal()
            variance[self.active] = own + own[at] - 2.0 * self.covariance[at]
        return np.asarray(np.maximum(variance, _LEAST_VARIANCE))

    def nearest_first(self) -> IntArray:
        """Return all rows, sorted by how far they are behind the leader in standard deviations."""
        leader = int(np.argmax(self.mean))
        spread = np.sqrt(np.maximum(self.sd**2 + self.sd[leader] ** 2, _LEAST_VARIANCE))
        return np.argsort((self.mean[leader] - self.mean) / spread, kind="stable")


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """Parameters of K rows, as fitted."""

    level: FloatArray  # (K, r) a_i
    level_variance: FloatArray  # (K, r, r) V_ii
    loading: FloatArray  # (K,) u_i
    noise: FloatArray  # (K,) s_i^2
    length: IntArray  # (K,) L_i
    totals: FloatArray  # (K,) sums of c_j y_ij over the places seen
    known: KnownSums
    sums: FittedSums

    @property
    def n_examples(self) -> int:
        """Return m."""
        return len(self.known.noise) - 1

    def left(self) -> FloatArray:
        """Return the (K, r) sums of c_j b_j over the places not seen."""
        return np.asarray(self.known.effect[-1] - self.known.effect[self.length])

    def own_variance(self) -> FloatArray:
        """Return the (K,) variances of M_i that the noise of unseen scores makes."""
        unseen = self.known.noise[-1] - self.known.noise[self.length]
        return np.asarray(self.noise * unseen / self.n_examples**2)

    def means(self) -> FloatArray:
        """Return the (K,) posterior means of M_i."""
        levels, sums = (self.left() * self.level).sum(axis=1), self.sums
        easiness = sums.scale_easiness[sums.reach]
        easiness = easiness - sums.scale_easiness[np.minimum(self.length, sums.reach)]
        rest = self.totals + levels + self.loading * easiness
        return np.asarray((self.known.mean + rest) / self.n_examples)  # (9)


def posterior(fitted: Fitted, active: IntArray, variance: FloatArray) -> Posterior:
    """Return the posterior of the rows' means, given V (n r, n r) of the n ``active`` rows."""
    left = fitted.left() / fitted.n_examples
    levels = (left[:, None, :] @ fitted.level_variance @ left[:, :, None])[:, 0, 0]
    sd = np.sqrt(levels + fitted.own_variance())
    covariance = _covariance(fitted, active, variance)
    sd[active] = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
    return Posterior(fitted.means(), sd, active, covariance)


def _covariance(fitted: Fitted, active: IntArray, variance: FloatArray) -> FloatArray:
    """Return the (n, n) posterior covariance of the active rows' M."""
    m, known, sums = fitted.n_examples, fitted.known, fitted.sums
    length, loading = fitted.length[active], fitted.loading[active]
    noise, at = fitted.noise[active], np.arange(len(active))
    shorter, longer = np.minimum.outer(length, length), np.maximum.outer(length, length)
    left = fitted.left()[active]
    between = (sums.scale_slope_variance[length] - sums.scale_slope_variance[shorter]) / m
    moved = -np.outer(loading, loading / noise)[:, :, None] * between
    moved[at, at] += left / m  # (10)
    moved = moved.reshape(len(active), -1)
    unseen = sums.scale_variance[-1] - sums.scale_variance[longer]
    unseen = unseen + known.noise[-1] - known.noise[sums.reach]
    rest = np.outer(loading, loading) * unseen / m**2
    effect = _loading_effect(fitted, active, left) * noise / m**2
    rest[at, at] += fitted.own_variance()[active] + effect
    return np.asarray(moved @ variance @ moved.T + rest)  # (11)


def _loading_effect(fitted: Fitted, active: IntArray, left: FloatArray) -> FloatArray:
    """Return the (n,) d_i^2 Var u_i / s_i^2 of the active rows."""
    sums, length, noise = fitted.sums, fitted.length[active], fitted.noise[active]
    gram = fitted.known.gram[length] + _LEAST_GRAM * np.eye(left.shape[1])
    absorbed = np.linalg.solve(gram, sums.slope_easiness[length][:, :, None])[:, :, 0]
    effect = sums.scale_easiness[-1] - sums.scale_easiness[length]
    effect = effect - (left * absorbed).sum(axis=1)  # (12)
    return np.asarray(effect**2 / (sums.square[length] + noise / LOADING_SPREAD))


class Model(Protocol):
    """A model of rows on one order of the examples, as ``one_factor`` describes its methods."""

    def put(self, row: int, place: int, score: float) -> None:
        """Set a row's score at a place of the order."""

    def open(self, row: int, place: int) -> None:
        """Count a place as seen, with the expected score until the score is known."""

    def fit(self, sweeps: int = 2, *, all_rows: bool = True) -> Posterior:
        """Fit the model to the scores so far; return the posterior of the rows' means."""

    def peek(self) -> Posterior:
        """Return what ``fit(all_rows=False)`` would, without changing the model."""


class Averaged:
    """Several models of the same scores, used like one; each is fitted by itself."""

    def __init__(self, models: Sequence[Model]) -> None:
        self._models = models

    def put(self, row: int, place: int, score: float) -> None:
        """Set a row's score at a place of the order."""
        for model in self._models:
            model.put(row, place, score)

    def open(self, row: int, place: int) -> None:
        """Count a place as seen, with the score that each model expects."""
        for model in self._models:
            model.open(row, place)

    def fit(self, sweeps: int = 2, *, all_rows: bool = True) -> Posterior:
        """Fit all models; return the mixture of their posteriors."""
        return mixture([model.fit(sweeps, all_rows=all_rows) for model in self._models])

    def peek(self) -> Posterior:
        """Return what ``fit(all_rows=False)`` would, without changing the models."""
        return mixture([model.peek() for model in self._models])


def mixture(parts: Sequence[Posterior]) -> Posterior:
    """Return the mixture (13) of posteriors of equal weight.

    Rows that one of them does not model jointly with others count as independent.

    Example:
        >>> one = Posterior(np.array([0.4]), np.array([0.3]), np.arange(1), np.array([[0.09]]))
        >>> two = Posterior(np.array([0.6]), np.array([0.3]), np.arange(1), np.array([[0.09]]))
        >>> both = mixture([one, two])
        >>> both.mean, both.covariance
        (array([0.5]), array([[0.1]]))
    """
    means = np.array([part.mean for part in parts])
    off = means - means.mean(axis=0)
    sd = np.sqrt(np.mean([part.sd**2 for part in parts], axis=0) + (off**2).mean(axis=0))
    active = reduce(np.intersect1d, [part.active for part in parts])
    within = [
        part.covariance[np.ix_(at, at)]
        for part in parts
        for at in [np.searchsorted(part.active, active)]
    ]
    apart = off[:, active].T @ off[:, active] / len(parts)
    return Posterior(means.mean(axis=0), sd, active, np.mean(within, axis=0) + apart)
