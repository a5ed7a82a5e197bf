"""Threads for code of users and plug-ins; whatever it raises arrives, and ends the wait for it."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

_T = TypeVar("_T")

_log = logging.getLogger(__name__)


class DaemonThreads:
    """Runs blocking functions, each in a daemon thread of its own, ``max_threads`` at once.

    A thread cannot be stopped from outside: when a call is cancelled, its function runs on to its
    end, keeps its slot until then, and its result is dropped. (The standard library's pools wait
    for such a function at the end of the process; daemon threads do not.)
    """

    def __init__(self, max_threads: int) -> None:
        self._max_threads = max_threads
        self._slots = asyncio.Semaphore(max_threads)

    async def run(self, work: Callable[[], _T], name: str) -> _T:
        """Return the result of ``work``, or raise its exception, or one that it is the cause of."""
        # Taken here, but given back by ``finish``, when the function has ended: a cancelled call
        # whose function still runs keeps its slot, or else any number of threads could pile up.
        await self._slots.acquire()
        # A thread starts with an empty context, while programs read context variables, such as a
        # trace's.
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        result: asyncio.Future[_T] = loop.create_future()

        def main() -> None:
            try:
                settle = partial(result.set_result, context.run(work))
            except BaseException as error:
                failed = error
                if isinstance(error, StopIteration) or not isinstance(error, Exception):
                    # futures do not accept these
                    failed = RuntimeError(f"{type(error).__name__}: {error}")
                    failed.__cause__ = error
                settle = partial(result.set_exception, failed)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(finish, settle)

        def finish(settle: Callable[[], None]) -> None:
            self._slots.release()
            if not result.done():  # else it was cancelled
                settle()

        threading.Thread(target=main, name=name, daemon=True).start()
        return await result

    async def close(self, grace_seconds: float) -> None:
        """Wait for running threads, up to ``grace_seconds``; no other may be started any more."""
        n_running = self._max_threads
        try:
            async with asyncio.timeout(grace_seconds):
                while n_running:
                    await self._slots.acquire()
                    n_running -= 1
        except TimeoutError:
            _log.warning("%d blocking calls did not end and were left behind", n_running)
