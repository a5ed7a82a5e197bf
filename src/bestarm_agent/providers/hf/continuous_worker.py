"""A worker whose calls join and leave the batch one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.errors import FailureKind
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.gpu_time import SharedTime
from bestarm_agent.providers.hf.batch_queue import Call
from bestarm_agent.providers.hf.continuous_engine import ContinuousEngine
from bestarm_agent.providers.hf.worker import Generation, Worker, WorkerSettings
from bestarm_agent.providers.model_memory import ModelMemory, UseCount


class ContinuousWorker(Worker[ContinuousEngine]):
    """Runs one model that calls join and leave; the arguments are those of ``Worker``."""

    def __init__(
        self,
        model: str,
        load: Callable[[], ContinuousEngine],
        memory: ModelMemory,
        settings: WorkerSettings,
    ) -> None:
        super().__init__(model, load, memory, settings)
        self._uses = UseCount()
        self._time = SharedTime(settings.clock, settings.max_gpu_seconds)
        self._calls: set[asyncio.Task[Reply]] = set()

    @property
    def is_idle(self) -> bool:
        """True if no call waits for it."""
        return self._uses.n == 0

    async def submit(self, call: Call) -> Reply:
        """Answer one call; raises ProviderError."""
        task = asyncio.create_task(self._answer(call))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        try:
            return await task
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def _start(self) -> ContinuousEngine:
        self._time.begin()
        engine = await asyncio.to_thread(self._load)
        await asyncio.to_thread(engine.start)
        return engine

    async def unload(self) -> None:
        """Stop generating, and release the weights."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await asyncio.to_thread(engine.stop)
        self._time.end()

    async def close(self) -> None:
        """Cancel all calls, and wait for the library's thread."""
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls)
        await self.unload()

    async def _answer(self, call: Call) -> Reply:
        async with self._uses.join(self, self._memory):
            if self._engine is None:
                raise RuntimeError("the model is not loaded")
            began = self._settings.clock()
            generation, seconds = await self._generate(self._engine, call)
            took = self._settings.clock() - began
        self.call_seconds.add(seconds)
        return self._reply(generation, seconds, took)

    async def _generate(self, engine: ContinuousEngine, call: Call) -> tuple[Generation, float]:
        ticket = self._time.enter()
        try:
            async with asyncio.timeout(self._settings.max_gpu_seconds):
                generation = await engine.answer(call)
        except TimeoutError:
            self._time.fail(ticket)
            raise failure(
                FailureKind.TIMEOUT,
                f"{self.name} did not finish within {self._settings.max_gpu_seconds:g} s; raise "
                "the provider's option `max_gpu_seconds`, or lower `max_tokens`",
            ) from None
        except BaseException:
            self._time.fail(ticket)
            raise
        return generation, self._time.leave(ticket)
