"""What a pull of each candidate can be expected to cost, and what it therefore counts.

For a given sum of c_i n_i, the difference of two means is estimated best with n_i proportional to
sigma_i / sqrt(c_i) (Cochran 1977, "Sampling Techniques", section 5.5: optimum allocation under a
linear cost). Kanarios, Zhang & Ying 2024, "Cost Aware Best Arm Identification" (arXiv 2402.16710),
build an algorithm on that square-root rule and prove it optimal for two Gaussian candidates. So a
rule that spreads pulls counts a pull of i as w_i = sqrt(c_i / c) pulls.
"""

from __future__ import annotations

import numpy as np

from bestarm_agent.selectors.table import ScoreTable
from bestarm_agent.selectors.types import FloatArray, State

_MOST_SPREAD = 1e4  # of costs: a pull never counts as more than 100 of another


def expected_costs(prior: FloatArray, table: ScoreTable) -> FloatArray:
    """(K,) expected cost of one more pull, > 0.

    The candidate's own mean cost, in which the prior counts as one pull. Priors made from upper
    bounds are all too high alike, so they are scaled by what the pulls told so far cost, all
    candidates together, over what the prior expected of the same pulls.

    Args:
        prior: (K,) cost of one pull as expected before any was made, > 0.
        table: what was asked and told.

    Example:
        >>> from bestarm_agent.selectors.types import Ask, Pair, Tell
        >>> table = ScoreTable(2, 3)
        >>> table.ask(Ask(0, Pair(0, 0), None, ""))
        >>> _ = table.tell(Tell(0, State.DONE, 1.0, cost=0.5))
        >>> expected_costs(np.array([1.0, 10.0]), table)  # costs are half of what was expected
        array([0.5, 5. ])
    """
    n_told = table.n_trials - table.count(State.PENDING)
    foreseen, spent = float(n_told @ prior), float(table.spent.sum())
    scale = spent / foreseen if foreseen > 0 and spent > 0 else 1.0
    expected = (scale * prior + table.spent) / (1 + n_told)
    floored: FloatArray = np.maximum(expected, expected.max(initial=0.0) / _MOST_SPREAD)
    return floored


def pull_weights(expected: FloatArray) -> FloatArray:
    """(K,) what one pull of each candidate counts: sqrt(c_i / c), c being the geometric mean.

    Example:
        >>> pull_weights(np.array([1.0, 4.0, 16.0]))
        array([0.5, 1. , 2. ])
    """
    weights: FloatArray = np.sqrt(expected / np.exp(np.log(expected).mean()))
    return weights
