"""Caches of prompts as OpenAI and Anthropic describe theirs; what is read and written is counted.

OpenAI keeps the beginning of every prompt from 1,024 tokens on, in steps of 128. Anthropic keeps
what ends at a block with ``cache_control``. Both can be read once the call that wrote them was
answered, and are forgotten five minutes after their last use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.support.fake_api.calls import Call

_SECONDS = 300.0
_STEP = 128
_BYTES_PER_TOKEN = 4


@dataclass
class PromptCache:
    """One model's prompt cache of at least ``fewest`` tokens."""

    fewest: int
    now: Callable[[], float]
    _until: dict[str, float] = field(default_factory=dict)

    def read(self, call: Call) -> int:
        """Tokens of the longest beginning that is in the cache."""
        alive = [text for text in self._ends(call) if self._until.get(text, 0.0) > self.now()]
        self._keep(alive)
        return max(map(_tokens, alive), default=0)

    def write(self, call: Call) -> int:
        """Keep the beginnings of a prompt that was answered; tokens of the longest."""
        ends = [*self._ends(call)]
        self._keep(ends)
        return max(map(_tokens, ends), default=0)

    def _keep(self, texts: list[str]) -> None:
        self._until.update(dict.fromkeys(texts, self.now() + _SECONDS))

    def _ends(self, call: Call) -> Iterator[str]:
        """The beginnings of a prompt that can be kept."""
        text = ""
        for role, part, marked in call.blocks:
            text += f"{role}\n{part}"
            if marked and _tokens(text) >= self.fewest:
                yield text
        if not call.api.anthropic:
            for tokens in range(self.fewest, _tokens(text) + 1, _STEP):
                yield text[: tokens * _BYTES_PER_TOKEN]


def _tokens(text: str) -> int:
    return len(text) // _BYTES_PER_TOKEN
