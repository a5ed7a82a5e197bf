"""The actor: a provider on another machine, whose calls come in messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from socket import gethostname

from bestarm_agent.domain.redaction import masked
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.base import Provider
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.ray.engine import Engine

GATHER_SECONDS = 0.005  # calls and answers wait so long at most for others to travel with


class EngineActor:
    """Runs one provider; Ray makes it an actor, and a new one after its process has died."""

    def __init__(self, engine: Engine, number: int) -> None:
        self._engine = engine
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
                self._provider = await self._engine.create(self._number).__aenter__()
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
