"""Reliance on autoevaluators: factors and the observations they give.

Guesses may be wrong in any way, so a test uses them only as a control variate: with the true loss
l, the guess a of the same example and an unbiased estimate r of the mean guess,

    q_s = l + rho_s (r - a)                                            (equation 10)

has the mean of the loss for any rho_s, and a smaller variance if l and a are correlated. Several
autoevaluators have a factor each: q_s = l + sum_a rho_sa (r_a - a_a).

References:
    Park, Zecchin and Simeone (2025), sections 2.2 and 3.1; several autoevaluators are ours.
"""

from __future__ import annotations

import numpy as np

from bestarm_agent.certification.portfolio_prior import FloatArray
from bestarm_agent.errors import nearest

METHODS = ("r-eval", "r-autoeval", "r-autoeval+")

DEFAULT_FACTORS = 10  # S of the paper's experiments


def reliance_factors(method: str, n_autoevaluators: int = 1, count: int = 10) -> FloatArray:
    """Return the (S, A) reliance factors of a method, each row with a sum of at most 1.

    R-Eval has the one factor 0 (labels only), R-AutoEval the factor 1. R-AutoEval+ has ``count`` >=
    2 evenly spaced ones from 0 to 1 (equation 9); of several autoevaluators each has such a row,
    and one more relies on all of them equally. Without autoevaluators every method is R-Eval.

    Example:
        >>> reliance_factors("r-autoeval+", count=3).tolist()
        [[0.0], [0.5], [1.0]]
        >>> reliance_factors("r-autoeval+", n_autoevaluators=2, count=2).tolist()
        [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]
    """
    if method not in METHODS:
        raise ValueError(f"there is no method {method!r}; {nearest(method, METHODS)}")
    if method == "r-eval" or n_autoevaluators == 0:
        return np.zeros((1, n_autoevaluators))
    if method == "r-autoeval":
        return np.full((1, n_autoevaluators), 1 / n_autoevaluators)
    if count < 2:
        raise ValueError(f"{method} needs 2 or more reliance factors, got {count}")
    return _spread(n_autoevaluators, np.linspace(0.0, 1.0, count)[1:])


def _spread(n_autoevaluators: int, rising: FloatArray) -> FloatArray:
    """Return the row 0, then rising factors along each autoevaluator and along all together."""
    directions = np.eye(n_autoevaluators)
    if n_autoevaluators > 1:
        equal = np.full((1, n_autoevaluators), 1 / n_autoevaluators)
        directions = np.concatenate([directions, equal])
    scales = [np.outer(rising, direction) for direction in directions]
    return np.concatenate([np.zeros((1, n_autoevaluators)), *scales])
