"""Upper bounds of tokens, without a tokenizer."""

from __future__ import annotations

from bestarm_agent.domain.digest import canonical
from bestarm_agent.domain.exchange import Request
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.entry import ModelFacts

DEFAULT_MAX_TOKENS = 4096
MAX_TOKENS = ("max_tokens", "max_completion_tokens")
_PER_MESSAGE = 16  # marks of the chat template around each message


def most_prompt_tokens(request: Request, overhead: int) -> int:
    """More tokens than the prompt can have.

    A token stands for one byte at least, in every tokenizer in use, so that the bytes of the texts
    bound their tokens. To these come the marks of a chat template.

    Args:
        request: the prompt.
        overhead: tokens that a template may add besides, such as a system prompt of its own.

    Example:
        >>> most_prompt_tokens(Request("m", text="Grüße"), overhead=0)
        23
    """
    texts = [message.role + message.content for message in request.messages]
    if request.text is not None:
        texts.append(request.text)
    if request.response_schema is not None:
        texts.append(canonical(request.response_schema))
    return overhead + sum(len(text.encode()) + _PER_MESSAGE for text in texts)


def most_output_tokens(request: Request, facts: ModelFacts) -> int:
    """The longest answer that is asked for, in tokens.

    Raises:
        ConfigError: the request's own limit is no number of tokens.
    """
    for name in MAX_TOKENS:
        given = request.params.get(name)
        if given is None:
            continue
        if not isinstance(given, int) or isinstance(given, bool) or given < 1:
            raise ConfigError(
                f"parameter `{name}` of {request.model} must be a number of tokens >= 1, got "
                f"{given!r}"
            )
        return given
    return facts.default_max_tokens or DEFAULT_MAX_TOKENS
