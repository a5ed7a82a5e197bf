"""CPPL: choose the arms whose utility could be highest, by upper confidence bounds.

Suits contexts in which one linear score explains who wins; arms share what is learned about
features. The bounds assume independent observations, which adaptive choice violates: they guide
exploration and guarantee nothing.

References:
    El Mesaoudi-Paul, Bengs and Hüllermeier 2020, "Online Preselection with Context Information
    under the Plackett-Luce Model", algorithm 1 and section 5.3.
"""

from __future__ import annotations

from math import log, sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs

from bestarm_agent.preselection.rules.averaged_sgd import MaxTheta
from bestarm_agent.preselection.rules.base import Arrays
from bestarm_agent.preselection.rules.plackett_luce import gradient, hessian
from bestarm_agent.preselection.rules.types import Feedback, FloatArray, PreselectionProblem


class Cppl(MaxTheta):
    """Contextual preselection under the Plackett-Luce model.

    Args:
        problem: arms, features and seed.
        omega: width of the bounds, >= 0; the paper uses 1.
        ridge: what the two sums behind the covariance start with, > 0.
        gamma: learning rate of the first step, > 0; the paper uses 2.
        alpha: how fast the rate falls, in (1/2, 1); the paper uses 0.6.
        spread: theta starts uniform on [0, spread].

    Example:
        >>> contexts = np.eye(3)
        >>> rule = Cppl(PreselectionProblem(n_arms=3, n_features=3))
        >>> for _ in range(30):
        ...     best_first = np.sort(rule.choose(contexts, 2))[::-1]
        ...     _ = rule.learn(Feedback(contexts, best_first))
        >>> rule.choose(contexts, 1).tolist()
        [2]
    """

    name: ClassVar[str] = "cppl"

    def __init__(
        self,
        problem: PreselectionProblem,
        *,
        omega: float = 1.0,
        ridge: float = 1.0,
        gamma: float = 2.0,
        alpha: float = 0.6,
        spread: float = 1.0,
    ) -> None:
        if not 0 <= omega < np.inf:
            raise ValueError(f"omega must be >= 0, got {omega}")
        super().__init__(problem, gamma=gamma, alpha=alpha, spread=spread)
        self.omega = omega
        self._covariance = SandwichCovariance(problem.n_features, ridge)

    def _index(self, contexts: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return log(v + c), v + c = v (1 + omega sqrt(width x'Σx)); logarithms cannot overflow."""
        t, d = max(self.n_learnt, 1), self.problem.n_features
        width = 2 * log(t) + d + 2 * sqrt(d * log(t))  # (section 5.3, c)
        spread = np.sqrt(width * self._covariance.variances(contexts))
        return contexts @ self.theta + np.log1p(self.omega * spread)  # log (v + c), (line 6)

    def _learn(self, feedback: Feedback) -> None:
        super()._learn(feedback)
        seen = (self.theta, feedback.ordered, feedback.n_ranked)
        self._covariance.add(gradient(*seen), hessian(*seen))  # (section 5.3, S and V)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        sums = {"information": self._covariance.information, "scatter": self._covariance.scatter}
        return {**super()._arrays(), **sums}

    def _restore(self, arrays: Arrays) -> None:
        super()._restore(arrays)
        self._covariance.set(arrays["information"], arrays["scatter"])


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
