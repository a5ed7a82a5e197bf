"""The full grids that ship with the benchmarks can be replayed, with their axes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bestarm_agent.simulation.score_matrices import load_matrix

GRIDS = Path(__file__).parents[2] / "benchmarks" / "auto" / "full_grids"


@pytest.mark.parametrize("task", ["sorting", "subtraction"])
def test_a_stored_grid_is_full_and_crossed(task: str) -> None:
    matrix = load_matrix(str(GRIDS / f"{task}.npz"), axes=("model", "prompt", "temperature"))
    assert matrix.scores.shape == (216, 300)
    assert set(np.unique(matrix.scores).tolist()) == {0.0, 1.0}
    assert matrix.axes is not None
    assert [len(np.unique(levels)) for levels in matrix.axes.T] == [9, 8, 3]
    assert len(np.unique(matrix.axes, axis=0)) == 216
