"""Generates in static batches: padded on the left, run until the longest reply is done.

Every row of a batch has its own sampling and its own end. ``transformers`` has one sampling
configuration per batch, draws from one random stream that all threads of the process share, and
has no stop texts that differ from row to row. Two classes here plug into its ``generate`` as a
logits processor and a stopping criterion. So calls that sample differently share a batch, and a
reply depends on its own request alone, up to rounding: the shape of a batch changes the last digits
of logits, so a near tie, or a draw within 1e-6 of the border between two tokens, may turn out
differently.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from bestarm_agent.config.fields import StrictModel
from bestarm_agent.config.file_errors import parse_options
from bestarm_agent.domain.spend import Usage
from bestarm_agent.domain.values import Finish, Json, Reply, Request, digest
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.hf.folder import ModelFolder
from bestarm_agent.providers.hf.tokenizer import TextCodec, load_tokenizer
from bestarm_agent.stats.keyed_random import KeyedRandom

if TYPE_CHECKING:
    from torch import Tensor

# A text of n bytes has at most n tokens; a few more, since decoders drop a leading space.
_SPARE_TOKENS = 4
# Prompt tokens that need not be read again, from which reading the shared ones by themselves, one
# more pass through the model, pays.
_WORTH_SHARING = 1_024


Dtype: TypeAlias = Literal["auto", "float32", "bfloat16", "float16"]


class Sampling(StrictModel):
    """Sampling parameters of a reply; the defaults are those of the completion APIs.

    The recommendations of a model's ``generation_config.json`` are ignored: candidates differ in
    nothing but what the study says.
    """

    temperature: float = Field(default=1.0, ge=0, le=100)  # 0: take the most likely token
    top_p: float = Field(default=1.0, gt=0, le=1)  # draw from the likeliest that sum up to this
    top_k: int = Field(default=0, ge=0)  # draw from this many; 0: all. Before ``top_p``
    max_tokens: int = Field(default=256, ge=1)  # longest reply, the end-of-text token included
    stop: Annotated[  # texts that end a reply; they and the rest are cut off
        tuple[Annotated[str, Field(min_length=1)], ...],
        BeforeValidator(lambda given: (given,) if isinstance(given, str) else given),
    ] = ()
    seed: int = Field(default=0, ge=0)  # another seed gives other draws


def read_sampling(params: Mapping[str, Json], model: str) -> Sampling:
    """Parse a request's parameters; raises ConfigError if one is unknown or breaks a rule."""
    return parse_options(Sampling, params, subject=f"parameters for {model}")


@dataclass(frozen=True, slots=True, eq=False)
class HfCall:
    """A request with its parameters parsed; equal to itself only."""

    request: Request
    sampling: Sampling


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """A call as the model reads it; equal to itself only."""

    call: HfCall
    tokens: list[int]
    # Most tokens of the reply: ``max_tokens``, or what the context leaves. Only prompts of one
    # limit share a batch: a row that has ended runs on with the others, and must not run out of
    # positions.
    limit: int


class BatchEngine:
    """A loaded model that generates in static batches."""

    def __init__(
        self,
        model: Any,  # noqa: ANN401 - a causal model of ``transformers`` without sampling defaults
        codec: TextCodec,
        max_seconds: float,  # a batch that takes longer is cut off, > 0
        device: str = "cpu",
    ) -> None:
        self._device = device
        self._model = model
        self._codec = codec
        self._max_seconds = max_seconds
        self._aborted = False
        self.most_tokens = math.inf  # in a batch, after one for which the memory did not suffice

    def encode(self, calls: Sequence[HfCall]) -> list[Prompt | ProviderError]:
        """Return the tokens of each call; blocks."""
        return [
            tokens if isinstance(tokens, ProviderError) else self._prompt(call, tokens)
            for call, tokens in zip(
                calls, self._codec.encode([call.request for call in calls]), strict=True
            )
        ]

    def generate(self, batch: Sequence[Prompt]) -> list[Reply | ProviderError]:
        """Answer prompts of one limit, in their order; blocks.

        The usage of a reply includes the end-of-text token. A batch for which the memory does not
        suffice is answered in halves.
        """
        try:
            return self._answer(batch)
        except RuntimeError as error:  # torch's own error of memory is one
            if not _is_out_of_memory(error):
                raise
        # Outside of ``except``, since the traceback keeps what was allocated.
        self._release()
        n_tokens = len(batch) * (max(len(prompt.tokens) for prompt in batch) + batch[0].limit)
        if len(batch) == 1:
            reason = (
                f"the memory of {self._device} does not suffice for one call of {n_tokens:,} "
                "tokens; lower `max_tokens`, shorten the prompt, or take a smaller model"
            )
            return [failure(FailureKind.INTERNAL, reason)]
        self.most_tokens = min(self.most_tokens, n_tokens / 2)
        half = len(batch) // 2
        return [*self.generate(batch[:half]), *self.generate(batch[half:])]

    def abort(self) -> None:
        """Stop generating at the next token; may be called from any thread."""
        self._aborted = True

    def _prompt(self, call: HfCall, tokens: list[int]) -> Prompt:
        context_length, limit = self._codec.context_length, call.sampling.max_tokens
        if context_length is not None:
            limit = min(limit, context_length - len(tokens))
        return Prompt(call, tokens, limit)

    def _release(self) -> None:
        if self._device == "cuda":
            import torch

            torch.cuda.empty_cache()

    def _answer(self, batch: Sequence[Prompt]) -> list[Reply | ProviderError]:
        generated, lengths = self._run(batch)
        n_outputs, ended_by_eos = self._count(generated, lengths)
        rows = generated.tolist()
        texts = self._codec.decode([row[:n] for row, n in zip(rows, n_outputs, strict=True)])
        results: list[Reply | ProviderError] = []
        for row, prompt in enumerate(batch):
            text, was_cut = cut(texts[row], prompt.call.sampling.stop)
            # Neither a stop text, nor the end of the text, nor the limit: the deadline ended it.
            # The part that was generated is no answer, since a longer time limit would give another
            # one.
            stopped = was_cut or ended_by_eos[row]
            if not stopped and n_outputs[row] < prompt.limit:
                reason = (
                    f"{prompt.call.request.model} did not finish within {self._max_seconds:g} "
                    "worker seconds; raise the provider's option `max_gpu_seconds`, or lower "
                    "`max_tokens`"
                )
                results.append(ProviderError(reason, kind=FailureKind.TIMEOUT))
                continue
            finish = Finish.STOP if stopped else Finish.LENGTH
            usage = Usage(input=len(prompt.tokens), output=n_outputs[row])
            results.append(Reply(text, finish, usage))
        return results

    def _run(self, batch: Sequence[Prompt]) -> tuple[Tensor, Tensor]:
        """Return generated tokens, (B, T <= limit), and the tokens before each row's stop text."""
        import torch
        from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

        calls = [prompt.call for prompt in batch]
        tokens = [prompt.tokens for prompt in batch]
        shared = self._shared(tokens)
        ids, masks = (
            torch.tensor(rows, device=self._device)
            for rows in self._codec.pad(tokens, behind=shared)
        )
        n_prompt = ids.shape[1]
        deadline = time.monotonic() + self._max_seconds
        ends = RowEnds(
            [call.sampling.stop for call in calls],
            n_prompt,
            self._codec,
            lambda: self._aborted or time.monotonic() > deadline,
            self._device,
        )
        # Greedy decoding: it takes the token that ``RowSampler`` has made the most likely.
        config = GenerationConfig(  # type: ignore[no-untyped-call]
            max_new_tokens=batch[0].limit,
            do_sample=False,
            eos_token_id=self._codec.eos or None,
            pad_token_id=self._codec.pad_token,
        )
        is_drawn = any(call.sampling.temperature > 0 for call in calls)
        samplers = [RowSampler(calls, n_prompt, self._device)] if is_drawn else []
        output = self._model.generate(
            input_ids=ids,
            attention_mask=masks,
            generation_config=config,
            logits_processor=LogitsProcessorList(samplers),
            stopping_criteria=StoppingCriteriaList([ends]),
            **(self._read(ids[:1, :shared], len(batch)) if shared else {}),
        )
        return output[:, n_prompt:].cpu(), ends.lengths.cpu()

    def _shared(self, prompts: Sequence[list[int]]) -> int:
        """Return how many tokens all prompts begin with, 0 if reading them once gains nothing."""
        # of the first and the last by order, and so of all; each row keeps a token of its own
        first, last = min(prompts), max(prompts)
        most = min(map(len, prompts)) - 1
        n = next((i for i in range(most) if first[i] != last[i]), most)
        return n if (len(prompts) - 1) * n >= _WORTH_SHARING and self._has_plain_cache else 0

    @cached_property
    def _has_plain_cache(self) -> bool:
        """True if the model keeps keys and values of each token by themselves.

        Recurrent states and sliding windows cannot be repeated with padding behind them.
        """
        from transformers import DynamicCache
        from transformers.cache_utils import DynamicLayer

        cache = DynamicCache(config=self._model.config)
        return bool(cache.layers) and all(type(layer) is DynamicLayer for layer in cache.layers)

    def _read(self, ids: Tensor, n_rows: int) -> dict[str, Any]:
        """Return keys and values of tokens, (1, n), repeated for each row, as an argument."""
        import torch
        from transformers import DynamicCache

        # transformers 5.24 gave the argument another name
        is_new = "cache" in signature(self._model.forward).parameters
        cache = DynamicCache(config=self._model.config)
        argument = {"cache" if is_new else "past_key_values": cache}
        with torch.inference_mode():
            self._model(input_ids=ids, use_cache=True, logits_to_keep=1, **argument)
            cache.batch_repeat_interleave(n_rows)
        return argument

    def _count(self, generated: Tensor, lengths: Tensor) -> tuple[list[int], list[bool]]:
        """Return the tokens of each row, EOS included, and True where EOS ended it."""
        import torch

        # ``width + 1`` stands for "no EOS", so that the minimum below tells which of stop text and
        # EOS came first. On a tie EOS has ended the row.
        width = generated.shape[1]
        is_eos = torch.isin(generated, torch.tensor(self._codec.eos, dtype=torch.long))
        until_eos = torch.where(is_eos.any(1), is_eos.int().argmax(1) + 1, width + 1)
        n_outputs = torch.minimum(lengths.clamp(max=width), until_eos)
        return n_outputs.tolist(), (until_eos <= n_outputs).tolist()


def load_engine(
    folder: ModelFolder,
    *,
    dtype: str,  # of the weights in memory, as torch calls it
    device: str,  # "cpu" or "cuda"
    n_threads: int,  # of torch, in this thread
    max_seconds: float,
) -> BatchEngine:
    """Load a model whose batches are cut off after ``max_seconds``.

    Raises whatever the libraries raise on a broken folder, ValueError if weights are missing.
    """
    tokenizer = load_tokenizer(folder.path)
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    torch.set_num_threads(n_threads)
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder.path,
        dtype=getattr(torch, dtype),
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        output_loading_info=True,
    )
    model, report = loaded
    # ``from_pretrained`` fills in such weights at random with no more than a warning: the model
    # would answer, and its scores would mean nothing.
    missing = sorted({*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])})
    if missing:
        raise ValueError(f"its weights lack, or have in another shape, {', '.join(missing[:3])}")
    eos = model.generation_config.eos_token_id
    ends = eos if isinstance(eos, list) else [] if eos is None else [eos]
    codec = TextCodec(tokenizer, ends, folder.context_length)
    # recommended temperatures and penalties must not leak into what a study compares
    model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
    return BatchEngine(model.to(device).eval(), codec, max_seconds, device=device)


class RowSampler:
    """Chooses each row's next token and makes it the most likely; a logits processor.

    Draws are keyed by the prompt and the seed: the same request gives the same reply, and
    candidates that differ only in temperature draw with the same numbers, so that comparing them is
    less noisy. ``calls`` has one entry per row, ``n_prompt`` counts the tokens of padded prompts.
    """

    def __init__(self, calls: Sequence[HfCall], n_prompt: int, device: str = "cpu") -> None:
        import torch

        samplings = [call.sampling for call in calls]
        self._n_prompt = n_prompt
        self._is_greedy = torch.tensor([s.temperature == 0 for s in samplings], device=device)
        # a greedy row is drawn like the others, and the draw is thrown away
        self._temperature = torch.tensor([[s.temperature or 1.0] for s in samplings], device=device)
        self._top_p = torch.tensor(
            [[s.top_p] for s in samplings], dtype=torch.float64, device=device
        )
        self._top_k = torch.tensor([[s.top_k] for s in samplings], device=device)
        self._is_cut = any(s.top_p < 1 or s.top_k > 0 for s in samplings)
        self._uniforms = torch.from_numpy(_uniforms(calls)).to(device)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return ``scores``, (B, V), with the token drawn in each row set to infinity."""
        step = input_ids.shape[1] - self._n_prompt
        # With the largest at 0, a temperature near 0 makes others very negative, and nothing
        # overflows.
        logits = (scores - scores.max(-1, keepdim=True).values) / self._temperature
        drawn = self._draw(logits, self._uniforms[:, step : step + 1])
        chosen = drawn.squeeze(1).where(~self._is_greedy, scores.argmax(-1))
        # Infinity, as ``generate`` takes the most likely token, whatever the others are.
        return scores.scatter(1, chosen.unsqueeze(1), float("inf"))

    def _draw(self, logits: Tensor, uniform: Tensor) -> Tensor:
        """Invert the distribution function at ``uniform``, (B, 1) in [0, 1)."""
        import torch

        # Sorting the vocabulary costs more than all else here, so a batch without cuts does
        # without.
        if not self._is_cut:
            return _invert(logits.softmax(-1, dtype=torch.float64), uniform)
        ordered, tokens = logits.sort(-1, descending=True)
        # Top-k first, then top-p among what is left, renormalised: the order of transformers and
        # vLLM.
        rank = torch.arange(logits.shape[1], device=logits.device)
        ordered = ordered.masked_fill((rank >= self._top_k) & (self._top_k > 0), float("-inf"))
        probabilities = ordered.softmax(-1, dtype=torch.float64)
        # What stands before a token decides, so the token that crosses ``top_p`` is kept: one
        # always is.
        before = probabilities.cumsum(-1) - probabilities
        kept = probabilities.masked_fill(before >= self._top_p, 0.0)
        return tokens.gather(1, _invert(kept, uniform))


class RowEnds:
    """Ends each row at its own stop texts, and all rows at the deadline: a stopping criterion.

    ``lengths``, (B,), are the tokens up to each row's stop text; a huge number where none came.
    """

    def __init__(
        self,
        stops: Sequence[tuple[str, ...]],  # each row's stop texts
        n_prompt: int,  # tokens of the padded prompts
        codec: TextCodec,
        is_over: Callable[[], bool],  # returns True when generation has to end
        device: str = "cpu",
    ) -> None:
        import torch

        self.lengths = torch.full((len(stops),), torch.iinfo(torch.long).max, device=device)
        self._n_prompt = n_prompt
        self._codec = codec
        self._is_over = is_over
        self._stops = stops
        # Decoding the whole reply at every token would take quadratic time. The end of it is
        # enough: a stop text of n bytes that has just been completed began at most n tokens ago.
        sizes = [len(text.encode()) for texts in stops for text in texts]
        self._n_tail = max(sizes, default=0) + _SPARE_TOKENS
        # And only where the newest token may complete a stop text, which is seldom. One line for
        # each set of stop texts, (S, V); rows without any have the last, which holds no token.
        sets = [*{texts: None for texts in stops if texts}]
        masks = [codec.may_end(texts) for texts in sets]
        if masks:
            masks.append(torch.zeros_like(masks[0]))
            self._may_end = torch.stack(masks).to(device)
            self._set = torch.tensor(
                [sets.index(texts) if texts else -1 for texts in stops], device=device
            )

    def __call__(self, input_ids: Tensor, scores: object, **_: object) -> Tensor:
        """Return the mask of rows that have ended, (B,) bool."""
        n_generated = input_ids.shape[1] - self._n_prompt
        for row in self._stopped(input_ids):
            self.lengths[row] = min(int(self.lengths[row]), n_generated)
        ended = self.lengths <= n_generated
        return ended.fill_(True) if self._is_over() else ended

    def _stopped(self, input_ids: Tensor) -> list[int]:
        if not any(self._stops):
            return []
        # the last column stands for tokens that the tokenizer does not know
        newest = input_ids[:, -1].clamp(max=self._may_end.shape[1] - 1)
        rows = self._may_end[self._set, newest].nonzero().flatten().tolist()
        if not rows:
            return []
        start = max(self._n_prompt, input_ids.shape[1] - self._n_tail)
        tails = self._codec.decode(input_ids[rows, start:].tolist())
        return [
            row
            for row, tail in zip(rows, tails, strict=True)
            if any(text in tail for text in self._stops[row])
        ]


def cut(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    r"""Cut ``text`` before its first stop text; also return True if there was one.

    Example:
        >>> cut("4\nQ: 5", ["Q:", "\n"])
        ('4', True)
    """
    starts = [start for stop in stops if (start := text.find(stop)) >= 0]
    return (text[: min(starts)], True) if starts else (text, False)


def _is_out_of_memory(error: RuntimeError) -> bool:
    """Tell an allocation that failed: torch has a class for accelerators, a text for the CPU."""
    import torch

    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _invert(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """Return the index of the first entry whose cumulated probability exceeds ``uniform``."""
    import torch

    # The last sum stands for 1: after cuts the probabilities sum to less, and rounding leaves
    # others near it. ``right=True`` never picks an entry of probability 0, and ``clamp`` covers the
    # case in which the product is rounded up to the whole sum.
    cumulated = probabilities.cumsum(-1)
    target = uniform * cumulated[:, -1:]
    index = torch.searchsorted(cumulated, target, right=True)
    return index.clamp(max=probabilities.shape[1] - 1)


def _uniforms(calls: Sequence[HfCall]) -> NDArray[np.float64]:
    """Return numbers in [0, 1), (B, T) for T the longest reply; zeros for greedy rows."""
    uniforms = np.zeros((len(calls), max(call.sampling.max_tokens for call in calls)))
    streams: dict[int, KeyedRandom] = {}
    for row, call in enumerate(calls):
        sampling = call.sampling
        if sampling.temperature == 0:
            continue
        if sampling.seed not in streams:
            streams[sampling.seed] = KeyedRandom(sampling.seed, "hf sampling")
        # By the prompt alone, without model and temperature: candidates draw with the same numbers.
        messages = [message.as_json() for message in call.request.messages]
        key = int(digest([call.request.text, messages], length=16), 16)
        uniforms[row] = streams[sampling.seed].at(key).random(uniforms.shape[1])
    return uniforms
