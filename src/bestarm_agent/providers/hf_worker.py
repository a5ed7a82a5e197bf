"""One loaded model and its thread: calls wait in a queue and are generated in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from bestarm_agent.domain.exchange import Finish, Reply
from bestarm_agent.domain.spend import Usage
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.hf_queue import BatchQueue, Call, Job
from bestarm_agent.providers.residency import Average, Residency

_T = TypeVar("_T")

_MOST_GATHERINGS = 10


@dataclass(frozen=True, slots=True)
class Generation:
    """What a model made of one call.

    Attributes:
        text: the reply.
        finish: why it ended.
        n_input: tokens of the prompt, without padding.
        n_output: tokens generated, the end-of-text token included.
    """

    text: str
    finish: Finish
    n_input: int
    n_output: int


class Engine(Protocol):
    """A loaded model; the seam for other ways to generate. Used by one thread at a time."""

    def generate(self, calls: Sequence[Call]) -> list[Generation | ProviderError]:
        """Answer calls of one ``max_tokens``, in their order; blocks."""
        ...

    def abort(self) -> None:
        """End what is being generated at the next token; may be called from any thread."""
        ...


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for all workers of a provider.

    Attributes:
        max_batch: most calls generated together, >= 1.
        max_batch_tokens: most tokens of a batch.
        gather_seconds: how long a small batch waits for company.
        max_gpu_seconds: most worker seconds that one call is charged.
        price: nano-dollars that worker seconds cost.
        clock: seconds since some fixed moment.
    """

    max_batch: int
    max_batch_tokens: int
    gather_seconds: float
    max_gpu_seconds: float
    price: Callable[[float], int]
    clock: Callable[[], float]


class ModelWorker:
    """Runs one model in one thread of its own.

    Attributes:
        n_loads: how often it was loaded.
        load_seconds: how long loading takes.
        call_seconds: worker seconds of a call, those of its batch split over the batch.

    Args:
        model: its name.
        n_bytes: memory that its weights take.
        load: loads it; runs in the worker's thread and may raise anything.
        residency: says when it may be loaded and when it may generate.
        terms: what holds for all workers.
    """

    def __init__(
        self,
        model: str,
        n_bytes: int,
        load: Callable[[], Engine],
        residency: Residency,
        terms: Terms,
    ) -> None:
        self.name = model
        self.n_bytes = n_bytes
        self._load = load
        self._residency = residency
        self._terms = terms
        self._queue = BatchQueue(terms.max_batch, terms.max_batch_tokens)
        self._engine: Engine | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._draining: asyncio.Task[None] | None = None
        self._broken: str | None = None
        self._uncharged = 0.0
        self.n_loads = 0
        self.load_seconds = Average()
        self.call_seconds = Average()

    @property
    def is_loaded(self) -> bool:
        """Whether the weights are in memory."""
        return self._engine is not None

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for it."""
        return self._draining is None

    async def submit(self, call: Call) -> Reply:
        """Answer one call.

        Raises:
            ProviderError: the model cannot be loaded, or could not answer.
        """
        if self._broken is not None:
            raise failure(FailureKind.MODEL_NOT_FOUND, self._broken)
        job = Job(call, asyncio.get_running_loop().create_future(), self._terms.clock())
        self._queue.add(job)
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())
        return await job.reply

    async def load(self) -> None:
        """Load the model in the worker's thread.

        Raises:
            ProviderError: MODEL_NOT_FOUND, fatal: it cannot be loaded.
        """
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"hf {self.name}")
        start = self._terms.clock()
        try:
            self._engine = await self._in_thread(self._load)
        except Exception as error:
            self._let_go()
            reason = " ".join(str(error).split()) or type(error).__name__
            self._broken = (
                f"model {self.name} cannot be loaded: {reason}; correct its folder, or take the "
                "model out of the study"
            )
            raise failure(FailureKind.MODEL_NOT_FOUND, self._broken) from error
        seconds = self._terms.clock() - start
        self.n_loads += 1
        self.load_seconds.add(seconds)
        self._uncharged += seconds

    async def unload(self) -> None:
        """Let the weights go, and the thread once it has nothing more to do."""
        self._let_go()

    def _let_go(self) -> None:
        self._engine = None
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None

    async def close(self) -> None:
        """End what runs at its next token, and wait for the thread."""
        thread = self._thread
        for job in self._queue.take_all():
            job.reply.cancel()
        if self._engine is not None:
            self._engine.abort()
        if self._draining is not None:
            self._draining.cancel()
            await asyncio.wait([self._draining])
        self._let_go()
        if thread is not None:
            await asyncio.to_thread(thread.shutdown)

    async def _drain(self) -> None:
        """Work until nobody waits any more."""
        try:
            await self._residency.admit(self)
            while self._queue:
                await self._gather()
                async with self._residency.turn:
                    await self._run_batch(self._queue.take())
        except ProviderError as error:
            _fail(self._queue.take_all(), error)
        finally:
            self._draining = None
            self._residency.notice_idle()

    async def _gather(self) -> None:
        """Wait while a small batch is still growing."""
        for _ in range(_MOST_GATHERINGS):
            n_waiting = len(self._queue)
            if n_waiting >= self._terms.max_batch or self._terms.gather_seconds == 0:
                return
            await asyncio.sleep(self._terms.gather_seconds)
            if len(self._queue) == n_waiting:
                return

    async def _run_batch(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        calls = [job.call for job in jobs]
        try:
            results, seconds = await self._in_thread(partial(self._timed, calls))
            self.call_seconds.add(seconds / len(calls))
            self._settle(jobs, results, seconds)
        except asyncio.CancelledError:
            for job in jobs:
                job.reply.cancel()
            raise
        except Exception as error:
            reason = f"model {self.name} failed on {len(jobs)} calls: {error!r}"
            _fail(jobs, failure(FailureKind.INTERNAL, reason))

    def _timed(self, calls: Sequence[Call]) -> tuple[list[Generation | ProviderError], float]:
        if self._engine is None:
            raise RuntimeError("the model is not loaded")
        start = self._terms.clock()
        return self._engine.generate(calls), self._terms.clock() - start

    def _settle(
        self, jobs: list[Job], results: list[Generation | ProviderError], seconds: float
    ) -> None:
        """Hand out the replies; worker seconds, those of loading included, are split by tokens."""
        now = self._terms.clock()
        n_tokens = sum(_n_tokens(result) for result in results)
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
            job.reply.set_result(self._reply(result, share, now - job.submitted))

    def _reply(self, result: Generation, gpu_seconds: float, seconds: float) -> Reply:
        # The deadline is looked at between tokens; the last one's time beyond it is not charged.
        charged = min(gpu_seconds, self._terms.max_gpu_seconds)
        return Reply(
            text=result.text,
            finish=result.finish,
            usage=Usage(input=result.n_input, output=result.n_output),
            usd_nanos=self._terms.price(charged),
            seconds=seconds,
            gpu_seconds=charged,
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
