"""Gathers calls into messages, and spreads these over the actors that are up."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import ConfigError, FailureKind, counted
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.ray.actor import GATHER_SECONDS
from bestarm_agent.providers.ray.replica import Call, Replica

# A message takes a millisecond of our processor time, whatever it holds; all calls in one message
# would leave the other actors idle.
_LEAST_CALLS, _MOST_CALLS = 16, 64


class ReplicaPool:
    """The actors of a provider, and the calls that wait for them.

    Args:
        provider: its name, for messages.
        n_replicas: actors, >= 1.
        make: makes an actor, given its number and what it must call when it is up or down.
        start_seconds: longest time without any actor that is up.
    """

    def __init__(
        self,
        provider: str,
        n_replicas: int,
        make: Callable[[int, Callable[[], None]], Replica],
        start_seconds: float,
    ) -> None:
        self.replicas = [make(number, self._note_change) for number in range(n_replicas)]
        self._provider = provider
        self._start_seconds = start_seconds
        self._waiting: list[Call] = []
        self._timer: asyncio.TimerHandle | None = None  # sends what waits, or gives it up
        self._changed = asyncio.Event()

    async def start(self) -> None:
        """Start the actors and wait for the first; the others join when they can.

        Raises ConfigError if none can be started, TimeoutError if none is in time.
        """
        for replica in self.replicas:
            replica.start()
        async with asyncio.timeout(self._start_seconds):
            while not self._is_up:
                if self._broken is not None:
                    raise ConfigError(self._broken)
                self._changed.clear()
                await self._changed.wait()

    async def close(self) -> None:
        """End the actors; calls that wait are cancelled."""
        self._stop_timer()
        for call in self._waiting:
            call.reply.cancel()
        self._waiting.clear()
        for replica in self.replicas:
            await replica.close()

    async def answer(self, request: Request, bound: Callable[[], Spend]) -> Reply:
        """Answer a request that costs at most what ``bound`` returns; raises ProviderError."""
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append(Call(request, bound, reply))
        if len(self._waiting) >= _MOST_CALLS:
            self._send()
        elif self._timer is None:
            self._set_timer()
        return await reply

    @property
    def _is_up(self) -> bool:
        return any(replica.is_up for replica in self.replicas)

    @property
    def _broken(self) -> str | None:
        """Reason why no actor will ever be up; None if one may."""
        reasons = [replica.broken for replica in self.replicas if replica.broken is not None]
        if len(reasons) < len(self.replicas):
            return None
        return f"provider `{self._provider}`: no actor can be started: {reasons[0]}"

    def _send(self) -> None:
        """Send what waits, each message to the actor with the fewest calls."""
        self._stop_timer()
        waiting = [call for call in self._waiting if not call.reply.done()]
        up = [replica for replica in self.replicas if replica.is_up]
        share = math.ceil(len(waiting) / max(1, len(up)))
        size = min(_MOST_CALLS, max(_LEAST_CALLS, share))
        while waiting and up:
            min(up, key=lambda replica: replica.in_flight).send(waiting[:size])
            waiting = waiting[size:]
        self._waiting = waiting
        if waiting:
            self._set_timer()

    def _note_change(self) -> None:
        """Send what waits to an actor that is up now, or give up if there will be none."""
        self._changed.set()
        if self._broken is not None:
            self._give_up()
        elif self._waiting:
            self._send()

    def _set_timer(self) -> None:
        self._stop_timer()
        seconds = GATHER_SECONDS if self._is_up else self._start_seconds
        act = self._send if self._is_up else self._give_up
        self._timer = asyncio.get_running_loop().call_later(seconds, act)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        """Fail the calls that wait, since no actor is up."""
        self._stop_timer()
        calls, self._waiting = self._waiting, []
        kind, said = FailureKind.MODEL_NOT_FOUND, self._broken
        if said is None:
            kind = FailureKind.UNREACHABLE
            said = (
                f"{self._provider}: none of {counted(len(self.replicas), 'actor')} was up for "
                f"{self._start_seconds:g} s (`start_seconds`)"
            )
        for call in calls:
            call.settle(failure(kind, said))
