"""Async tests of the engine run in virtual time."""

from __future__ import annotations

import inspect

import pytest

from tests.support.virtual_time import run_virtual


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function to its end; leave others to pytest."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    run_virtual(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
