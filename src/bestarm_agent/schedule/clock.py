"""Time, injected: tests and simulations bring their own."""

from __future__ import annotations

import asyncio
import time
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
