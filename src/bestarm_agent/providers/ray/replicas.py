"""Actors, as seen from here: messages to them, their health, and the calls that they took along."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from socket import gethostname
from typing import Any

from bestarm_agent.domain.redaction import masked
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import ConfigError, FailureKind, ProviderError, counted
from bestarm_agent.providers.base import EndpointStatus, Provider
from bestarm_agent.providers.failures import BilledError, failure

GATHER_SECONDS = 0.005  # calls and answers wait so long at most for others to travel with
# A message takes a millisecond of our processor time, whatever it holds; all calls in one message
# would leave the other actors idle.
_LEAST_CALLS, _MOST_CALLS = 16, 64


class EngineActor:
    """Runs one provider; Ray makes it an actor, and a new one after its process has died.

    ``create`` builds the provider of the actor with a number.
    """

    def __init__(self, create: Callable[[int], Provider], number: int) -> None:
        self._create = create
        self._number = number
        self._provider: Provider | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> str:
        """Start the provider and return the machine's name; raises ConfigError."""
        await self._started()
        return gethostname()

    async def answer(
        self, requests: Sequence[Request]
    ) -> AsyncIterator[list[tuple[int, Reply | ProviderError]]]:
        """Answer the calls of a message; yield answers, with their places in it, as they come."""
        provider = await self._started()
        places = {
            asyncio.create_task(_answer(provider, request)): place
            for place, request in enumerate(requests)
        }
        pending = set(places)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if pending:
                more, pending = await asyncio.wait(pending, timeout=GATHER_SECONDS)
                done |= more
            yield [(places[task], task.result()) for task in done]

    async def _started(self) -> Provider:
        async with self._starting:
            if self._provider is None:
                self._provider = await self._create(self._number).__aenter__()
        return self._provider


async def _answer(provider: Provider, request: Request) -> Reply | ProviderError:
    """Return the reply or the failure; an exception of any other type might not travel."""
    try:
        return await provider.generate(request)
    except ProviderError as error:
        return error
    except Exception as error:
        said = f"{type(error).__name__}: {masked(str(error))}"
        return failure(FailureKind.INTERNAL, f"provider {provider.name} raised {said}")


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

    def __init__(self, number: int, provider: str, handle: Any) -> None:  # noqa: ANN401
        self.in_flight = 0
        self.is_up = False
        self.broken: str | None = None  # why it will never be up
        self.handle = handle  # Ray's, of an ``EngineActor``
        self._number = number
        self._provider = provider
        self._host: str | None = None  # where it runs, or ran last
        self._went_down = asyncio.Event()
        self._n_lost = 1  # calls that it was answering when it died last

    @property
    def status(self) -> EndpointStatus:
        """Its state, for people."""
        where = f" on {self._host}" if self._host else ""
        state = None if self.is_up else FailureKind.UNREACHABLE
        return EndpointStatus(f"actor {self._number}{where}", self.in_flight, state)

    async def watch(self, changed: asyncio.Event) -> None:
        """Wait until it is up, whenever it is not, and say so; return once it is broken."""
        from ray.exceptions import RayError

        start = self.handle.start.options(max_task_retries=-1)  # waits while Ray restarts it
        while self.broken is None:
            self._went_down.clear()
            try:
                self._host = await start.remote()
                self.is_up = True
            except RayError as error:
                self.broken = _last_line(error)
            changed.set()
            if self.is_up:
                await self._went_down.wait()

    async def send(self, calls: Sequence[Call], clock: Callable[[], float]) -> None:
        """Send a message, and settle its calls as their answers come."""
        from ray.exceptions import RayActorError

        waiting, began = dict(enumerate(calls)), clock()
        try:
            async for answers in self.handle.answer.remote([call.request for call in calls]):
                for place, answer in await answers:
                    self.in_flight -= 1
                    waiting.pop(place).settle(self._signed(answer))
        except RayActorError as error:
            self._lose(list(waiting.values()), clock() - began, error)
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
        for call in calls:
            lost = failure(
                FailureKind.SERVER,
                f"{self._provider}: {self.status.address} died while it answered: "
                f"{_last_line(error)}; it is started again",
            )
            call.settle(BilledError(lost, _share(call.bound(), seconds / self._n_lost)))


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


class ReplicaPool:
    """The actors of a provider, and the calls that wait for others to travel with."""

    def __init__(
        self,
        provider: str,  # its name, for messages
        handles: Sequence[Any],  # Ray's, of at least one ``EngineActor``
        start_seconds: float,  # longest time without any actor that is up
        clock: Callable[[], float],  # seconds since some fixed moment
    ) -> None:
        self.replicas = [Replica(i, provider, handle) for i, handle in enumerate(handles)]
        self._provider = provider
        self._start_seconds = start_seconds
        self._clock = clock
        self._waiting: list[Call] = []
        self._timer: asyncio.TimerHandle | None = None  # sends what waits
        self._changed = asyncio.Event()  # an actor is up, or broken
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start the actors and wait for the first; the others join when they can.

        Raises ConfigError if none can be started, TimeoutError if none is in time.
        """
        for replica in self.replicas:
            self._spawn(replica.watch(self._changed))
        await self._any_up()

    async def close(self) -> None:
        """End the actors, and all that they started; calls that wait are cancelled."""
        import ray

        if self._timer is not None:
            self._timer.cancel()
        for call in self._waiting:
            call.reply.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for replica in self.replicas:
            ray.kill(replica.handle)

    async def answer(self, request: Request, bound: Callable[[], Spend]) -> Reply:
        """Answer a request that costs at most what ``bound`` returns; raises ProviderError."""
        try:
            await self._any_up()
        except ConfigError as error:
            raise failure(FailureKind.MODEL_NOT_FOUND, str(error)) from None
        except TimeoutError:
            raise failure(
                FailureKind.UNREACHABLE,
                f"{self._provider}: none of {counted(len(self.replicas), 'actor')} was up for "
                f"{self._start_seconds:g} s (`start_seconds`)",
            ) from None
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append(Call(request, bound, reply))
        if len(self._waiting) >= _MOST_CALLS:
            self._send()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._send)
        return await reply

    async def _any_up(self) -> None:
        """Wait for an actor that is up; raises as ``start`` does."""
        async with asyncio.timeout(self._start_seconds):
            while not any(replica.is_up for replica in self.replicas):
                reasons = [one.broken for one in self.replicas if one.broken is not None]
                if len(reasons) == len(self.replicas):
                    raise ConfigError(
                        f"provider `{self._provider}`: no actor can be started: {reasons[0]}"
                    )
                self._changed.clear()
                await self._changed.wait()

    def _send(self) -> None:
        """Send what waits, each message to the actor with the fewest calls."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = [call for call in self._waiting if not call.reply.done()]
        self._waiting = []
        # where the last one has died since the calls came, Ray tells them so
        up = [replica for replica in self.replicas if replica.is_up] or self.replicas
        size = min(_MOST_CALLS, max(_LEAST_CALLS, math.ceil(len(waiting) / len(up))))
        while waiting:
            chosen = min(up, key=lambda replica: replica.in_flight)
            chosen.in_flight += len(waiting[:size])
            self._spawn(chosen.send(waiting[:size], self._clock))
            waiting = waiting[size:]

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
