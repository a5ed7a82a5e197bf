"""Upper bounds of the tokens of a prompt, without the model."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from bestarm_agent.domain.exchange import Request
from bestarm_agent.providers.hf_folder import ModelFolder
from bestarm_agent.providers.hf_loading import load_tokenizer
from bestarm_agent.providers.hf_text import TextCodec

# Tokens that tokenizers put around a text: BOS, EOS, a leading space, and some to spare.
_SPECIAL_TOKENS = 8


@dataclass(frozen=True, slots=True)
class _Frame:
    """What a chat template makes of messages: ``overhead`` bytes, and each content ``n_copies``."""

    overhead: int
    n_copies: int


class PromptBounds:
    """Bounds the tokens of prompts by their bytes, of which every token needs one.

    What a chat template writes around the messages is found by rendering it once for every sequence
    of roles, with contents of two lengths; only then is a tokenizer loaded.
    """

    def __init__(self) -> None:
        self._codecs: dict[ModelFolder, TextCodec] = {}
        self._frames: dict[tuple[ModelFolder, tuple[str, ...]], _Frame] = {}

    def of(self, request: Request, folder: ModelFolder) -> int:
        """Most tokens that the prompt can have; at most the model's context length."""
        if request.text is not None:
            bound = most_tokens(request.text)
        else:
            frame = self._frame(folder, tuple(message.role for message in request.messages))
            contents = sum(most_tokens(message.content) for message in request.messages)
            bound = frame.overhead + frame.n_copies * contents
        bound += _SPECIAL_TOKENS
        if folder.context_length is None:
            return bound
        return min(bound, folder.context_length)

    def _frame(self, folder: ModelFolder, roles: tuple[str, ...]) -> _Frame:
        key = (folder, roles)
        if key not in self._frames:
            self._frames[key] = self._measured(folder, roles)
        return self._frames[key]

    def _measured(self, folder: ModelFolder, roles: Sequence[str]) -> _Frame:
        if folder not in self._codecs:
            self._codecs[folder] = TextCodec(load_tokenizer(folder.path))
        codec = self._codecs[folder]
        try:
            one, two = (
                len(codec.render([(role, "x" * n) for role in roles]).encode()) for n in (1, 2)
            )
        except Exception:  # a template raises what it likes where it refuses the roles
            return _Frame(0, 1)  # such a call fails before it has used anything
        return _Frame(overhead=one, n_copies=max(1, -(-(two - one) // len(roles))))


def most_tokens(text: str) -> int:
    """Most tokens that a text can have: its bytes, after whatever normalisation tokenizers do.

    Example:
        >>> most_tokens("12+34="), most_tokens("½")
        (6, 5)
    """
    if text.isascii():
        return len(text)
    return sum(count * _most_bytes(char) for char, count in Counter(text).items())


@lru_cache(maxsize=8192)
def _most_bytes(char: str) -> int:
    """Bytes of a character as it is or decomposed, whichever are more.

    Character by character, since a tokenizer may follow another version of Unicode and decompose
    only some of them; composing again makes nothing longer.
    """
    forms = (char, unicodedata.normalize("NFD", char), unicodedata.normalize("NFKD", char))
    return max(len(form.encode(errors="surrogatepass")) for form in forms)
