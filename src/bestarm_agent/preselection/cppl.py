"""CPPL: run the arms whose utility could be highest, by upper confidence bounds.

Algorithm 1 of the paper, CPPL(n, k, T, gamma_1, alpha, omega), and where its lines are:

    1: Initialise theta^_0 randomly                                        ``Cppl.__init__``
    2: theta-_0 = theta^_0                                                 ``Cppl.__init__``
    3: for t = 1, 2, ..., T do                                             the caller's loop
    4:    Observe the contexts X_t = (x_t1 ... x_tn)                       ``choose(contexts, k)``
    5:    v^_ti = exp(x_ti' theta-)                              (13)      ``Cppl.index``
    6:    S_t = the k arms of largest v^_ti + c_ti                         ``index``, ``choose``
    7:    Observe Y_t: who won, or a ranking                               ``learn(feedback)``
    8:    theta^_t = theta^_(t-1) + gamma_1 t^-alpha grad L(theta^_(t-1))  ``Cppl.update``
          theta-_t = (t - 1) theta-_(t-1) / t + theta^_t / t     (10)
    9: end for

with the width of section 5.3,

    c_ti = omega sqrt((2 ln t + d + 2 sqrt(d ln t)) I),   I = |Sigma^1/2 M Sigma^1/2|_op,
    M = exp(2 x' theta-) x x',   Sigma = S^-1 V S^-1 / t,
    S = mean of the Hessians of L,   V = mean of the gradients' outer products, both at theta-_i.

M has rank one, so that I = v^^2 x' Sigma x and no root of a matrix is needed.

Where this departs from the paper. The sums behind S and V begin at ``ridge`` times the identity:
the paper's S cannot be inverted in the first rounds. t counts feedbacks that say something, not
prompts: others move nothing. Arms that only ever tie are left after a while (``choose``). A router
begins at theta = 0 (``spread=0``), where all candidates are equal, instead of at random.

The bounds assume independent observations, which adaptive choice violates: they guide exploration
and guarantee nothing.

References:
    El Mesaoudi-Paul, Bengs and Hüllermeier 2020, "Online Preselection with Context Information
    under the Plackett-Luce Model". Polyak and Juditsky 1992: averaged gradient ascent. Fang, Xu and
    Yang 2018: its covariance.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt
from typing import ClassVar

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from bestarm_agent.preselection.rule import FloatArray, Preselector, RankedArms
from bestarm_agent.stats.keyed_random import KeyedRandom


class Cppl(Preselector):
    """Contextual preselection under the Plackett-Luce model.

    Args:
        n_arms, n_features, seed: as for every rule.
        spread: theta starts uniform on [0, spread]; 0 starts at zero, where every arm is equal.

    Example:
        >>> contexts = np.eye(3)
        >>> rule = Cppl(n_arms=3, n_features=3)
        >>> for draw in range(30):
        ...     best_first = np.sort(rule.choose(contexts, 2, draw))[::-1]
        ...     _ = rule.learn(RankedArms(contexts, best_first))
        >>> rule.choose(contexts, 1, 30).tolist()
        [2]
    """

    name: ClassVar[str] = "cppl"
    saved: ClassVar[Sequence[str]] = ("theta", "latest", "information", "scatter")

    # as in the paper: the width of the bounds, the rate of the first step, and how fast it falls
    omega, gamma, alpha = 1.0, 2.0, 0.6
    ridge = 1.0  # what the two sums behind the covariance start with

    def __init__(self, n_arms: int, n_features: int, seed: int = 0, *, spread: float = 1.0) -> None:
        super().__init__(n_arms, n_features, seed)
        start = KeyedRandom(seed, "preselection theta").at(0).random(n_features)
        self.latest: FloatArray = spread * start  # theta^, (line 1)
        self.theta: FloatArray = self.latest.copy()  # theta-, (line 2)
        self.information: FloatArray = self.ridge * np.eye(n_features)  # -t S, plus the ridge
        self.scatter: FloatArray = self.ridge * np.eye(n_features)  # t V, plus the ridge
        self._factor: FloatArray | None = None  # Cholesky factor of ``information``

    def index(self, contexts: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return log(v^ + c) of each arm, which orders as v^ + c does and cannot overflow."""
        # Before the first feedback ln t would be undefined; at t = 1 it is 0, and the width is that
        # of the prior.
        t, d = max(self.n_learnt, 1), self.n_features
        log_utility = contexts @ self.theta  # (line 5), log of (13)
        width = 2 * log(t) + d + 2 * sqrt(d * log(t))
        # v^ + c = v^ (1 + c / v^), and c / v^ has no exponential left: exp(x' theta) overflows for
        # long contexts, its logarithm does not.
        relative = self.omega * np.sqrt(width * self.variances(contexts))  # c / v^
        return log_utility + np.log1p(relative)  # (line 6)

    def update(self, feedback: RankedArms) -> None:
        """Take one step of averaged gradient ascent, and add to the sums of the covariance."""
        t, ordered, n_ranked = self.n_learnt, feedback.ordered, feedback.n_ranked
        step = gradient(self.latest, ordered, n_ranked)
        self.latest = self.latest + self.gamma * t**-self.alpha * step  # (line 8)
        self.theta = self.theta + (self.latest - self.theta) / t  # (10)
        # V and S are taken at the averaged theta-, after this step: that is where the paper's
        # section 5.3 has them.
        slope = gradient(self.theta, ordered, n_ranked)
        self.information -= hessian(self.theta, ordered, n_ranked)
        self.scatter += np.outer(slope, slope)

    def variances(self, contexts: FloatArray) -> FloatArray:
        """Return the (n,) x' Sigma x of the rows x of ``contexts``; O(d^2) per row.

        Of both sums, t cancels: Sigma = information^-1 scatter information^-1. Where nothing was
        seen, it is the covariance of a prior, I / ridge.
        """
        if self._factor is None:  # O(d^3 / 3), once per observation
            self._factor, failed = dpotrf(self.information, lower=1)
            if failed:
                raise ArithmeticError("the information matrix is not finite; scale the contexts")
        solved, _ = dpotrs(self._factor, contexts.T, lower=1)
        variances: FloatArray = (solved * (self.scatter @ solved)).sum(axis=0)
        return variances

    def renew(self) -> None:
        """Forget the factor: the next choice makes it."""
        self._factor = None


def gradient(theta: FloatArray, ordered: FloatArray, n_ranked: int = 1) -> FloatArray:
    """Return the (d,) gradient of the log-likelihood: winners minus expected (appendix A).

    The Plackett-Luce model draws a ranking from the top: each place goes to one of the arms left,
    with probability proportional to its utility exp(theta' x).

    Args:
        theta: (d,) parameter.
        ordered: (s, d) context vectors of the arms, the ranked ones first, best first.
        n_ranked: places known, 1 <= n_ranked <= s; s is (eq. 5), 1 is (eq. 7).
    """
    weights = -_probabilities(theta, ordered, n_ranked).sum(axis=0)  # -sum_i exp(.) / b_i
    weights[:n_ranked] += 1.0  # x of the winner of each stage
    slope: FloatArray = weights @ ordered
    return slope


def hessian(theta: FloatArray, ordered: FloatArray, n_ranked: int = 1) -> FloatArray:
    """Return the (d, d) Hessian of the log-likelihood, negative semidefinite (appendix A).

    Each stage adds minus the covariance matrix of the context vectors under its probabilities.
    """
    shares = _probabilities(theta, ordered, n_ranked)
    means = shares @ ordered  # a_i / b_i
    second = (ordered.T * shares.sum(axis=0)) @ ordered  # c / b
    curvature: FloatArray = means.T @ means - second  # aa' / bb - c / b
    return curvature


def _probabilities(theta: FloatArray, ordered: FloatArray, n_ranked: int) -> FloatArray:
    """Return the (n_ranked, s) probabilities of each arm to win each stage (eq. 6)."""
    # An arm that won an earlier stage is no longer in the race: its utility is exp(-inf) = 0.
    gone = np.arange(len(ordered)) < np.arange(n_ranked)[:, None]  # ranked at an earlier stage
    stages = np.where(gone, -np.inf, ordered @ theta)
    # Subtracting the largest exponent changes no share and keeps exp in range.
    shares: FloatArray = np.exp(stages - stages.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return shares
