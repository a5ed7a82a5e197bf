"""Reasons why calls wait, for people who wonder whether a run is stuck."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bestarm_agent.providers.base import Provider


@dataclass(frozen=True, slots=True)
class Wait:
    """Calls of one provider or model that wait for the same reason."""

    provider: str  # the provider's name, or "provider/model"
    reason: str  # "backing off after: overloaded", "rate limited until 12:03:10", ...
    count: int  # number of calls that wait; 0 if no pair is asked because of it
    seconds: float | None  # until the first of them goes on, >= 0; None if unknown


class WaitBoard:
    """Collects the waits of all calls."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[str, str, float]] = {}
        self._next_id = 0
        self._watched: list[Callable[[], Wait | None]] = []

    def watch(self, source: Callable[[], Wait | None]) -> None:
        """Include what ``source`` returns in every summary."""
        self._watched.append(source)

    @contextmanager
    def waiting(self, provider: str, reason: str, until: float) -> Iterator[None]:
        """List a wait until the block ends; ``until`` is in the clock's seconds, or infinite."""
        self._next_id += 1
        key = self._next_id
        self._waiting[key] = (provider, reason, until)
        try:
            yield
        finally:
            del self._waiting[key]

    def summary(self, now: float) -> tuple[Wait, ...]:
        """Return the waits by provider and reason, the soonest first."""
        groups: dict[tuple[str, str], list[float]] = {}
        for provider, reason, until in self._waiting.values():
            groups.setdefault((provider, reason), []).append(until)
        waits = [
            Wait(provider, reason, len(untils), _seconds(min(untils) - now))
            for (provider, reason), untils in groups.items()
        ]
        waits += [wait for source in self._watched if (wait := source()) is not None]
        return tuple(sorted(waits, key=lambda w: math.inf if w.seconds is None else w.seconds))


def _seconds(left: float) -> float | None:
    return None if left == math.inf else max(0.0, left)


def loading_wait(provider: Provider) -> Wait | None:
    """Return a wait that names the models that a provider is loading; None if there are none."""
    if not (models := provider.loading):
        return None
    more = f" and {len(models) - 1} more" if len(models) > 1 else ""
    return Wait(provider.name, f"is loading {models[0]}{more}", 0, None)


def endpoint_wait(provider: Provider) -> Wait | None:
    """Return a wait that names a server that gets no calls; None if all get them."""
    if len(servers := provider.endpoints) < 2:
        return None
    failing = [server for server in servers if server.failure is not None]
    if not failing:
        return None
    named = f"{failing[0].address} fails ({failing[0].failure})"
    more = f" and {len(failing) - 1} more" if len(failing) > 1 else ""
    up = len(servers) - len(failing)
    return Wait(provider.name, f"uses {up} of {len(servers)} endpoints: {named}{more}", 0, None)
