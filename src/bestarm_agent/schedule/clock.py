"""Time, injected: tests and simulations bring their own."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the scheduler may know about time."""

    def now(self) -> float:
        """Seconds since some fixed moment, never going back."""
        ...

    def utc(self) -> str:
        """The date and time, ISO 8601 in UTC, to the second."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let ``seconds`` >= 0 pass."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        """Seconds since some fixed moment, never going back."""
        return time.monotonic()

    def utc(self) -> str:
        """The date and time, ISO 8601 in UTC, to the second."""
        return datetime.now(UTC).isoformat(timespec="seconds")

    async def sleep(self, seconds: float) -> None:
        """Let ``seconds`` >= 0 pass."""
        await asyncio.sleep(seconds)


async def sleep_unless(clock: Clock, seconds: float, event: asyncio.Event) -> None:
    """Let ``seconds`` pass, which may be infinite, or less if ``event`` is set meanwhile."""
    if seconds == math.inf:
        await event.wait()
        return
    waits = {
        asyncio.ensure_future(clock.sleep(seconds)),
        asyncio.ensure_future(event.wait()),
    }
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


@contextmanager
def alarm(seconds: float | None, event: asyncio.Event) -> Iterator[None]:
    """Set ``event`` after ``seconds`` of the event loop's time, unless the block ends before.

    At once if ``seconds`` <= 0, never if None.
    """
    if seconds is None:
        yield
        return
    timer = asyncio.get_running_loop().call_later(max(0.0, seconds), event.set)
    try:
        yield
    finally:
        timer.cancel()
