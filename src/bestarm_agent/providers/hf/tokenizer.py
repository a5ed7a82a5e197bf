"""Converts between texts and tokens, and bounds the tokens of prompts without the model."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from bestarm_agent.domain.values import Request
from bestarm_agent.errors import Blame, FailureKind, ProviderError
from bestarm_agent.providers.failures import failure

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase


def import_transformers() -> None:
    """Import the libraries, and keep them from writing to the terminal."""
    import torch  # noqa: F401
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: F401
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model's folder; raises whatever the libraries raise."""
    import_transformers()
    from transformers import AutoTokenizer

    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    return tokenizer


class TextCodec:
    """A tokenizer that returns bare token lists.

    ``pad`` pads rows, always on the left. So a missing pad token, a tokenizer that pads on the
    right, or one that also makes token types does no harm.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,  # of ``transformers``
        eos: Sequence[int] = (),  # further tokens that end a reply, of the model's configuration
        context_length: int | None = None,  # tokens of prompt and reply; None: no limit
    ) -> None:
        self._tokenizer = tokenizer
        own_eos = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
        self.context_length = context_length
        self.eos = sorted({*eos, *own_eos})
        # masked out wherever it stands, so that any token will do
        fallback = self.eos[0] if self.eos else 0
        self.pad_token = fallback if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)

    def encode(self, requests: Sequence[Request]) -> list[list[int] | ProviderError]:
        """Return the tokens of each prompt, at least one, without padding; or its error."""
        prompts = [self._render(request) for request in requests]
        encoded: dict[int, list[int] | ProviderError] = {}
        # The tokenizer adds special tokens to all texts of a call or to none, so that two calls are
        # made: for texts that begin with them already, as a chat template writes them, and for
        # those that do not.
        for adds_special in (False, True):
            texts: dict[int, str] = {}
            for row, prompt in enumerate(prompts):
                if isinstance(prompt, ProviderError):
                    encoded[row] = prompt
                elif self._lacks_bos(requests[row], prompt) == adds_special:
                    texts[row] = prompt
            if texts:
                tokenized = self._tokenizer(
                    list(texts.values()),
                    add_special_tokens=adds_special,
                    return_attention_mask=False,
                )["input_ids"]
                for row, tokens in zip(texts, tokenized, strict=True):
                    encoded[row] = self._fitting(list(tokens), requests[row])
        return [encoded[row] for row in range(len(requests))]

    def decode(self, rows: list[list[int]]) -> list[str]:
        """Return the text of each row of tokens, without special tokens."""
        texts = self._tokenizer.batch_decode(
            rows, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return list(texts)

    def may_end(self, texts: Sequence[str]) -> Tensor:
        """Return which tokens may complete one of some texts, (V + 1,) bool.

        Those that hold its last character, or a part of a character. The last entry stands for
        tokens that the tokenizer does not know.
        """
        import torch

        # a decoder may drop a space from a token that stands by itself
        ends = {text[-1] for text in texts}
        may = [
            " " in ends or "\ufffd" in token or not ends.isdisjoint(token)
            for token in self._vocabulary
        ]
        return torch.tensor([*may, False])

    @cached_property
    def _vocabulary(self) -> list[str]:
        """The text of each token by itself."""
        return self.decode([[token] for token in range(len(self._tokenizer))])

    def pad(
        self, prompts: Sequence[list[int]], behind: int = 0
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Return rows of equal length and their masks, padded on the left.

        The padding stands behind the first ``behind`` tokens, which all rows share.
        """
        width = max(map(len, prompts))
        ids, masks = [], []
        for prompt in prompts:
            n = width - len(prompt)
            ids.append([*prompt[:behind], *[self.pad_token] * n, *prompt[behind:]])
            masks.append([1] * behind + [0] * n + [1] * (len(prompt) - behind))
        return ids, masks

    def render(self, messages: Sequence[tuple[str, str]]) -> str:
        """Write (role, content) messages as the chat template does; raises what it raises."""
        conversation = [{"role": role, "content": content} for role, content in messages]
        text = self._tokenizer.apply_chat_template(
            conversation, tokenize=False, add_generation_prompt=True
        )
        return str(text)

    def _render(self, request: Request) -> str | ProviderError:
        """Return the prompt as one text; an error must not reach the other prompts of the batch."""
        try:
            text = request.text
            if text is None:
                text = self.render([(m.role, m.text) for m in request.messages])
            # Half of a surrogate pair, which JSON can hold, fails here for this prompt; inside the
            # tokenizer it would fail for the whole batch.
            text.encode()
            return text
        except UnicodeEncodeError as error:
            return ProviderError(
                f"the prompt for example {request.example} holds {error.object[error.start]!r}, "
                "half of a character, which no tokenizer takes; correct the example",
                kind=FailureKind.BAD_REQUEST,
                blame=Blame.HARNESS,
            )
        except Exception as error:  # templates raise what they like
            roles = ", ".join(message.role for message in request.messages)
            return failure(
                FailureKind.BAD_REQUEST,
                f"the chat template of {request.model} refuses messages of the roles {roles}: "
                f"{error}; change the prompt's roles, or write it as a plain text",
            )

    def _lacks_bos(self, request: Request, text: str) -> bool:
        """Return True if special tokens are still to be added; a chat template adds its own."""
        bos = self._tokenizer.bos_token
        return request.text is not None and not (bos and text.startswith(str(bos)))

    def _fitting(self, tokens: list[int], request: Request) -> list[int] | ProviderError:
        if self.context_length is not None and len(tokens) >= self.context_length:
            return failure(
                FailureKind.TOO_LONG,
                f"a prompt of {len(tokens):,} tokens leaves no room for a reply in the "
                f"{self.context_length:,} that {request.model} can hold",
            )
        if tokens:
            return tokens
        bos = self._tokenizer.bos_token_id  # something must stand before the first token
        return [self.pad_token if bos is None else int(bos)]


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
    # Normalisers of tokenizers may take a character apart ("½" becomes "1⁄2"), which can be longer.
    forms = (char, unicodedata.normalize("NFD", char), unicodedata.normalize("NFKD", char))
    return max(len(form.encode(errors="surrogatepass")) for form in forms)
