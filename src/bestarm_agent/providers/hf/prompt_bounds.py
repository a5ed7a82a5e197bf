"""Upper bounds of a prompt's tokens, without the model."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from bestarm_agent.domain.request_reply import Request
from bestarm_agent.providers.hf.loading import load_tokenizer
from bestarm_agent.providers.hf.model_folder import ModelFolder
from bestarm_agent.providers.hf.tokenizing import TextCodec

# Tokens that tokenizers put around a text: BOS, EOS, a leading space, and some to spare.
_SPECIAL_TOKENS = 8


@dataclass(frozen=True, slots=True)
class _TemplateSize:
    """Bytes that a chat template adds to messages, and how often it repeats each content."""

    overhead: int
    copies: int


class PromptBounds:
    """Bounds the tokens of prompts by their bytes: every token takes at least one.

    The bytes that a chat template adds are measured by rendering it once for every sequence of
    roles, with contents of two lengths; only then is a tokenizer loaded.
    """

    def __init__(self) -> None:
        self._codecs: dict[ModelFolder, TextCodec] = {}
        self._sizes: dict[tuple[ModelFolder, tuple[str, ...]], _TemplateSize] = {}

    def of(self, request: Request, folder: ModelFolder) -> int:
        """Return the most tokens that the prompt can have; at most the model's context length."""
        if request.text is not None:
            bound = max_text_tokens(request.text)
        else:
            size = self._size(folder, tuple(message.role for message in request.messages))
            contents = sum(max_text_tokens(message.content) for message in request.messages)
            bound = size.overhead + size.copies * contents
        bound += _SPECIAL_TOKENS
        if folder.context_length is None:
            return bound
        return min(bound, folder.context_length)

    def _size(self, folder: ModelFolder, roles: tuple[str, ...]) -> _TemplateSize:
        key = (folder, roles)
        if key not in self._sizes:
            self._sizes[key] = self._measure(folder, roles)
        return self._sizes[key]

    def _measure(self, folder: ModelFolder, roles: Sequence[str]) -> _TemplateSize:
        if folder not in self._codecs:
            self._codecs[folder] = TextCodec(load_tokenizer(folder.path))
        codec = self._codecs[folder]
        try:
            one, two = (
                len(codec.render([(role, "x" * n) for role in roles]).encode()) for n in (1, 2)
            )
        except Exception:  # a template raises what it likes where it refuses the roles
            return _TemplateSize(0, 1)  # such a call fails before it has used anything
        return _TemplateSize(overhead=one, copies=max(1, -(-(two - one) // len(roles))))


def max_text_tokens(text: str) -> int:
    """Return the most tokens of a text: its bytes, after any normalisation a tokenizer may do.

    Example:
        >>> max_text_tokens("12+34="), max_text_tokens("½")
        (6, 5)
    """
    if text.isascii():
        return len(text)
    return sum(count * _max_bytes(char) for char, count in Counter(text).items())


@lru_cache(maxsize=8192)
def _max_bytes(char: str) -> int:
    forms = (char, unicodedata.normalize("NFD", char), unicodedata.normalize("NFKD", char))
    return max(len(form.encode(errors="surrogatepass")) for form in forms)
