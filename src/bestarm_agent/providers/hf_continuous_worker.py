"""One loaded model whose calls join and leave one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bestarm_agent.domain.exchange import Reply
from bestarm_agent.domain.spend import Usage
from bestarm_agent.errors import FailureKind
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.hf_continuous import ContinuousEngine
from bestarm_agent.providers.hf_queue import Call
from bestarm_agent.providers.hf_worker import Generation, Terms
from bestarm_agent.providers.residency import Average, Residency, Users
from bestarm_agent.providers.server_time import SharedTime


class ContinuousWorker:
    """One model, loaded while it is needed, that calls join and leave one by one.

    Attributes:
        n_loads: how often it was loaded.
        load_seconds: how long loading takes.
        call_seconds: worker seconds of a call.

    Args:
        model: its name.
        n_bytes: memory that its weights take.
        load: loads it; runs in a thread and may raise anything.
        residency: says when it may be loaded.
        terms: what holds for all workers.
    """

    def __init__(
        self,
        model: str,
        n_bytes: int,
        load: Callable[[], ContinuousEngine],
        residency: Residency,
        terms: Terms,
    ) -> None:
        self.name = model
        self.n_bytes = n_bytes
        self.n_loads = 0
        self.load_seconds = Average()
        self.call_seconds = Average()
        self._load = load
        self._residency = residency
        self._terms = terms
        self._users = Users()
        self._time = SharedTime(terms.clock, terms.max_gpu_seconds)
        self._engine: ContinuousEngine | None = None
        self._broken: str | None = None
        self._calls: set[asyncio.Task[Reply]] = set()

    @property
    def is_loaded(self) -> bool:
        """Whether the weights are in memory."""
        return self._engine is not None

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for it."""
        return self._users.n == 0

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

    async def load(self) -> None:
        """Load the model, and start generating; raises ProviderError, MODEL_NOT_FOUND."""
        if self._broken is not None:
            raise failure(FailureKind.MODEL_NOT_FOUND, self._broken)
        start = self._terms.clock()
        self._time.begin()
        try:
            self._engine = await asyncio.to_thread(self._started)
        except Exception as error:
            self._time.end()
            reason = " ".join(str(error).split()) or type(error).__name__
            self._broken = (
                f"model {self.name} cannot be loaded: {reason}; correct its folder, or take the "
                "model out of the study"
            )
            raise failure(FailureKind.MODEL_NOT_FOUND, self._broken) from error
        self.n_loads += 1
        self.load_seconds.add(self._terms.clock() - start)

    async def unload(self) -> None:
        """Stop generating, and let the weights go."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await asyncio.to_thread(engine.stop)
        self._time.end()

    async def close(self) -> None:
        """End what runs, and wait for the library's thread."""
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls)
        await self.unload()

    def _started(self) -> ContinuousEngine:
        engine = self._load()
        engine.start()
        return engine

    async def _answer(self, call: Call) -> Reply:
        submitted = self._terms.clock()
        async with self._users.join(self, self._residency):
            if self._engine is None:
                raise RuntimeError("the model is not loaded")
            generation, seconds = await self._timed(self._engine, call)
        self.call_seconds.add(seconds)
        return Reply(
            text=generation.text,
            finish=generation.finish,
            usage=Usage(input=generation.n_input, output=generation.n_output),
            usd_nanos=self._terms.price(seconds),
            seconds=self._terms.clock() - submitted,
            gpu_seconds=seconds,
            model=self.name,
        )

    async def _timed(self, engine: ContinuousEngine, call: Call) -> tuple[Generation, float]:
        ticket = self._time.enter()
        try:
            async with asyncio.timeout(self._terms.max_gpu_seconds):
                generation = await engine.answer(call)
        except TimeoutError:
            self._time.fail(ticket)
            raise failure(
                FailureKind.TIMEOUT,
                f"{self.name} did not finish within {self._terms.max_gpu_seconds:g} s; raise the "
                "provider's option `max_gpu_seconds`, or lower `max_tokens`",
            ) from None
        except BaseException:
            self._time.fail(ticket)
            raise
        return generation, self._time.leave(ticket)
