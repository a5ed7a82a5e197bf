"""A decision takes one thread: more of them wait for each other, and round differently."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

from bestarm_agent.selectors.auto import axes_model, chains
from bestarm_agent.selectors.rules import ucb_e_lrf
from bestarm_agent.stats.arrays import one_thread
from tests.support.selector_suite import World, WorldRun, opened


def blas_threads(package: str = "") -> set[int]:
    """Return the numbers of threads of BLAS libraries: numpy has one, and scipy another."""
    every = (found for found in threadpool_info() if found["user_api"] == "blas")
    return {found["num_threads"] for found in every if package in found["filepath"]}


def test_a_decorated_function_has_one_thread_and_gives_the_others_back() -> None:
    before = blas_threads()
    assert one_thread(blas_threads)() == {1}
    assert blas_threads() == before


@pytest.mark.parametrize(
    ("rule", "with_axes", "module", "name"),
    [
        ("auto", False, chains, "dpttrs"),
        ("auto", True, axes_model, "stars"),
        ("auto", True, chains, "dpotri"),
        ("ucb-e-lrf", False, ucb_e_lrf, "bernoulli_places"),
    ],
)
def test_models_are_fitted_on_one_thread(
    rule: str, with_axes: bool, module: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = getattr(module, name), []

    def watched(*given: object, **named: object) -> object:
        # that rule knows nothing of scipy, which may be loaded after it
        seen.append(blas_threads("numpy" if rule == "ucb-e-lrf" else ""))
        return real(*given, **named)

    monkeypatch.setattr(module, name, watched)
    axes = np.array([[i // 4, i % 4] for i in range(16)]) if with_axes else None
    selector = opened(rule, 16, 40, seed=1, axes=axes)
    WorldRun(selector, World.with_failures((16, 40), 1), 4).go(120)
    selector.answer.best()
    assert len(threadpool_info()) > 1, "numpy's and scipy's"
    assert seen
    assert set().union(*seen) == {1}
