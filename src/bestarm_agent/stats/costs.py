"""The expected costs of pulls of the candidates, and what a pull counts for then.

For a given sum of c_i n_i, the difference of two means is estimated best with n_i
proportional to sigma_i / sqrt(c_i) (Cochran 1977, "Sampling Techniques", section 5.5). Kanarios,
Zhang & Ying 2024, "Cost Aware Best Arm Identification" (arXiv 2402.16710), prove that square-root
rule optimal for two Gaussian candidates. So a rule that spreads pulls counts a pull of i as
w_i = sqrt(c_i / c) pulls.
"""

from __future__ import annotations

import numpy as np

from bestarm_agent.stats.arrays import FloatArray, IntArray

_MOST_SPREAD = 1e4  # of costs: a pull never counts as more than 100 of another


def expected_costs(prior: FloatArray, n_told: IntArray, spent: FloatArray) -> FloatArray:
    """(K,) expected cost of one more pull, > 0.

    A candidate's own mean cost, in which the prior counts as one pull. Priors made from upper
    bounds are all too high, so they are scaled by the cost of the pulls so far, all candidates
    together, over what the prior expected of the same pulls.

    Args:
        prior: (K,) expected costs before any pull, > 0.
        n_told: (K,) pulls so far whose cost is known.
        spent: (K,) their costs, summed.
    """
    # One scale for all candidates: their upper bounds are made alike and so are too high by about
    # the same factor, which the first pulls tell long before every candidate has some.
    foreseen, total = float(n_told @ prior), float(spent.sum())
    scale = total / foreseen if foreseen > 0 and total > 0 else 1.0
    expected = (scale * prior + spent) / (1 + n_told)
    # Free pulls have no logarithm (``pull_weights``), and nearly free ones would take all pulls of
    # a rule that spreads them.
    floored: FloatArray = np.maximum(expected, expected.max(initial=0.0) / _MOST_SPREAD)
    return floored


def pull_weights(expected: FloatArray) -> FloatArray:
    """(K,) weights sqrt(c_i / c) of one pull of each candidate, c being the geometric mean."""
    weights: FloatArray = np.sqrt(expected / np.exp(np.log(expected).mean()))
    return weights
