from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.stats.moments import RunningMoments


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 1)), max_size=50))
def test_agree_with_numpy(pushes: list[tuple[int, float]]) -> None:
    moments = RunningMoments(3)
    for row, value in pushes:
        moments.push(row, value)
    for row in range(3):
        values = [value for r, value in pushes if r == row]
        assert moments.n[row] == len(values)
        np.testing.assert_allclose(moments.mean[row], np.mean(values) if values else 0, atol=1e-9)
        np.testing.assert_allclose(moments.std[row], np.std(values) if values else 0, atol=1e-7)
