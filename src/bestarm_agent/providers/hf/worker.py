"""Runs one model in one thread: calls wait in a queue and are generated in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Literal, TypeAlias, TypeVar

from pydantic import Field

from bestarm_agent.domain.values import Reply
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.hf.generate import BatchEngine, Dtype, HfCall, Prompt
from bestarm_agent.providers.local import LocalModel, LocalOptions, ModelMemory, averaged

_T = TypeVar("_T")
_Reply: TypeAlias = "asyncio.Future[Reply]"

_GATHER_SECONDS, _MAX_WAITS = 0.005, 10  # a growing batch waits so long, so often, for more


class HfOptions(LocalOptions):
    """Options of the ``hf`` provider, in addition to ``LocalOptions``.

    Attributes:
        max_batch_tokens: prompts padded to the longest, and replies, counted in tokens; bounds the
            memory for generation. A batch for which the memory does not suffice is halved.
        threads: torch's threads for each model. None: 1 where several models share the cores, else
            as many as there are cores, up to 4.
        memory_gb: memory for weights, in 1e9 bytes; as many models stay loaded as fit into it.
            None: 60 % of what is free at the start.
        completion: true to give plain prompts to models as they are, to be completed; else they are
            a message of the user where a model has a chat template.
    """

    max_batch: int = Field(default=256, ge=1)  # most calls generated together
    max_batch_tokens: int = Field(default=65_536, ge=1)
    threads: int | None = Field(default=None, ge=1)
    memory_gb: float | None = Field(default=None, gt=0)
    device: Literal["auto", "cpu", "cuda"] = "auto"  # "auto": an accelerator, if there is any
    dtype: Dtype = "auto"  # type of the weights in memory; "auto": the checkpoint's
    completion: bool = False


def next_batch(waiting: Sequence[Prompt], max_batch: int, max_tokens: float) -> list[Prompt]:
    """Choose the prompts that are generated together, among those that wait, the oldest first.

    A batch runs until its longest reply is done, so only prompts of one limit share it; all else
    about sampling may differ from row to row. It holds the oldest, and others of similar length:
    first shorter ones, which need no more padding.

    Args:
        waiting: at least one.
        max_batch: most prompts in a batch, >= 1.
        max_tokens: most tokens in a batch, prompts padded to the longest and replies included; a
            larger call goes alone.
    """

    def fits(n_rows: int, longest: Prompt) -> bool:
        return n_rows <= max_batch and n_rows * (len(longest.tokens) + limit) <= max_tokens

    # The oldest is always in, so none waits for ever. From it the batch grows to both sides of the
    # list sorted by length: towards shorter ones first, then towards longer ones while the padding
    # that they cause still fits.
    oldest = waiting[0]
    limit = oldest.limit
    alike = [prompt for prompt in waiting if prompt.limit == limit]
    by_length = sorted(alike, key=lambda prompt: len(prompt.tokens))
    start = next(i for i, prompt in enumerate(by_length) if prompt is oldest)
    stop = start + 1
    while start > 0 and fits(stop - start + 1, oldest):
        start -= 1
    while stop < len(by_length) and fits(stop - start + 1, by_length[stop]):
        stop += 1
    return by_length[start:stop]


class Worker(LocalModel):
    """Runs one model in a thread of its own, loaded while it is needed."""

    def __init__(
        self,
        model: str,
        load: Callable[[], BatchEngine],  # loads it; runs in the thread and may raise anything
        memory: ModelMemory,  # decides when it may be loaded
        generating: asyncio.Semaphore,  # bounds the models that generate at once
        options: HfOptions,
        *,
        price: Callable[[float], int],  # returns the nano-dollars that worker seconds cost
        clock: Callable[[], float],  # seconds since some fixed moment
    ) -> None:
        super().__init__(model)
        self._load = load
        self._memory = memory
        self._generating = generating
        self._options = options
        self._price = price
        self._clock = clock
        # Calls that wait, the oldest first: as they came, and with the tokens of their prompts.
        self._new: dict[HfCall, _Reply] = {}
        self._waiting: dict[Prompt, _Reply] = {}
        self._engine: BatchEngine | None = None
        self._broken: str | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._draining: asyncio.Task[None] | None = None
        self._uncharged = 0.0  # loading seconds not charged to a call yet

    @property
    def is_loaded(self) -> bool:
        """True if the weights are in memory."""
        return self._engine is not None

    async def submit(self, call: HfCall) -> Reply:
        """Answer one call; raises ProviderError."""
        self._check()
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        # One task at a time empties the queue: the call that finds none starts it, and it ends with
        # the queue. Nothing suspends it between its last look at the queue and its end, so no call
        # is left behind.
        self._new[call] = reply
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())
        return await reply

    async def load(self) -> None:
        """Load the model in its thread; raises ProviderError, MODEL_NOT_FOUND, if it cannot be."""
        self._check()
        start = self._clock()
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
        seconds = self._clock() - start
        self.load_seconds = averaged(self.load_seconds, seconds)
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
        # The order matters. Waiting calls are cancelled first, so that no further batch begins;
        # then the engine is told to stop at the next token, so that the thread ends soon.
        # ``shutdown`` blocks until it has ended, and so runs in another thread.
        for reply in self._take_all():
            reply.cancel()
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
                while self._new or self._waiting:
                    await self._gather()
                    async with self._generating:
                        await self._encode()
                        await self._run_batch()
        except ProviderError as error:
            _fail(self._take_all(), error)
        finally:
            self._draining = None

    async def _gather(self) -> None:
        """Wait while a small batch is still growing."""
        for _ in range(_MAX_WAITS):
            n_waiting = len(self._new) + len(self._waiting)
            if n_waiting >= self._options.max_batch:
                return
            await asyncio.sleep(_GATHER_SECONDS)
            # Calls come in bursts: if none has come for 5 ms, the burst is over.
            if len(self._new) + len(self._waiting) == n_waiting:
                return

    async def _encode(self) -> None:
        """Turn new prompts into tokens, by which batches are put together.

        In the model's thread, which alone uses the tokenizer. Cancelled calls are dropped, and
        those whose prompt cannot be read fail.
        """
        new = {call: reply for call, reply in self._new.items() if not reply.done()}
        self._new = {}
        if not new:
            return
        with self._ending(new.values()):
            prompts = await self._in_thread(partial(self._loaded.encode, list(new)))
            for reply, prompt in zip(new.values(), prompts, strict=True):
                if isinstance(prompt, Prompt):
                    self._waiting[prompt] = reply
                elif not reply.done():
                    reply.set_exception(prompt)

    async def _run_batch(self) -> None:
        """Generate the next batch; cancelled calls are dropped."""
        waiting = {prompt: reply for prompt, reply in self._waiting.items() if not reply.done()}
        self._waiting = waiting
        if not waiting:
            return
        most = min(self._options.max_batch_tokens, self._loaded.most_tokens)
        batch = next_batch(list(waiting), self._options.max_batch, most)
        replies = [waiting.pop(prompt) for prompt in batch]
        with self._ending(replies):
            results, seconds = await self._in_thread(partial(self._generate, batch))
            self.call_seconds = averaged(self.call_seconds, seconds / len(batch))
            self._settle(replies, results, seconds)

    @contextmanager
    def _ending(self, replies: Collection[_Reply]) -> Iterator[None]:
        """End calls with whatever ends the block."""
        try:
            yield
        except asyncio.CancelledError:
            for reply in replies:
                reply.cancel()
            raise
        except Exception as error:
            reason = f"model {self.name} failed on {len(replies)} calls: {error!r}"
            _fail(replies, failure(FailureKind.INTERNAL, reason))

    def _take_all(self) -> list[_Reply]:
        replies = [*self._waiting.values(), *self._new.values()]
        self._new, self._waiting = {}, {}
        return replies

    @property
    def _loaded(self) -> BatchEngine:
        if self._engine is None:
            raise RuntimeError("the model is not loaded")
        return self._engine

    def _generate(self, batch: Sequence[Prompt]) -> tuple[list[Reply | ProviderError], float]:
        start = self._clock()
        return self._loaded.generate(batch), self._clock() - start

    def _settle(
        self, replies: Sequence[_Reply], results: Sequence[Reply | ProviderError], seconds: float
    ) -> None:
        """Return the replies; worker seconds, loading included, are split by tokens.

        Each call took as long as its batch: loading and the queue before it do not count.
        """
        # If all of a batch failed, nobody can be charged: the time of loading waits for the next
        # batch.
        n_tokens = sum(answer.usage.total for answer in results if isinstance(answer, Reply))
        to_charge = seconds
        if n_tokens:
            to_charge += self._uncharged
            self._uncharged = 0.0
        for reply, result in zip(replies, results, strict=True):
            if reply.done():
                continue
            if isinstance(result, ProviderError):
                reply.set_exception(result)
                continue
            share = to_charge * result.usage.total / n_tokens
            # the deadline is checked between tokens; time of the last one beyond it is free
            charged = min(share, self._options.max_gpu_seconds)
            usd_nanos = self._price(charged)
            answered = replace(result, seconds=seconds, gpu_seconds=charged, usd_nanos=usd_nanos)
            reply.set_result(replace(answered, model=self.name))

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _fail(replies: Iterable[_Reply], error: ProviderError) -> None:
    """Fail calls with an error for each: a shared one would collect all their tracebacks."""
    for reply in replies:
        if not reply.done():
            reply.set_exception(failure(error.kind, str(error)))
