"""A decision takes one thread: more of them wait for each other, and round differently."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

from bestarm_agent.selectors import Problem, make_selector
from bestarm_agent.selectors.auto import axes_model, factor_model
from bestarm_agent.selectors.rules import ucb_e_lrf
from tests.support.selector_suite import World, WorldRun


def blas_threads() -> int:
    return max(
        (one["num_threads"] for one in threadpool_info() if "numpy" in one["filepath"]), default=1
    )


def watched(function: Callable[..., Any], seen: list[int]) -> Callable[..., Any]:
    def wrapper(*given: object, **named: object) -> object:
        seen.append(blas_threads())
        return function(*given, **named)

    return wrapper


@pytest.mark.parametrize(
    ("rule", "with_axes", "module", "name"),
    [
        ("auto", False, factor_model, "weighted_sum"),
        ("auto", True, axes_model, "running"),
        ("ucb-e-lrf", False, ucb_e_lrf, "bernoulli_places"),
    ],
)
def test_models_are_fitted_on_one_thread(
    rule: str, with_axes: bool, module: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(module, name, watched(getattr(module, name), seen))
    axes = np.array([[i // 4, i % 4] for i in range(16)]) if with_axes else None
    selector = make_selector(rule, Problem(16, 40, seed=1, axes=axes, stop_when_separated=False))
    WorldRun(selector, World.with_failures((16, 40), 1), 4).go(120)
    selector.best()
    assert set(seen) == {1}
