"""A worker with one thread: calls wait in a queue and are generated in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar

from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.hf.batch_queue import BatchQueue, Call, Job
from bestarm_agent.providers.hf.worker import Generation, Worker, WorkerSettings
from bestarm_agent.providers.model_memory import ModelMemory

_T = TypeVar("_T")

_MAX_WAITS = 10


class Engine(Protocol):
    """A loaded model that generates in batches. Used by one thread at a time."""

    def generate(self, calls: Sequence[Call]) -> list[Generation | ProviderError]:
        """Answer calls of one ``max_tokens``, in their order; blocks."""

    def abort(self) -> None:
        """Stop generating at the next token; may be called from any thread."""


class StaticWorker(Worker[Engine]):
    """Runs one model in one thread of its own; the arguments are those of ``Worker``."""

    def __init__(
        self,
        model: str,
        load: Callable[[], Engine],
        memory: ModelMemory,
        settings: WorkerSettings,
    ) -> None:
        super().__init__(model, load, memory, settings)
        self._queue = BatchQueue(settings.max_batch, settings.max_batch_tokens)
        self._thread: ThreadPoolExecutor | None = None
        self._draining: asyncio.Task[None] | None = None
        self._uncharged = 0.0

    @property
    def is_idle(self) -> bool:
        """True if no call waits for it."""
        return self._draining is None

    async def submit(self, call: Call) -> Reply:
        """Answer one call; raises ProviderError."""
        self._check()
        job = Job(call, asyncio.get_running_loop().create_future(), self._settings.clock())
        self._queue.add(job)
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())
        return await job.reply

    async def load(self) -> None:
        """Load the model in the worker's thread; raises ProviderError, MODEL_NOT_FOUND."""
        await super().load()
        self._uncharged += self._last_load_seconds

    async def _start(self) -> Engine:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"hf {self.name}")
        return await self._in_thread(self._load)

    async def unload(self) -> None:
        """Release the weights, and the thread once it has nothing more to do."""
        self._engine = None
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None

    async def close(self) -> None:
        """Stop generating at the next token, and wait for the thread."""
        thread = self._thread
        for job in self._queue.take_all():
            job.reply.cancel()
        if self._engine is not None:
            self._engine.abort()
        if self._draining is not None:
            self._draining.cancel()
            await asyncio.wait([self._draining])
        await self.unload()
        if thread is not None:
            await asyncio.to_thread(thread.shutdown)

    async def _drain(self) -> None:
        try:
            await self._memory.ensure_loaded(self)
            while self._queue:
                await self._gather()
                async with self._memory.generating:
                    await self._run_batch(self._queue.take())
        except ProviderError as error:
            _fail(self._queue.take_all(), error)
        finally:
            self._draining = None
            self._memory.note_idle()

    async def _gather(self) -> None:
        """Wait while a small batch is still growing."""
        for _ in range(_MAX_WAITS):
            n_waiting = len(self._queue)
            if n_waiting >= self._settings.max_batch or self._settings.gather_seconds == 0:
                return
            await asyncio.sleep(self._settings.gather_seconds)
            if len(self._queue) == n_waiting:
                return

    async def _run_batch(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        calls = [job.call for job in jobs]
        try:
            results, seconds = await self._in_thread(partial(self._generate, calls))
            self.call_seconds.add(seconds / len(calls))
            self._settle(jobs, results, seconds)
        except asyncio.CancelledError:
            for job in jobs:
                job.reply.cancel()
            raise
        except Exception as error:
            reason = f"model {self.name} failed on {len(jobs)} calls: {error!r}"
            _fail(jobs, failure(FailureKind.INTERNAL, reason))

    def _generate(self, calls: Sequence[Call]) -> tuple[list[Generation | ProviderError], float]:
        if self._engine is None:
            raise RuntimeError("the model is not loaded")
        start = self._settings.clock()
        return self._engine.generate(calls), self._settings.clock() - start

    def _settle(
        self, jobs: list[Job], results: list[Generation | ProviderError], seconds: float
    ) -> None:
        """Return the replies; worker seconds, loading included, are split by tokens.

        Each call took as long as its batch: loading and the queue before it do not count.
        """
        batch_seconds = seconds
        n_tokens = sum(map(_n_tokens, results))
        if n_tokens:
            seconds += self._uncharged
            self._uncharged = 0.0
        for job, result in zip(jobs, results, strict=True):
            if job.reply.done():
                continue
            if isinstance(result, ProviderError):
                job.reply.set_exception(result)
                continue
            share = seconds * _n_tokens(result) / n_tokens
            # the deadline is checked between tokens; time of the last one beyond it is free
            charged = min(share, self._settings.max_gpu_seconds)
            job.reply.set_result(self._reply(result, charged, batch_seconds))

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _n_tokens(result: Generation | ProviderError) -> int:
    return 0 if isinstance(result, ProviderError) else result.n_input + result.n_output


def _fail(jobs: Sequence[Job], error: ProviderError) -> None:
    """Fail every job with an error of its own: a shared one would collect all their tracebacks."""
    for job in jobs:
        if not job.reply.done():
            job.reply.set_exception(failure(error.kind, str(error)))
