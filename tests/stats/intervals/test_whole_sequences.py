from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.stats.intervals.betting_bounds import bet_grid
from bestarm_agent.stats.intervals.lower_bound import LowerBound
from bestarm_agent.stats.intervals.whole_sequences import lower_bound, mean_interval


@pytest.mark.parametrize("seed", range(8))
def test_the_bound_is_that_of_one_draw_at_a_time_and_rounded_down_by_less(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, n = 300, int(rng.integers(1, 300))
    values = (rng.random(n) < rng.uniform(0.05, 0.95)).astype(float)
    slow = LowerBound(0.01, bet_grid(size, 0.01), size)
    for value in values.tolist():
        slow.push(value)
    certain = max(slow.lower, slow.total / size)
    found = lower_bound(values, 0.01, size)
    assert certain - 2.0**-12 <= found <= certain + (values.mean() - slow.lower) / 4 + 1 / n


def test_all_values_give_the_mean_and_none_give_nothing() -> None:
    values = np.array([0.0, 1.0, 0.5, 1.0])
    assert mean_interval(values, values, 0.05, 4) == (0.625, 0.625)
    assert mean_interval(values[:0], values[:0], 0.05, 4) == (0.0, 1.0)
    assert mean_interval(values - 0.0, np.ones(4), 0.05, 4) == (0.625, 1.0)


def test_each_end_has_half_of_the_error_probability() -> None:
    low = np.tile([0.0, 0.6, 1.0], 20)
    high = low + 0.2 * (low < 1.0)
    ends = mean_interval(low, high, 0.1, 200)
    assert ends == (lower_bound(low, 0.05, 200), 1.0 - lower_bound(1.0 - high, 0.05, 200))
