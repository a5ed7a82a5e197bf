"""Generates continuously: a call joins the others at the next token, and leaves when it is done.

What accelerators want; for small models on processors static batches are many times as fast. The
libraries' own sampler draws here, from one stream that all calls share, so that a seed cannot make
one reply reproducible; greedy replies are what static batches give, up to rounding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from bestarm_agent.domain.exchange import Finish, Reply
from bestarm_agent.domain.spend import Usage
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.hf_decoding import SPARE_TOKENS, cut
from bestarm_agent.providers.hf_params import Sampling
from bestarm_agent.providers.hf_queue import Call
from bestarm_agent.providers.hf_text import TextCodec
from bestarm_agent.providers.hf_worker import Generation, Terms
from bestarm_agent.providers.residency import Average, Residency, Users
from bestarm_agent.providers.server_time import SharedTime

if TYPE_CHECKING:
    from transformers import GenerationConfig

_STOP_SECONDS = 30.0
# What the manager has to believe that requests may ask for; each request brings its own values.
_ANY_TEMPERATURE, _ANY_TOP_K, _ANY_TOP_P = 0.5, 50, 0.9


@dataclass(frozen=True, slots=True)
class PageSettings:
    """How the memory for attention is divided.

    Attributes:
        page_size: tokens of a page.
        n_pages: pages; None: as many as fit, which only works on accelerators.
        batch_tokens: most tokens that go through the model at once; None: the libraries' choice.
    """

    page_size: int = 256
    n_pages: int | None = None
    batch_tokens: int | None = None


class ContinuousEngine:
    """A loaded model that generates in a thread of the library's own.

    Args:
        model: a causal language model of ``transformers``.
        codec: its tokenizer.
        pages: how the memory for attention is divided.
    """

    def __init__(self, model: Any, codec: TextCodec, pages: PageSettings) -> None:  # noqa: ANN401
        self._model = model
        self._codec = codec
        self._pages = pages
        self._numbers = count()
        self._manager: Any = None

    def start(self) -> None:
        """Start the thread; blocks."""
        from transformers import ContinuousBatchingConfig

        self._manager = self._model.init_continuous_batching(
            generation_config=self._config(),
            continuous_batching_config=ContinuousBatchingConfig(
                page_size=self._pages.page_size,
                num_blocks=self._pages.n_pages,
                max_batch_tokens=self._pages.batch_tokens,
                per_request_processors=True,
            ),
        )
        self._manager.start()

    def stop(self) -> None:
        """End what is being generated, and the thread; blocks."""
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.stop(block=True, timeout=_STOP_SECONDS, hard_stop=True)
            manager.destroy()

    async def answer(self, call: Call) -> Generation:
        """Answer one call; raises ProviderError. Cancelling it frees its place."""
        (prompt,) = self._codec.encode([call.request])
        if isinstance(prompt, ProviderError):
            raise prompt
        limit = call.sampling.max_tokens
        if self._codec.context_length is not None:
            limit = min(limit, self._codec.context_length - len(prompt))
        tokens = await self._generated(prompt, limit, call.sampling)
        (text,) = self._codec.decode([tokens])
        text, was_cut = cut(text, call.sampling.stop)
        stopped = was_cut or len(tokens) < limit or (bool(tokens) and tokens[-1] in self._codec.eos)
        finish = Finish.STOP if stopped else Finish.LENGTH
        return Generation(text, finish, len(prompt), len(tokens))

    async def _generated(self, prompt: list[int], limit: int, sampling: Sampling) -> list[int]:
        """The tokens generated for one prompt."""
        manager, name = self._manager, f"call-{next(self._numbers)}"
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[list[int], str | None]] = loop.create_future()

        def settle(output: Any) -> None:  # noqa: ANN401
            if done.done():
                return
            if output.is_finished():
                done.set_result((list(output.generated_tokens), output.error))
            elif self._is_stopped(output.generated_tokens, sampling.stop):
                manager.cancel_request(name)
                done.set_result((list(output.generated_tokens), None))

        manager.register_result_handler(name, settle)
        taken = manager.add_request(
            prompt,
            request_id=name,
            max_new_tokens=limit,
            streaming=bool(sampling.stop),  # told of every token, to end at a stop text
            eos_token_id=self._codec.eos or None,
            **_drawing(sampling, len(self._codec)),
        )
        if taken is None:
            raise failure(FailureKind.INTERNAL, "the model's generation has ended by itself")
        try:
            tokens, error = await done
        except asyncio.CancelledError:
            manager.cancel_request(name)
            raise
        finally:  # what was cancelled is not told of any more, and its handler would stay
            manager.output_router.result_handlers.pop(name, None)
        if error is not None:
            raise failure(FailureKind.INTERNAL, f"generation failed: {error}")
        return tokens

    def _is_stopped(self, tokens: list[int], stops: Sequence[str]) -> bool:
        if not stops:
            return False
        n_tail = max(len(text.encode()) for text in stops) + SPARE_TOKENS
        (tail,) = self._codec.decode([list(tokens[-n_tail:])])
        return any(text in tail for text in stops)

    def _config(self) -> GenerationConfig:
        from transformers import GenerationConfig

        return GenerationConfig(  # type: ignore[no-untyped-call]
            do_sample=True,
            temperature=_ANY_TEMPERATURE,
            top_k=_ANY_TOP_K,
            top_p=_ANY_TOP_P,
            eos_token_id=self._codec.eos or None,
            pad_token_id=self._codec.pad_token,
        )


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
        self.model = model
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
                f"model {self.model} cannot be loaded: {reason}; correct its folder, or take the "
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
            model=self.model,
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
                f"{self.model} did not finish within {self._terms.max_gpu_seconds:g} s; raise the "
                "provider's option `max_gpu_seconds`, or lower `max_tokens`",
            ) from None
        except BaseException:
            self._time.fail(ticket)
            raise
        return generation, self._time.leave(ticket)


def _drawing(sampling: Sampling, n_tokens: int) -> dict[str, float | int]:
    """How a request is drawn; greedy is to draw from the likeliest token alone."""
    if sampling.temperature == 0:
        return {"temperature": 1.0, "top_k": 1, "top_p": 1.0}
    return {
        "temperature": float(sampling.temperature),
        "top_k": sampling.top_k or n_tokens,
        "top_p": float(sampling.top_p),
    }
