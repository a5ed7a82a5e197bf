"""Upper bounds of tokens, without a tokenizer."""

from __future__ import annotations

from bestarm_agent.domain.digest import canonical
from bestarm_agent.domain.request_reply import Request
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.catalog_entry import ModelFacts

DEFAULT_MAX_TOKENS = 4096
MAX_TOKENS = ("max_tokens", "max_completion_tokens")
_PER_MESSAGE = 16  # marks of the chat template around each message


def max_prompt_tokens(request: Request, overhead: int) -> int:
    """Return an upper bound of the prompt's tokens, ``overhead`` of the chat template included.

    Every tokenizer in use spends at least one byte on a token, so the bytes of the texts bound
    their tokens.

    Example:
        >>> max_prompt_tokens(Request("m", text="Grüße"), overhead=0)
        23
    """
    texts = [message.role + message.content for message in request.messages]
    if request.text is not None:
        texts.append(request.text)
    if request.response_schema is not None:
        texts.append(canonical(request.response_schema))
    return overhead + sum(len(text.encode()) + _PER_MESSAGE for text in texts)


def max_output_tokens(request: Request, facts: ModelFacts) -> int:
    """Return the longest answer that a request allows, in tokens; raises ConfigError."""
    for name in MAX_TOKENS:
        limit = request.params.get(name)
        if limit is None:
            continue
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise ConfigError(
                f"parameter `{name}` of {request.model} must be a number of tokens >= 1, got "
                f"{limit!r}"
            )
        return limit
    return facts.default_max_tokens or DEFAULT_MAX_TOKENS
