"""Time, places for calls in flight, and what calls wait for, told to people.

Time is injected: tests bring their own.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from bestarm_agent.providers.base import Provider

_CACHE_SECONDS = 300.0  # that providers keep the beginning of a prompt after its last use


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
    waits = {
        asyncio.ensure_future(clock.sleep(seconds)),
        asyncio.ensure_future(event.wait()),
    }
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


class StopFlag:
    """The wish that a study ends: one flag that every stage of it reads, whoever sets it.

    Its first run, the run that confirms a winner and the calls of proposers read the same one. It
    stays set until the call of ``Study.run`` that it ended, or kept from beginning, returns.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._wake: list[Callable[[], None]] = []

    def set(self) -> None:
        """Ask for the end, and wake what may be waiting."""
        self.is_set = True
        for wake in self._wake:
            wake()

    def clear(self) -> None:
        """Let the next run begin."""
        self.is_set = False

    def wakes(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` whenever it is set."""
        self._wake.append(wake)


class PromptCaches:
    """Lets the first call with a long beginning fill a provider's cache before others read it.

    Calls that are sent together all pay for what only the first one has to write.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.filling: dict[Hashable, asyncio.Event] = {}  # set when the first call has ended
        self._until: dict[Hashable, float] = {}  # when a cache that was filled is given up

    @contextmanager
    def sent(self, prefix: Hashable) -> Iterator[None]:
        """Note that a call is under way, which was answered if the block ends without an error."""
        event = None
        # The first call of a beginning, and the first one after the provider has dropped it. A call
        # that fails leaves ``_until`` as it was: it may have filled nothing, so the next is the
        # first.
        if prefix not in self.filling and self._until.get(prefix, 0.0) <= self._clock.now():
            event = self.filling[prefix] = asyncio.Event()
        try:
            yield
            self._until[prefix] = self._clock.now() + _CACHE_SECONDS
        finally:
            if event is not None:
                del self.filling[prefix]
                event.set()


class Gate:
    """A semaphore that tells how many places are free.

    New work calls ``enter`` after checking ``free``. Work that returns from a backoff queues, and
    goes before new work: while anyone queues, no place is free.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"in_flight must be at least 1, got {capacity}")
        self.capacity = capacity
        self.inside = 0
        self.queue: deque[Slot] = deque()  # return when a place is free

    @property
    def free(self) -> int:
        """The number of calls that may enter now, >= 0."""
        return max(0, self.capacity - self.inside)

    def enter(self) -> None:
        """Enter without waiting; the caller has checked ``free``."""
        self.inside += 1

    def leave(self) -> None:
        """Leave, and let the longest-waiting call in."""
        self.inside -= 1
        # The one let in may find another of its gates full, and queue there instead: then this
        # place goes to the next.
        while self.queue and self.free:
            self.queue.popleft().enter_or_queue()


class Slot:
    """One call's places in several gates, given up while it waits for something else.

    Its places are taken at once. Were they taken one by one and given back when another is full,
    two calls that return could hand a place to each other forever; were they kept, a judge call,
    which keeps one gate's place and waits for another's, could be a deadlock.

    Attributes:
        inside: whether every gate is entered.
    """

    def __init__(
        self, *gates: Gate, inside: bool = True, when_left: Callable[[], None] | None = None
    ) -> None:
        """Enter gates with free places, or not yet; ``when_left`` is called at each leaving."""
        self.inside = inside
        self._gates = gates
        self._when_left = when_left
        self._returned: asyncio.Future[None] | None = None
        for gate in gates if inside else ():
            gate.enter()

    def keep_last(self) -> None:
        """Leave every gate but the last: the call is over, and its judging goes on."""
        if self.inside:
            # The order of a slot's gates matters for this alone: the run's is the last.
            others, self._gates = self._gates[:-1], self._gates[-1:]
            self._leave(others)

    def leave(self) -> None:
        """Leave every gate; do nothing if outside."""
        if self.inside:
            self.inside = not self._gates
            self._leave(self._gates)

    def _leave(self, gates: Sequence[Gate]) -> None:
        for gate in gates:
            gate.leave()
        if self._when_left is not None:
            self._when_left()

    async def reenter(self) -> None:
        """Wait until every gate has a free place, then enter all."""
        if self.inside:
            return
        # Whoever leaves a place enters all gates for this call in the same step
        # (``enter_or_queue``), so that nobody else can take one before this call wakes up.
        self._returned = asyncio.get_running_loop().create_future()
        self.enter_or_queue()
        try:
            await self._returned
        except asyncio.CancelledError:
            self.leave()  # the places may have been handed over already
            raise

    def enter_or_queue(self) -> None:
        """Enter every gate, or queue at one that is full; do nothing if nobody waits any more."""
        if self._returned is None or self._returned.done():
            return
        # It queues at one full gate only. When that has a place, all are looked at again, so a call
        # may queue several times, at the end each time.
        full = next((gate for gate in self._gates if not gate.free), None)
        if full is not None:
            full.queue.append(self)
            return
        for gate in self._gates:
            gate.enter()
        self.inside = True
        self._returned.set_result(None)


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
