"""Marks of tests that are inherited, the order of all tests, and settings of Hypothesis."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.commands import command as command
from tests.support.rates import check_rate as check_rate
from tests.support.ray_cluster import small_cluster
from tests.support.virtual_time import run_virtual

# A process that a test starts would compile the package and all that it imports anew each time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

collect_ignore = ["support/harbor_world.py"]  # Harbor imports it, where there is one

# The same cases everywhere, and no limit on time, which a busy machine would break.
settings.register_profile(
    "any machine",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any machine")

# Tests of the conformance suites that take seconds for every rule.
SLOW = {
    "test_a_plan_for_a_budget_keeps_to_it",
    "test_a_rebuilt_selector_goes_on_alike",
    "test_it_beats_uniform_sampling_on_an_easy_problem",
    "test_the_log_says_enough_where_not_all_could_be_called",
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Start half as many workers again as there are cores: a third of their time is waiting."""
    if sys.platform != "linux" or "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None  # as pytest-xdist does by itself
    cores = len(os.sched_getaffinity(0))
    return cores + min((cores + 1) // 2, 4)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep what is loaded before the first test out of the search for garbage, for good.

    The search is as seldom as in a run, which therefore need not count the million objects that are
    frozen here: that would take longer than most tests.
    """
    gc.disable()
    yield
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark slow tests of the suites; run slow tests first, so that workers end together.

    Where coverage is measured, slow tests run without: it would make them slower still.
    """
    for item in items:
        if getattr(item, "originalname", item.name) in SLOW:
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slow") and config.pluginmanager.hasplugin("pytest_cov"):
            item.add_marker(pytest.mark.no_cover)
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function to its end; leave others to pytest.

    Those of the engine run in virtual time, but for files and sockets that they may use.
    """
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    is_virtual = "engine" in pyfuncitem.path.parts and "tmp_path" not in names
    (run_virtual if is_virtual else asyncio.run)(test)
    return True


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """A Ray cluster; one of its nodes may have died in an earlier test."""
    with small_cluster() as running:
        yield running
