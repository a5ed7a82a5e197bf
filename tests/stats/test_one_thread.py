"""Linear algebra of the default rule stays on one thread, whatever the process allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

from bestarm_agent.selectors import Problem, State, Tell, make_selector
from bestarm_agent.stats.arrays import one_thread


def blas_threads() -> set[int]:
    """Return the numbers of threads of the BLAS libraries that numpy has loaded."""
    blas = [found for found in threadpool_info() if found["user_api"] == "blas"]
    return {found["num_threads"] for found in blas if "scipy.libs" not in found["filepath"]}


def test_a_decorated_function_has_one_thread_and_gives_the_others_back() -> None:
    before = blas_threads()
    assert one_thread(blas_threads)() == {1}
    assert blas_threads() == before


@pytest.mark.parametrize("axes", [None, [[0, 0], [0, 1], [1, 0], [1, 1]]])
def test_the_default_rule_asks_and_answers_on_one_thread(
    axes: list[list[int]] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = np.linalg.inv, []

    def watched(matrix: np.ndarray[Any, Any]) -> object:
        if matrix.ndim == 2:  # stacks of tiny matrices never take more than one thread
            seen.append(blas_threads())
        return real(matrix)

    monkeypatch.setattr(np.linalg, "inv", watched)
    problem = Problem(
        4, 50, seed=1, axes=None if axes is None else np.array(axes), stop_when_separated=False
    )
    selector = make_selector("auto", problem)
    for _ in range(40):
        [ask] = selector.ask()
        selector.tell([Tell(ask.seq, State.DONE, float(ask.pair.candidate > 1))])
        selector.best()
    assert seen
    assert set().union(*seen) == {1}
