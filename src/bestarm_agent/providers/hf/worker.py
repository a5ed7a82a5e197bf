"""Runs one model in one thread: calls wait in a queue and are generated in batches."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Protocol, TypeVar

from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.domain.spend import Usage
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.hf.generate import Call, Generation
from bestarm_agent.providers.local import LocalModel, ModelMemory

_T = TypeVar("_T")

_MAX_WAITS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A call with the future of its reply; ``submitted`` is its time of arrival."""

    call: Call
    reply: asyncio.Future[Reply]
    submitted: float


class BatchQueue:
    """Waiting calls, taken in batches.

    A batch runs until its longest reply is done, so only calls of one ``max_tokens`` share it; all
    else about sampling may differ from row to row. A batch always holds the oldest call.

    Args:
        max_batch: most calls in a batch, >= 1.
        max_tokens: most tokens in a batch, prompts (counted in characters) padded to the longest
            and replies included; a larger call goes alone.
    """

    def __init__(self, max_batch: int, max_tokens: int) -> None:
        self._max_batch = max_batch
        self._max_tokens = max_tokens
        self._groups: dict[int, list[Job]] = {}

    def __len__(self) -> int:
        return sum(len(group) for group in self._groups.values())

    def add(self, job: Job) -> None:
        """Add a call."""
        self._groups.setdefault(job.call.sampling.max_tokens, []).append(job)

    def take(self) -> list[Job]:
        """Remove the next batch and return it; cancelled calls are dropped."""
        self._drop(lambda job: job.reply.done())
        if not self._groups:
            return []
        group = min(self._groups.values(), key=lambda jobs: jobs[0].submitted)
        batch = self._around_oldest(group)
        taken = set(map(id, batch))
        self._drop(lambda job: id(job) in taken)
        return batch

    def take_all(self) -> list[Job]:
        """Remove all calls and return them."""
        jobs = [job for group in self._groups.values() for job in group]
        self._groups.clear()
        return jobs

    def _drop(self, is_gone: Callable[[Job], bool]) -> None:
        for key, group in list(self._groups.items()):
            self._groups[key] = [job for job in group if not is_gone(job)]
            if not self._groups[key]:
                del self._groups[key]

    def _around_oldest(self, group: list[Job]) -> list[Job]:
        """Return calls of similar length: first shorter ones, which need no more padding."""
        oldest = group[0]
        length = attrgetter("call.length")
        by_length = sorted(group, key=length)
        start = by_length.index(oldest, bisect_left(by_length, length(oldest), key=length))
        stop = start + 1
        while start > 0 and self._fits(stop - start + 1, oldest):
            start -= 1
        while stop < len(by_length) and self._fits(stop - start + 1, by_length[stop]):
            stop += 1
        return by_length[start:stop]

    def _fits(self, n_rows: int, longest: Job) -> bool:
        n_tokens = longest.call.length + longest.call.sampling.max_tokens
        return n_rows <= self._max_batch and n_rows * n_tokens <= self._max_tokens


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Settings of all workers of a provider."""

    max_batch: int  # most calls generated together, >= 1
    max_batch_tokens: int  # most tokens of a batch
    gather_seconds: float  # time that a small batch waits for more calls
    max_gpu_seconds: float  # most worker seconds that one call is charged
    price: Callable[[float], int]  # nano-dollars that worker seconds cost
    clock: Callable[[], float]  # seconds since some fixed moment


class Engine(Protocol):
    """A loaded model that generates in batches. Used by one thread at a time."""

    def generate(self, calls: Sequence[Call]) -> list[Generation | ProviderError]:
        """Answer calls of one ``max_tokens``, in their order; blocks."""

    def abort(self) -> None:
        """Stop generating at the next token; may be called from any thread."""


class Worker(LocalModel):
    """Runs one model in a thread of its own, loaded while it is needed."""

    def __init__(
        self,
        model: str,
        load: Callable[[], Engine],  # loads it; runs in the thread and may raise anything
        memory: ModelMemory,  # decides when it may be loaded
        generating: asyncio.Semaphore,  # bounds the models that generate at once
        settings: WorkerSettings,
    ) -> None:
        super().__init__(model)
        self._load = load
        self._memory = memory
        self._generating = generating
        self._settings = settings
        self._queue = BatchQueue(settings.max_batch, settings.max_batch_tokens)
        self._engine: Engine | None = None
        self._broken: str | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._draining: asyncio.Task[None] | None = None
        self._uncharged = 0.0  # seconds of loading that no call was charged yet

    @property
    def is_loaded(self) -> bool:
        """True if the weights are in memory."""
        return self._engine is not None

    async def submit(self, call: Call) -> Reply:
        """Answer one call; raises ProviderError."""
        self._check()
        job = Job(call, asyncio.get_running_loop().create_future(), self._settings.clock())
        self._queue.add(job)
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())
        return await job.reply

    async def load(self) -> None:
        """Load the model in its thread; raises ProviderError, MODEL_NOT_FOUND, if it cannot be."""
        self._check()
        start = self._settings.clock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"hf {self.name}")
        try:
            self._engine = await self._in_thread(self._load)
        except Exception as error:
            await self.unload()
            reason = " ".join(str(error).split()) or type(error).__name__
            self._broken = (
                f"model {self.name} cannot be loaded: {reason}; correct its folder, or take the "
                "model out of the study"
            )
            raise failure(FailureKind.MODEL_NOT_FOUND, self._broken) from error
        seconds = self._settings.clock() - start
        self.n_loads += 1
        self.load_seconds.add(seconds)
        self._uncharged += seconds

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

    def _check(self) -> None:
        if self._broken is not None:
            raise failure(FailureKind.MODEL_NOT_FOUND, self._broken)

    async def _drain(self) -> None:
        try:
            async with self._memory.hold(self):
                while self._queue:
                    await self._gather()
                    async with self._generating:
                        await self._run_batch(self._queue.take())
        except ProviderError as error:
            _fail(self._queue.take_all(), error)
        finally:
            self._draining = None

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

    def _reply(self, generation: Generation, gpu_seconds: float, seconds: float) -> Reply:
        return Reply(
            text=generation.text,
            finish=generation.finish,
            usage=Usage(input=generation.n_input, output=generation.n_output),
            usd_nanos=self._settings.price(gpu_seconds),
            seconds=seconds,
            gpu_seconds=gpu_seconds,
            model=self.name,
        )

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _n_tokens(result: Generation | ProviderError) -> int:
    return 0 if isinstance(result, ProviderError) else result.n_input + result.n_output


def _fail(jobs: Sequence[Job], error: ProviderError) -> None:
    """Fail every job with an error of its own: a shared one would collect all their tracebacks."""
    for job in jobs:
        if not job.reply.done():
            job.reply.set_exception(failure(error.kind, str(error)))
