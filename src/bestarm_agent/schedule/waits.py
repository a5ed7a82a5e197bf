"""Why calls wait, for people: a run that looks stuck is the complaint about every evaluator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bestarm_agent.providers.base import LoadsModels, Provider


@dataclass(frozen=True, slots=True)
class Wait:
    """Calls of one provider or model that wait for the same reason.

    Attributes:
        provider: the provider's name, or "provider/model".
        reason: "backing off after: overloaded", "rate limited until 12:03:10", ...
        count: how many calls wait; 0 if calls are held back before they are even asked for.
        seconds: until the first of them goes on, >= 0; None if nobody knows.
    """

    provider: str
    reason: str
    count: int
    seconds: float | None


class WaitBoard:
    """Where waiting calls say so."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[str, str, float]] = {}
        self._next_id = 0
        self._watched: list[Callable[[], Wait | None]] = []

    def watch(self, source: Callable[[], Wait | None]) -> None:
        """Ask ``source`` too whenever somebody wants to know."""
        self._watched.append(source)

    @contextmanager
    def waiting(self, provider: str, reason: str, until: float) -> Iterator[None]:
        """Be listed until the block ends; ``until`` is in the clock's seconds."""
        self._next_id += 1
        me = self._next_id
        self._waiting[me] = (provider, reason, until)
        try:
            yield
        finally:
            del self._waiting[me]

    def summary(self, now: float) -> tuple[Wait, ...]:
        """Group what waits by provider and reason, the soonest first."""
        groups: dict[tuple[str, str], list[float]] = {}
        for provider, reason, until in self._waiting.values():
            groups.setdefault((provider, reason), []).append(until)
        waits = [
            Wait(provider, reason, len(untils), max(0.0, min(untils) - now))
            for (provider, reason), untils in groups.items()
        ]
        waits += [wait for source in self._watched if (wait := source()) is not None]
        return tuple(sorted(waits, key=lambda w: math.inf if w.seconds is None else w.seconds))


def loading_wait(provider: Provider) -> Wait | None:
    """Say which of a provider's models are being loaded; None if there are none.

    A first look at a large model takes minutes in which nothing else can be seen to happen.
    """
    if not isinstance(provider, LoadsModels) or not (models := provider.loading):
        return None
    more = f" and {len(models) - 1} more" if len(models) > 1 else ""
    return Wait(provider.name, f"is loading {models[0]}{more}", 0, None)
