"""Generates continuously: a call joins the batch at the next token and leaves when it is done.

Suits accelerators; on processors static batches of small models are many times as fast. The
libraries' own sampler draws from one stream that all calls share, so a seed does not make a
reply reproducible. Greedy replies equal those of static batches, up to rounding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from bestarm_agent.domain.request_reply import Finish
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.hf.batch_queue import Call
from bestarm_agent.providers.hf.decoding import SPARE_TOKENS, cut
from bestarm_agent.providers.hf.options import PageSettings, Sampling
from bestarm_agent.providers.hf.tokenizing import TextCodec
from bestarm_agent.providers.hf.worker import Generation

if TYPE_CHECKING:
    from transformers import GenerationConfig

_STOP_SECONDS = 30.0
# What the manager has to believe that requests may ask for; each request brings its own values.
_ANY_TEMPERATURE, _ANY_TOP_K, _ANY_TOP_P = 0.5, 50, 0.9


class ContinuousEngine:
    """A loaded model of ``transformers`` that generates in a thread of the library's own."""

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
        """Cancel all calls and end the thread; blocks."""
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.stop(block=True, timeout=_STOP_SECONDS, hard_stop=True)
            manager.destroy()

    async def answer(self, call: Call) -> Generation:
        """Answer one call; raises ProviderError. Cancellation frees its place."""
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
            streaming=bool(sampling.stop),  # one result for every token, to end at a stop text
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
        finally:  # a cancelled request has no last result, and its handler would stay
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


def _drawing(sampling: Sampling, n_tokens: int) -> dict[str, float | int]:
    """Return the sampler's settings; greedy means to draw from the most likely token alone."""
    if sampling.temperature == 0:
        return {"temperature": 1.0, "top_k": 1, "top_p": 1.0}
    return {
        "temperature": float(sampling.temperature),
        "top_k": sampling.top_k or n_tokens,
        "top_p": float(sampling.top_p),
    }
