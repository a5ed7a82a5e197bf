"""The time that a run goes by, which tests replace by their own."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import UTC, datetime


class Clock:
    """The machine's clock."""

    def now(self) -> float:
        """Return the seconds since some fixed moment; they never go back."""
        return time.monotonic()

    def utc(self) -> str:
        """Return the date and time, ISO 8601 in UTC, to the second."""
        return datetime.now(UTC).isoformat(timespec="seconds")

    async def sleep(self, seconds: float) -> None:
        """Let ``seconds`` >= 0 pass."""
        await asyncio.sleep(seconds)


async def sleep_unless(clock: Clock, seconds: float, event: asyncio.Event) -> None:
    """Let ``seconds`` pass, which may be infinite, or less if ``event`` is set meanwhile."""
    # no timer can be set for ever
    if seconds == math.inf:
        await event.wait()
        return
    waits = {asyncio.ensure_future(clock.sleep(seconds)), asyncio.ensure_future(event.wait())}
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
