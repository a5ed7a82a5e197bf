"""The covariance matrix of the averaged estimate, from two sums that only grow."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from bestarm_agent.preselection.rules.types import FloatArray


class SandwichCovariance:
    """Plug-in covariance S^-1 V S^-1 / t of averaged stochastic gradient ascent.

    ``S`` is the mean of minus the Hessians, ``V`` the mean of the gradients' outer products; both
    are kept as sums, in which t cancels. The sums start at ``ridge`` times the identity, so that S
    stays invertible and, where nothing was seen, the covariance is that of a prior, I / ridge.

    References:
        Fang, Xu and Yang 2018, "Online bootstrap confidence intervals for the stochastic gradient
        descent estimator"; El Mesaoudi-Paul et al. 2020, section 5.3.
    """

    def __init__(self, n_features: int, ridge: float) -> None:
        if not ridge > 0:
            raise ValueError(f"ridge must be > 0, got {ridge}")
        # (d, d) sum of minus the Hessians, plus the ridge
        self.information: FloatArray = ridge * np.eye(n_features)
        # (d, d) sum of the gradients' outer products, plus the ridge
        self.scatter: FloatArray = ridge * np.eye(n_features)
        self._factor: FloatArray | None = None

    def add(self, gradient: FloatArray, hessian: FloatArray) -> None:
        """Add one observation's (d,) gradient and (d, d) Hessian; O(d^2)."""
        self.information -= hessian
        self.scatter += np.outer(gradient, gradient)
        self._factor = None

    def set(self, information: FloatArray, scatter: FloatArray) -> None:
        """Replace both sums."""
        self.information, self.scatter, self._factor = information, scatter, None

    def variances(self, contexts: FloatArray) -> FloatArray:
        """Return the (n,) x' S^-1 V S^-1 x / t of the rows x of ``contexts``; O(d^2) per row.

        The operator norm of the rank-one matrix Σ^1/2 x x' Σ^1/2 is x' Σ x: no root is needed.
        """
        if self._factor is None:  # O(d^3 / 3), once per observation
            self._factor, failed = dpotrf(self.information, lower=1)
            if failed:
                raise ArithmeticError("the information matrix is not finite; scale the contexts")
        solved, _ = dpotrs(self._factor, contexts.T, lower=1)
        variances: FloatArray = (solved * (self.scatter @ solved)).sum(axis=0)
        return variances
