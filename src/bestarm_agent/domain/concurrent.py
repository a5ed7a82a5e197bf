"""Coroutines that run at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TypeVar

T = TypeVar("T")


async def together(coroutines: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """Run coroutines at the same time, and return their results in their order.

    The first error cancels the others and, once they have ended, is raised as it is: not in an
    exception group.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except ExceptionGroup as several:
        raise several.exceptions[0] from several
    return [task.result() for task in tasks]
