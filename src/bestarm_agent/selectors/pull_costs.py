"""Expected costs of pulls, and how rules that spread pulls weigh them.

For a given sum of c_i n_i, the difference of two means is estimated best with n_i proportional to
sigma_i / sqrt(c_i) (Cochran 1977, "Sampling Techniques", section 5.5). Kanarios, Zhang & Ying 2024,
"Cost Aware Best Arm Identification" (arXiv 2402.16710), prove that square-root rule optimal for two
Gaussian candidates. So a rule that spreads pulls counts a pull of i as w_i = sqrt(c_i / c) pulls.
"""

from __future__ import annotations

import numpy as np

from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import FloatArray, State

_MOST_SPREAD = 1e4  # of costs: a pull never counts as more than 100 of another


def expected_costs(prior: FloatArray, table: ScoreTable) -> FloatArray:
    """(K,) expected cost of one more pull, > 0, given the ``prior`` (K,) costs, > 0.

    A candidate's own mean cost, in which the prior counts as one pull. Priors made from upper
    bounds are all too high, so they are scaled by the cost of the pulls so far, all candidates
    together, over what the prior expected of the same pulls.
    """
    n_told = table.n_trials - table.count(State.PENDING)
    foreseen, spent = float(n_told @ prior), float(table.spent.sum())
    scale = spent / foreseen if foreseen > 0 and spent > 0 else 1.0
    expected = (scale * prior + table.spent) / (1 + n_told)
    floored: FloatArray = np.maximum(expected, expected.max(initial=0.0) / _MOST_SPREAD)
    return floored


def pull_weights(expected: FloatArray) -> FloatArray:
    """(K,) weights sqrt(c_i / c) of one pull of each candidate, c being the geometric mean."""
    weights: FloatArray = np.sqrt(expected / np.exp(np.log(expected).mean()))
    return weights
