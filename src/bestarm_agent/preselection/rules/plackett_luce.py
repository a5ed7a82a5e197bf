"""The Plackett-Luce model whose utilities are log-linear in context vectors.

A ranking is drawn from the top: each place goes to one of the arms left, with probability
proportional to its utility ``v = exp(theta' x)``. Winner feedback is the first place alone.

References:
    El Mesaoudi-Paul, Bengs and Hüllermeier 2020, "Online Preselection with Context Information
    under the Plackett-Luce Model", section 3 and appendix A.
    Schäfer and Hüllermeier 2018, "Dyad ranking using Plackett-Luce models based on joint feature
    representations": the log-likelihood is concave in theta.
"""

from __future__ import annotations

import numpy as np

from bestarm_agent.preselection.rules.types import FloatArray, IntArray


def gradient(theta: FloatArray, ordered: FloatArray, n_ranked: int = 1) -> FloatArray:
    """Return the (d,) gradient of the log-likelihood: winners minus expected (appendix A).

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
    second = (ordered.T * shares.sum(axis=0)) @ ordered  # c/b
    curvature: FloatArray = means.T @ means - second  # aa'/bb - c/b
    return curvature


def draw_ranking(log_utilities: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw a ranking of all arms, best first (eq. 4), from their (s,) log-utilities.

    Sorting utilities in logs with Gumbel noise added draws from the Plackett-Luce model exactly
    (Yellott 1977).
    """
    return np.argsort(-(log_utilities + rng.gumbel(size=len(log_utilities))))


def _stages(theta: FloatArray, ordered: FloatArray, n_ranked: int) -> FloatArray:
    """Return (n_ranked, s) log-utilities at each stage; minus infinity for arms ranked before."""
    if n_ranked == 1:
        first: FloatArray = (ordered @ theta)[None]
        return first
    gone = np.arange(len(ordered)) < np.arange(n_ranked)[:, None]
    stages: FloatArray = np.where(gone, -np.inf, ordered @ theta)
    return stages


def _probabilities(theta: FloatArray, ordered: FloatArray, n_ranked: int) -> FloatArray:
    """Return the (n_ranked, s) probabilities of each arm to win each stage (eq. 6)."""
    stages = _stages(theta, ordered, n_ranked)
    shares: FloatArray = np.exp(stages - stages.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return shares
