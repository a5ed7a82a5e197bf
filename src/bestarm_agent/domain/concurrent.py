"""Coroutines that run at the same time, and the connections that they may hold."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TypeVar

T = TypeVar("T")
_OWN_FILES = 64  # open files besides connections: the store, modules, reports
_ENOUGH_FILES = 65_536


async def together(coroutines: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """Run coroutines at the same time, and return their results in their order.

    The first error cancels the others and, once they have ended, is raised as it is: not in an
    exception group.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except ExceptionGroup as several:
        # Callers catch our errors by their class; an exception group would pass them by.
        raise several.exceptions[0] from several
    return [task.result() for task in tasks]


def most_connections() -> int:
    """Raise the soft limit of open files, and return how many connections may be open at once.

    Half of what is left, since as many may be idle.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return _ENOUGH_FILES
    # Many systems start processes with 256 or 1,024 files allowed, and let them raise that
    # themselves.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    limit = _ENOUGH_FILES if soft == resource.RLIM_INFINITY else soft
    return max(1, (limit - _OWN_FILES) // 2)
