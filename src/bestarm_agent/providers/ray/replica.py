"""One actor, as seen from here: messages to it, its health, and calls that it took along."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.base import EndpointStatus
from bestarm_agent.providers.failures import BilledError, failure


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A request on its way."""

    request: Request
    bound: Callable[[], Spend]  # returns the most that it can cost
    reply: asyncio.Future[Reply]

    def settle(self, answer: Reply | ProviderError) -> None:
        """Pass on the answer, unless the call was cancelled."""
        if self.reply.done():
            return
        if isinstance(answer, ProviderError):
            self.reply.set_exception(answer)
        else:
            self.reply.set_result(answer)


class Replica:
    """An actor with its load and health.

    Ray starts it, and again after its process or machine has died, on another machine if need be.
    """

    def __init__(
        self,
        number: int,
        provider: str,
        handle: Any,  # noqa: ANN401 - Ray's handle of an ``EngineActor``
        changed: Callable[[], None],  # called when it is up, down or broken
        clock: Callable[[], float],  # seconds since some fixed moment
    ) -> None:
        self.in_flight = 0
        self.is_up = False
        self.broken: str | None = None  # why it will never be up
        self._number = number
        self._provider = provider
        self._handle = handle
        self._changed = changed
        self._clock = clock
        self._host: str | None = None  # where it runs, or ran last
        self._went_down = asyncio.Event()
        self._n_lost = 1  # calls that it was answering when it died last
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def status(self) -> EndpointStatus:
        """Its state, for people."""
        where = f" on {self._host}" if self._host else ""
        state = None if self.is_up else FailureKind.UNREACHABLE
        return EndpointStatus(f"actor {self._number}{where}", self.in_flight, state)

    def start(self) -> None:
        """Begin to watch it: it is up as soon as Ray has started it."""
        self._spawn(self._watch())

    def send(self, calls: Sequence[Call]) -> None:
        """Send a message, and settle its calls as their answers come."""
        self.in_flight += len(calls)
        self._spawn(self._send(calls))

    async def close(self) -> None:
        """End the actor, and all that it started; its calls are not settled."""
        import ray

        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        ray.kill(self._handle)

    async def _watch(self) -> None:
        """Wait until it is up, whenever it is not; return once it is broken."""
        from ray.exceptions import RayError

        start = self._handle.start.options(max_task_retries=-1)  # waits while Ray restarts it
        while self.broken is None:
            self._went_down.clear()
            try:
                self._host = await start.remote()
                self.is_up = True
            except RayError as error:
                self.broken = _last_line(error)
            self._changed()
            if self.is_up:
                await self._went_down.wait()

    async def _send(self, calls: Sequence[Call]) -> None:
        from ray.exceptions import RayActorError

        waiting, began = dict(enumerate(calls)), self._clock()
        try:
            async for answers in self._handle.answer.remote([call.request for call in calls]):
                for place, answer in await answers:
                    self.in_flight -= 1
                    waiting.pop(place).settle(self._signed(answer))
        except RayActorError as error:
            self._lose(list(waiting.values()), self._clock() - began, error)
        except Exception as error:  # nobody waits for this task
            said = f"{self._provider}: {self.status.address} cannot answer: {_last_line(error)}"
            for call in waiting.values():
                call.settle(failure(FailureKind.INTERNAL, said))
        finally:
            self.in_flight -= len(waiting)

    def _signed(self, answer: Reply | ProviderError) -> Reply | ProviderError:
        """Record the actor with its reply, so that usage and seconds can be summed by actor."""
        if isinstance(answer, ProviderError):
            return answer
        return replace(answer, sent={**answer.sent, "actor": self._number, "host": self._host})

    def _lose(self, calls: Sequence[Call], seconds: float, error: Exception) -> None:
        """Fail the calls of a message whose actor died.

        Each is charged an equal share of the time, since nobody can tell what it took.
        """
        if self.is_up:
            self.is_up, self._n_lost = False, self.in_flight
            self._went_down.set()
            self._changed()
        for call in calls:
            lost = failure(
                FailureKind.SERVER,
                f"{self._provider}: {self.status.address} died while it answered: "
                f"{_last_line(error)}; it is started again",
            )
            call.settle(BilledError(lost, _share(call.bound(), seconds / self._n_lost)))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _share(bound: Spend, seconds: float) -> Spend:
    """Return one call of so many worker seconds, at the price in its bound and no more than it."""
    charged = min(seconds, bound.gpu_seconds)
    part = charged / bound.gpu_seconds if bound.gpu_seconds else 0.0
    return Spend(calls=1, usd_nanos=math.ceil(bound.usd_nanos * part), gpu_seconds=charged)


def _last_line(error: Exception) -> str:
    """Return the cause of an error, which Ray writes below the actor's traceback."""
    cause = getattr(error, "cause", None)
    lines = str(cause if isinstance(cause, Exception) else error).strip().splitlines()
    return " ".join(lines[-1].split()).rstrip(".") if lines else type(error).__name__
