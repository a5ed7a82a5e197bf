"""Generates in static batches: padded on the left, run until the longest reply is done.

The fastest way for small models on processors, where the overhead of continuous batching costs
more than it saves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bestarm_agent.domain.request_reply import Finish
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.hf.batch_queue import Call
from bestarm_agent.providers.hf.decoding import RowEnds, RowSampler, cut
from bestarm_agent.providers.hf.tokenizing import TextCodec
from bestarm_agent.providers.hf.worker import Generation

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import GenerationConfig


class StaticBatchEngine:
    """A loaded model that generates in static batches."""

    def __init__(
        self,
        generate: Callable[..., Tensor],  # of a model without sampling defaults of its own
        codec: TextCodec,
        max_seconds: float,  # a batch that takes longer is cut off, > 0
        clock: Callable[[], float] = time.monotonic,  # seconds since some fixed moment
        device: str = "cpu",
    ) -> None:
        self._device = device
        self._generate = generate
        self._codec = codec
        self._max_seconds = max_seconds
        self._clock = clock
        self._aborted = False

    def generate(self, calls: Sequence[Call]) -> list[Generation | ProviderError]:
        """Answer calls of one ``max_tokens``, in their order; blocks."""
        results: dict[int, Generation | ProviderError] = {}
        batches: dict[int, dict[int, list[int]]] = {}
        for row, prompt in enumerate(self._codec.encode([call.request for call in calls])):
            if isinstance(prompt, ProviderError):
                results[row] = prompt
            else:
                limit = self._limit(calls[row], len(prompt))
                batches.setdefault(limit, {})[row] = prompt
        for limit, prompts in batches.items():
            answers = self._answer([calls[row] for row in prompts], list(prompts.values()), limit)
            results.update(zip(prompts, answers, strict=True))
        return [results[row] for row in range(len(calls))]

    def abort(self) -> None:
        """Stop generating at the next token; may be called from any thread."""
        self._aborted = True

    def _limit(self, call: Call, n_prompt: int) -> int:
        """Return the most tokens of a reply; rows that the context cuts shorter go separately.

        A row that has ended runs on with the others, and must not run out of positions.
        """
        context_length = self._codec.context_length
        if context_length is None:
            return call.sampling.max_tokens
        return min(call.sampling.max_tokens, context_length - n_prompt)

    def _answer(
        self, calls: Sequence[Call], prompts: Sequence[list[int]], limit: int
    ) -> list[Generation | ProviderError]:
        generated, lengths = self._run(calls, prompts, limit)
        n_outputs, ended_by_eos = self._count(generated, lengths)
        rows = generated.tolist()
        texts = self._codec.decode([row[:n] for row, n in zip(rows, n_outputs, strict=True)])
        results: list[Generation | ProviderError] = []
        for row, call in enumerate(calls):
            text, was_cut = cut(texts[row], call.sampling.stop)
            stopped = was_cut or ended_by_eos[row]
            if not stopped and n_outputs[row] < limit:
                results.append(self._cut_off(call))
                continue
            finish = Finish.STOP if stopped else Finish.LENGTH
            results.append(Generation(text, finish, len(prompts[row]), n_outputs[row]))
        return results

    def _run(
        self, calls: Sequence[Call], prompts: Sequence[list[int]], limit: int
    ) -> tuple[Tensor, Tensor]:
        """Return generated tokens, (B, T <= limit), and the tokens before each row's stop text."""
        import torch
        from transformers import LogitsProcessorList, StoppingCriteriaList

        ids, masks = (torch.tensor(rows, device=self._device) for rows in self._codec.pad(prompts))
        n_prompt = ids.shape[1]
        deadline = self._clock() + self._max_seconds
        ends = RowEnds(
            [call.sampling.stop for call in calls],
            n_prompt,
            self._codec.decode,
            lambda: self._aborted or self._clock() > deadline,
            self._device,
        )
        is_drawn = any(call.sampling.temperature > 0 for call in calls)
        samplers = [RowSampler(calls, n_prompt, self._device)] if is_drawn else []
        output = self._generate(
            input_ids=ids,
            attention_mask=masks,
            generation_config=self._config(limit),
            logits_processor=LogitsProcessorList(samplers),
            stopping_criteria=StoppingCriteriaList([ends]),
        )
        return output[:, n_prompt:].cpu(), ends.lengths.cpu()

    def _config(self, n_tokens: int) -> GenerationConfig:
        from transformers import GenerationConfig

        return GenerationConfig(  # type: ignore[no-untyped-call]
            max_new_tokens=n_tokens,
            do_sample=False,
            eos_token_id=self._codec.eos or None,
            pad_token_id=self._codec.pad_token,
        )

    def _count(self, generated: Tensor, lengths: Tensor) -> tuple[list[int], list[bool]]:
        """Return the tokens of each row, EOS included, and True where EOS ended it."""
        import torch

        width = generated.shape[1]
        is_eos = torch.isin(generated, torch.tensor(self._codec.eos, dtype=torch.long))
        until_eos = torch.where(is_eos.any(1), is_eos.int().argmax(1) + 1, width + 1)
        n_outputs = torch.minimum(lengths.clamp(max=width), until_eos)
        return n_outputs.tolist(), (until_eos <= n_outputs).tolist()

    def _cut_off(self, call: Call) -> ProviderError:
        return ProviderError(
            f"{call.request.model} did not finish within {self._max_seconds:g} worker seconds; "
            "raise the provider's option `max_gpu_seconds`, or lower `max_tokens`",
            kind=FailureKind.TIMEOUT,
        )
