"""What differs between API protocols: how a request is written and an answer is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.exchange import Request
from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.providers.api_bounds import MAX_TOKENS
from bestarm_agent.providers.api_reading import Answer
from bestarm_agent.providers.entry import ModelFacts


@dataclass(frozen=True, slots=True)
class Wire:
    """One protocol.

    Attributes:
        params: names of the sampling parameters that it has.
        encode: writes the body of a request, the longest answer in tokens given; without "model".
        decode: reads the body of a response; raises MalformedError.
        prompt_fields: fields of the body that hold the prompt.
    """

    params: frozenset[str]
    encode: Callable[[Request, ModelFacts, int], dict[str, Json]]
    decode: Callable[[Mapping[str, Json]], Answer]
    prompt_fields: frozenset[str]

    def taken(self, facts: ModelFacts) -> frozenset[str]:
        """Names of the sampling parameters that a model takes."""
        names = self.params if facts.params is None else frozenset(facts.params)
        return names - frozenset(facts.without or ())

    def sent(self, body: Mapping[str, Json]) -> dict[str, Json]:
        """What a body asks for besides the prompt, for the record."""
        return {name: value for name, value in body.items() if name not in self.prompt_fields}


def chat_messages(request: Request) -> list[dict[str, Json]]:
    """Chat messages of a request; a plain prompt is one message of the user."""
    if request.text is not None:
        return [{"role": "user", "content": request.text}]
    return [{"role": message.role, "content": message.content} for message in request.messages]


def own_params(request: Request) -> dict[str, Json]:
    """Parameters to be sent under their own names: all but the longest answer."""
    return {name: value for name, value in request.params.items() if name not in MAX_TOKENS}


def check_params(request: Request, taken: frozenset[str], name: str) -> None:
    """Check that a request holds no parameter that the model does not take.

    Raises:
        ConfigError: it does.
    """
    for param in request.params:
        if param not in taken:
            raise ConfigError(
                f"{name} does not take the parameter `{param}`; {nearest(param, taken)}; add it to "
                "`params` in the model's options if it does"
            )


def schema_name(schema: Mapping[str, Json]) -> str:
    """The name that a JSON schema is sent under."""
    title = schema.get("title")
    return title if isinstance(title, str) else "answer"
