"""Row-wise decoding: every row of a batch has its own sampling and its own end.

``transformers`` has one sampling configuration per batch, draws from one random stream that all
threads of the process share, and has no stop texts that differ from row to row. The two classes
here plug into its ``generate`` as a logits processor and a stopping criterion. So calls that
sample differently share a batch, and a reply depends on its own request alone, up to rounding:
the shape of a batch changes the last digits of logits, so a near tie, or a draw within 1e-6 of
the border between two tokens, may turn out differently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.domain.digest import digest
from bestarm_agent.providers.hf.batch_queue import Call
from bestarm_agent.stats.keyed_random import KeyedRandom

if TYPE_CHECKING:
    from torch import Tensor

# A text of n bytes has at most n tokens; a few more, since decoders drop a leading space.
SPARE_TOKENS = 4


class RowSampler:
    """Chooses each row's next token and makes it the most likely; a logits processor.

    Draws are keyed by the prompt and the seed: the same request gives the same reply, and
    candidates that differ only in temperature draw with the same numbers, so that comparing them is
    less noisy. ``calls`` has one entry per row, ``n_prompt`` counts the tokens of padded prompts.
    """

    def __init__(self, calls: Sequence[Call], n_prompt: int, device: str = "cpu") -> None:
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
        logits = (scores - scores.max(-1, keepdim=True).values) / self._temperature
        drawn = self._draw(logits, self._uniforms[:, step : step + 1])
        chosen = drawn.squeeze(1).where(~self._is_greedy, scores.argmax(-1))
        return scores.scatter(1, chosen.unsqueeze(1), float("inf"))

    def _draw(self, logits: Tensor, uniform: Tensor) -> Tensor:
        """Invert the distribution function at ``uniform``, (B, 1) in [0, 1)."""
        import torch

        if not self._is_cut:
            return _invert(logits.softmax(-1, dtype=torch.float64), uniform)
        ordered, tokens = logits.sort(-1, descending=True)
        rank = torch.arange(logits.shape[1], device=logits.device)
        ordered = ordered.masked_fill((rank >= self._top_k) & (self._top_k > 0), float("-inf"))
        probabilities = ordered.softmax(-1, dtype=torch.float64)
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
        decode: Callable[[list[list[int]]], list[str]],  # turns lists of tokens into texts
        is_over: Callable[[], bool],  # returns True when generation has to end
        device: str = "cpu",
    ) -> None:
        import torch

        self.lengths = torch.full((len(stops),), torch.iinfo(torch.long).max, device=device)
        self._n_prompt = n_prompt
        self._decode = decode
        self._is_over = is_over
        self._stopping = [(row, texts) for row, texts in enumerate(stops) if texts]
        sizes = [len(text.encode()) for _, texts in self._stopping for text in texts]
        self._n_tail = max(sizes, default=0) + SPARE_TOKENS

    def __call__(self, input_ids: Tensor, scores: object, **_: object) -> Tensor:
        """Return the mask of rows that have ended, (B,) bool."""
        n_generated = input_ids.shape[1] - self._n_prompt
        for row in self._stopped(input_ids):
            self.lengths[row] = min(int(self.lengths[row]), n_generated)
        ended = self.lengths <= n_generated
        return ended.fill_(True) if self._is_over() else ended

    def _stopped(self, input_ids: Tensor) -> list[int]:
        if not self._stopping:
            return []
        start = max(self._n_prompt, input_ids.shape[1] - self._n_tail)
        tails = self._decode([input_ids[row, start:].tolist() for row, _ in self._stopping])
        return [
            row
            for (row, texts), tail in zip(self._stopping, tails, strict=True)
            if any(text in tail for text in texts)
        ]


def cut(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    r"""Cut ``text`` before its first stop text; also return True if there was one.

    Example:
        >>> cut("4\nQ: 5", ["Q:", "\n"])
        ('4', True)
    """
    starts = [at for stop in stops if (at := text.find(stop)) >= 0]
    return (text[: min(starts)], True) if starts else (text, False)


def _invert(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """Return the index of the first entry whose cumulated probability exceeds ``uniform``."""
    import torch

    cumulated = probabilities.cumsum(-1)
    target = uniform * cumulated[:, -1:]
    index = torch.searchsorted(cumulated, target, right=True)
    return index.clamp(max=probabilities.shape[1] - 1)


def _uniforms(calls: Sequence[Call]) -> NDArray[np.float64]:
    """Return numbers in [0, 1), (B, T) for T the longest reply; zeros for greedy rows."""
    uniforms = np.zeros((len(calls), max(call.sampling.max_tokens for call in calls)))
    streams: dict[int, KeyedRandom] = {}
    for row, call in enumerate(calls):
        sampling = call.sampling
        if sampling.temperature == 0:
            continue
        if sampling.seed not in streams:
            streams[sampling.seed] = KeyedRandom(sampling.seed, "hf sampling")
        uniforms[row] = streams[sampling.seed].at(_prompt_key(call)).random(uniforms.shape[1])
    return uniforms


def _prompt_key(call: Call) -> int:
    request = call.request
    messages = [message.as_json() for message in request.messages]
    return int(digest([request.text, messages], length=16), 16)
