"""An event loop whose time jumps to the next timer: minutes of rate limits pass in milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

from bestarm_agent.engine.limits.clock import Clock

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class _JumpingSelector(selectors.DefaultSelector):
    """Never sleeps for a timer; tells the loop how much time it skipped."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped = 0.0  # seconds
        self.threads = 0  # calls in threads now; their ends wake the loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Poll; if nothing is ready, skip the time until the next timer."""
        if timeout is None or (self.threads and timeout > 0):
            return super().select(None)
        ready = super().select(0)
        if not ready and timeout > 0:
            self.skipped += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop that starts at time 0 and waits for nothing but real I/O.

    While ``asyncio.to_thread`` and the like are at work, time stands still. Threads made in another
    way are not waited for while a timer is pending: use it with in-memory stores.
    """

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Virtual seconds since the loop began."""
        return self._jumping.skipped

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*_Ts], _T], *args: *_Ts
    ) -> asyncio.Future[_T]:
        """Run ``func`` in a thread; time stands still until it ends."""
        future = super().run_in_executor(executor, func, *args)
        self._jumping.threads += 1
        future.add_done_callback(self._thread_ended)
        return future

    async def shutdown_default_executor(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 # the base class's
    ) -> None:
        """Wait for threads; a limit, which Python 3.12 and later set, would pass at once."""
        await super().shutdown_default_executor()

    def _thread_ended(self, _: asyncio.Future[Any]) -> None:
        self._jumping.threads -= 1


class LoopClock(Clock):
    """A ``Clock`` that shows the running loop's time, virtual or not."""

    def now(self) -> float:
        """Seconds since the loop began."""
        return asyncio.get_running_loop().time()

    def utc(self) -> str:
        """The loop's time as if it had begun with the year 2026."""
        minutes, seconds = divmod(int(self.now()), 60)
        hours, minutes = divmod(minutes, 60)
        return f"2026-01-01T{hours:02}:{minutes:02}:{seconds:02}+00:00"


def run_virtual(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end in virtual time.

    Example:
        >>> async def nap() -> float:
        ...     await asyncio.sleep(3600)
        ...     return asyncio.get_running_loop().time()
        >>> run_virtual(nap())
        3600.0
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
