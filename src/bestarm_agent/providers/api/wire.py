"""An API protocol: writes requests and reads answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.request_reply import Request
from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.providers.api.response_body import Answer
from bestarm_agent.providers.api.token_bounds import MAX_TOKENS
from bestarm_agent.providers.catalog_entry import ModelFacts


@dataclass(frozen=True, slots=True)
class Wire:
    """One protocol."""

    path: str  # of its requests, below the base address
    params: frozenset[str]  # names of its sampling parameters
    # writes the body of a request, given the longest answer in tokens; without "model"
    encode: Callable[[Request, ModelFacts, int], dict[str, Json]]
    # reads the body of a response; raises MalformedError
    decode: Callable[[Mapping[str, Json]], Answer]
    prompt_fields: frozenset[str]  # fields of the body that hold the prompt
    headers: tuple[tuple[str, str], ...] = ()  # further ones, by name

    def params_of(self, facts: ModelFacts) -> frozenset[str]:
        """Return the names of the sampling parameters that a model takes."""
        names = self.params if facts.params is None else frozenset(facts.params)
        return names - frozenset(facts.without or ())

    def sent(self, body: Mapping[str, Json]) -> dict[str, Json]:
        """Return a body without the prompt, for the record."""
        return {name: value for name, value in body.items() if name not in self.prompt_fields}


def chat_messages(request: Request) -> list[dict[str, Json]]:
    """Return a request's chat messages; a plain prompt is one message of the user."""
    if request.text is not None:
        return [{"role": "user", "content": request.text}]
    return [{"role": message.role, "content": message.content} for message in request.messages]


def own_params(request: Request) -> dict[str, Json]:
    """Return the parameters that keep their names: all but the longest answer."""
    return {name: value for name, value in request.params.items() if name not in MAX_TOKENS}


def check_params(request: Request, known: frozenset[str], name: str) -> None:
    """Check that a model takes all parameters of a request; raises ConfigError."""
    for param in request.params:
        if param not in known:
            raise ConfigError(
                f"{name} does not take the parameter `{param}`; {nearest(param, known)}; add it to "
                "`params` in the model's options if it does"
            )


def schema_name(schema: Mapping[str, Json]) -> str:
    """Return the name under which a JSON schema is sent."""
    title = schema.get("title")
    return title if isinstance(title, str) else "answer"
