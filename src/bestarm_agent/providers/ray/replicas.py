"""Actors, as seen from here: calls to them, their health, and the calls that they took along."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from socket import gethostname
from typing import Any

from bestarm_agent.domain.redaction import masked
from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.base import EndpointStatus, Provider
from bestarm_agent.providers.failures import BilledError, failure


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

    async def answer(self, request: Request) -> Reply | ProviderError:
        """Return the reply or the failure; an exception of any other type might not travel."""
        provider = await self._started()
        try:
            return await provider.generate(request)
        except ProviderError as error:
            return error
        except Exception as error:
            reason = f"{type(error).__name__}: {masked(str(error))}"
            return failure(FailureKind.INTERNAL, f"provider {provider.name} raised {reason}")

    async def _started(self) -> Provider:
        # After the actor's process has died, Ray makes a new one, and nothing calls ``start``
        # before the next ``answer``: whichever comes first starts the provider, once.
        async with self._starting:
            if self._provider is None:
                self._provider = await self._create(self._number).__aenter__()
        return self._provider


class Replica:
    """An actor with its load and health.

    Ray starts it, and again after its process or machine has died, on another machine if need be.
    """

    def __init__(
        self,
        number: int,
        provider: str,  # its name, for messages
        handle: Any,  # noqa: ANN401 - Ray's handle of an ``EngineActor``
        clock: Callable[[], float],  # seconds since some fixed moment
    ) -> None:
        self.in_flight = 0
        self.is_up = False
        self.broken: str | None = None  # why it will never be up
        self.handle = handle
        self._number = number
        self._provider = provider
        self._clock = clock
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

        # Two states, up and down. Going down is seen by a call that was lost (``_lost``), and
        # coming up by this one call of ``start``, which Ray repeats until the actor has been made
        # again: so nobody polls.
        start = self.handle.start.options(max_task_retries=-1)  # waits while Ray restarts it
        while self.broken is None:
            self._went_down.clear()
            try:
                self._host = await start.remote()
                self.is_up = True
            except RayError as error:
                self.broken = _last_line(error)
            # Also if it is broken: those who wait for any actor must see that there is one less to
            # wait for.
            changed.set()
            if self.is_up:
                await self._went_down.wait()

    async def answer(self, request: Request, bound: Callable[[], Spend]) -> Reply:
        """Answer a request that costs at most what ``bound`` returns; raises ProviderError."""
        from ray.exceptions import RayActorError

        began = self._clock()
        self.in_flight += 1
        try:
            answer: Reply | ProviderError = await self.handle.answer.remote(request)
        except RayActorError as error:
            raise self._lost(bound(), self._clock() - began, error) from None
        except Exception as error:
            reason = f"{self._provider}: {self.status.address} cannot answer: {_last_line(error)}"
            raise failure(FailureKind.INTERNAL, reason) from error
        finally:
            self.in_flight -= 1
        if isinstance(answer, ProviderError):
            raise answer
        # so that usage and seconds can be summed by actor
        return replace(answer, sent={**answer.sent, "actor": self._number, "host": self._host})

    def _lost(self, bound: Spend, seconds: float, error: Exception) -> BilledError:
        """Return the error of a call whose actor died ``seconds`` after it had come.

        All its calls share the time, since nobody can tell what each took, at the price in the
        bound and no more than it.
        """
        if self.is_up:
            # The first call that is lost counts all that are lost with it, itself included; the
            # others find the actor down and use that number.
            self.is_up, self._n_lost = False, self.in_flight
            self._went_down.set()
        charged = min(seconds / self._n_lost, bound.gpu_seconds)
        part = charged / bound.gpu_seconds if bound.gpu_seconds else 0.0
        spend = Spend(calls=1, usd_nanos=math.ceil(bound.usd_nanos * part), gpu_seconds=charged)
        lost = failure(
            FailureKind.SERVER,
            f"{self._provider}: {self.status.address} died while it answered: "
            f"{_last_line(error)}; it is started again",
        )
        return BilledError(lost, spend)


def _last_line(error: Exception) -> str:
    """Return the cause of an error, which Ray writes below the actor's traceback."""
    cause = getattr(error, "cause", None)
    lines = str(cause if isinstance(cause, Exception) else error).strip().splitlines()
    return " ".join(lines[-1].split()).rstrip(".") if lines else type(error).__name__
