"""Waits of calls, and their reasons in words for people."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bestarm_agent.providers.base import Provider


@dataclass(frozen=True, slots=True)
class Wait:
    """Calls of one provider or model that wait for the same reason."""

    provider: str  # the provider's name, or "provider/model"
    reason: str  # "backing off after: overloaded", "rate limited", ...
    count: int  # number of calls that wait; 0 if nothing is asked because of it
    seconds: float | None  # until the first of them goes on, >= 0; None if unknown


class WaitBoard:
    """Collects the waits of all calls."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, str, float]] = []
        self._watched: list[Callable[[], Wait | None]] = []

    def watch(self, source: Callable[[], Wait | None]) -> None:
        """Include what ``source`` returns in every summary."""
        self._watched.append(source)

    @contextmanager
    def waiting(self, provider: str, reason: str, until: float) -> Iterator[None]:
        """List a wait until the block ends; ``until`` is in the clock's seconds, or infinite."""
        wait = (provider, reason, until)
        self._waiting.append(wait)
        try:
            yield
        finally:
            self._waiting.remove(wait)

    def summary(self, now: float) -> tuple[Wait, ...]:
        """Return the waits by provider and reason, the soonest first."""
        groups: dict[tuple[str, str], list[float]] = {}
        for provider, reason, until in self._waiting:
            groups.setdefault((provider, reason), []).append(until)
        waits = [
            Wait(*key, len(untils), None if first == math.inf else max(0.0, first - now))
            for key, untils in groups.items()
            for first in [min(untils)]
        ]
        waits += [wait for source in self._watched if (wait := source()) is not None]
        return tuple(sorted(waits, key=lambda w: math.inf if w.seconds is None else w.seconds))


def provider_wait(provider: Provider) -> Wait | None:
    """Return a wait that names models being loaded or failing servers; None if there is none."""
    servers = provider.endpoints
    failing = [f"{s.address} fails ({s.failure})" for s in servers if s.failure is not None]
    # A model being loaded explains the silence of its provider; servers that fail, why it is slow.
    if provider.loading:
        reason = f"is loading {_first_of(provider.loading)}"
    elif failing and len(servers) > 1:
        up = len(servers) - len(failing)
        reason = f"uses {up} of {len(servers)} endpoints: {_first_of(failing)}"
    else:
        return None
    return Wait(provider.name, reason, 0, None)


def _first_of(names: Sequence[str]) -> str:
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]
