"""The time that a run goes by, which tests replace by their own."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from datetime import UTC, datetime


class Clock:
    """The machine's clock."""

    def now(self) -> float:
        """Return the seconds since some fixed moment; they never go back."""
        return time.monotonic()

    def utc(self) -> str:
        """Return the date and time, ISO 8601 in UTC, to the second."""
        return datetime.now(UTC).isoformat(timespec="seconds")

    async def sleep(self, seconds: float, unless: asyncio.Event | None = None) -> None:
        """Let ``seconds`` >= 0 pass, which may be infinite, or less if ``unless`` is set before."""
        with suppress(TimeoutError):
            # no timer can be set for ever
            async with asyncio.timeout(None if seconds == math.inf else seconds):
                await (unless or asyncio.Event()).wait()
