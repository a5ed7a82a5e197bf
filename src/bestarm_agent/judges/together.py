"""Several of a judge's calls at once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from bestarm_agent.errors import JudgeError

T = TypeVar("T")


async def together(asked: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all at once; if some fail, raise one of the errors after all have ended.

    What is on its way is paid for: one failure does not cut the others off.
    """
    done: dict[int, T] = {}
    failed: dict[int, Exception] = {}

    async def end(i: int, one: Coroutine[Any, Any, T]) -> None:
        try:
            done[i] = await one
        except Exception as error:  # raised below, once all have ended
            failed[i] = error

    async with asyncio.TaskGroup() as group:
        for i, one in enumerate(asked):
            group.create_task(end(i, one))
    if failed:
        # what stops the whole run says more than a verdict that could not be got
        raise min(failed.items(), key=lambda one: (isinstance(one[1], JudgeError), one[0]))[1]
    return [done[i] for i in range(len(asked))]
