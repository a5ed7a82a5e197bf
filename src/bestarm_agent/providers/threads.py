"""Threads for programs that block; one that hangs delays neither the run nor its end."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
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
        self._slots = asyncio.Semaphore(max_threads)
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self, work: Callable[[], _T], name: str) -> _T:
        """Return the result of ``work``, or raise its exception."""
        await self._slots.acquire()
        loop = asyncio.get_running_loop()
        result: Future[_T] = Future()
        context = contextvars.copy_context()

        def main() -> None:
            try:
                settle = partial(result.set_result, context.run(work))
            except BaseException as error:
                failed = error
                if isinstance(error, StopIteration) or not isinstance(error, Exception):
                    # futures do not accept these
                    failed = RuntimeError(f"{type(error).__name__}: {error}")
                settle = partial(result.set_exception, failed)
            with suppress(InvalidStateError):  # it was cancelled
                settle()
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._finish)

        self._running += 1
        self._idle.clear()
        threading.Thread(target=main, name=name, daemon=True).start()
        return await asyncio.wrap_future(result)

    async def close(self, grace_seconds: float) -> None:
        """Wait for running threads, up to ``grace_seconds``."""
        try:
            async with asyncio.timeout(grace_seconds):
                await self._idle.wait()
        except TimeoutError:
            _log.warning("%d blocking calls did not end and were left behind", self._running)

    def _finish(self) -> None:
        self._running -= 1
        self._slots.release()
        if self._running == 0:
            self._idle.set()
