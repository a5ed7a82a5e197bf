"""Two-sided confidence intervals for a risk, from the same bets.

The upper bound is the least target that the test certifies at level delta/2; the lower bound is 1
minus the upper bound of 1 - loss. With the universal portfolio the wealth rises with the target (so
does each factor 1 - b (q - alpha) / (M - alpha)), so the bound is found by bisection. The highest
wealth counts, so the bounds hold at all times at once.

References:
    Park, Zecchin and Simeone (2025), appendix D.5; Waudby-Smith and Ramdas (2024), section 4.4.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from bestarm_agent.certification.evidence import Method, effective_observations
from bestarm_agent.certification.portfolio_prior import BetPrior, FloatArray, chebyshev_prior

_CHUNK = 256  # rounds whose wealths are worked out at once


def risk_interval(
    losses: ArrayLike,
    guesses: ArrayLike,
    others: ArrayLike,
    *,
    delta: float,
    method: Method | None = None,
    tolerance: float = 1e-4,
) -> tuple[float, float]:
    """Return a (1 - ``delta``) confidence interval for the mean loss, valid at any stopping time.

    ``losses`` are (n,) in the order of labelling, ``guesses`` of them and mean guesses over
    ``others`` (n, A). Half of ``delta`` is on either side. Betting is by universal portfolio; the
    ends are in [0, 1], rounded outward by up to ``tolerance``.

    Example:
        >>> zeros = np.zeros((200, 1))
        >>> lower, upper = risk_interval(zeros[:, 0], zeros, zeros, delta=0.05)
        >>> lower, round(upper, 3)
        (0.0, 0.032)
    """
    method = method or Method()
    guesses, others = np.asarray(guesses, dtype=float), np.asarray(others, dtype=float)
    reliance = method.reliance(guesses.shape[1])
    observations = effective_observations(reliance, losses, guesses, others)
    tops = 1.0 + np.abs(reliance).sum(axis=1)
    prior = chebyshev_prior()
    upper = _upper(observations, tops, prior, delta / 2, tolerance)
    lower = 1.0 - _upper(1.0 - observations, tops, prior, delta / 2, tolerance)
    return min(lower, upper), max(lower, upper)


def _upper(
    observations: FloatArray, tops: FloatArray, prior: BetPrior, delta: float, tolerance: float
) -> float:
    """Return the largest target that is not certified, rounded up by at most ``tolerance``."""
    open_, closed = 0.0, 1.0  # not certified; certified, or the end of the range
    while closed - open_ > tolerance:
        middle = (open_ + closed) / 2
        if highest_log_wealth(observations, middle, tops, prior) >= -math.log(delta):
            closed = middle
        else:
            open_ = middle
    return closed


def highest_log_wealth(
    observations: FloatArray, risk: float, tops: FloatArray, prior: BetPrior
) -> float:
    """Return the logarithm of the highest wealth of a portfolio test of ``risk``.

    ``tops`` (S,) are the largest possible ``observations`` (n, S): M_s.
    """
    payoffs = (observations - risk) / (tops - risk)
    with np.errstate(divide="ignore"):
        logs = np.log(prior.masses) - math.log(len(tops)) + np.zeros((len(tops), 1))
        highest = 0.0
        for start in range(0, len(payoffs), _CHUNK):
            block = payoffs[start : start + _CHUNK, :, None]
            paths = logs + np.cumsum(np.log1p(-block * prior.nodes), axis=0)
            peak = float(paths.max())
            wealths = np.exp(paths - peak).sum(axis=(1, 2))
            highest = max(highest, peak + math.log(float(wealths.max())))
            logs = paths[-1]
    return highest
