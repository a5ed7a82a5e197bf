"""What a file of the providers catalogue may hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from bestarm_agent.config.rates import ProviderRateSpec
from bestarm_agent.domain.digest import Json
from bestarm_agent.providers.prices import PriceOverride

# What the prompt is sent in, and what would make several answers or a stream of one.
_PROMPT = frozenset({"model", "messages", "prompt", "input", "system", "stream", "n", "best_of"})
# What the upper bound of a call's cost depends on.
_BOUND = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens", "service_tier"})


def _refuse_reserved(names: Iterable[str], reserved: frozenset[str]) -> None:
    for name in names:
        if name in reserved:
            way_out = "set it in `params` of the study" if name in _BOUND else "leave it out"
            raise ValueError(f"`{name}` cannot be among these; {way_out}")


class ModelFacts(BaseModel):
    """What is known of one model behind an API; None leaves it to the layer below.

    Attributes:
        params: names of all sampling parameters that it takes.
        without: names of those that it lacks, of all that its API knows.
        context: tokens that prompt and answer may have together.
        price: its price, where the table knows none or a wrong one.
        logprobs: whether it tells the probabilities of its tokens.
        response_schema: whether answers are made to follow a JSON schema.
        max_tokens_field: the name under which chat completions take the longest answer.
        default_max_tokens: longest answer of requests that name none, >= 1: without it a call's
            cost had no bound. Reasoning counts.
        text: how plain prompts are sent: as one message of the user, or for completion.
        api: the API of OpenAI that chat messages are sent to; "embeddings" for a model that turns a
            plain prompt into a vector, which is its answer as a JSON list.
        legacy_sampling: whether temperature, top_p and top_k are sent, under the API version of
            Anthropic that still takes them.
        extra_body: further fields of the request, sent as they are; none that the prompt or the
            bound of a call's cost depends on.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    params: tuple[str, ...] | None = None
    without: tuple[str, ...] | None = None
    context: int | None = Field(None, ge=1)
    price: PriceOverride | None = Field(
        None, description="dollars per million tokens", examples=["{input: 0.10, output: 0.50}"]
    )
    logprobs: bool | None = None
    response_schema: bool | None = None
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] | None = None
    default_max_tokens: int | None = Field(None, ge=1)
    text: Literal["chat", "completions"] | None = None
    api: Literal["chat", "responses", "embeddings"] | None = None
    legacy_sampling: bool | None = None
    extra_body: dict[str, JsonValue] | None = None

    @field_validator("params")
    @classmethod
    def _check_params(cls, params: tuple[str, ...] | None) -> tuple[str, ...] | None:
        _refuse_reserved(params or (), _PROMPT)
        return params

    @field_validator("extra_body")
    @classmethod
    def _check_extra_body(cls, body: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
        _refuse_reserved(body or (), _PROMPT | _BOUND)
        return body

    def under(self, other: ModelFacts) -> Self:
        """Return these facts, with those of ``other`` in their place where it has any."""
        own = {name: getattr(other, name) for name in ModelFacts.model_fields}
        return self.model_copy(update={k: v for k, v in own.items() if v is not None})


FACTS = frozenset(ModelFacts.model_fields)


def divided(options: Mapping[str, Json]) -> tuple[dict[str, Json], dict[str, Json]]:
    """Return the facts about a model among a provider's options, and the other options."""
    facts = {name: value for name, value in options.items() if name in FACTS}
    return facts, {name: value for name, value in options.items() if name not in FACTS}


class ProviderEntry(BaseModel):
    """A file of a ``providers/`` folder.

    Attributes:
        name: what users call the provider, the first part of ``provider/model``.
        adapter: how it is spoken to.
        description: one sentence for people.
        in_flight: calls under way at once; None leaves it to the provider.
        limits: rate limits of each model, where neither the study nor the provider says others.
        options: options of the adapter; a study's own come before them.
        models: what is known of models, by patterns of their names (``claude-3-*``), the first that
            matches; for adapters that take such facts.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    adapter: str
    description: str = ""
    in_flight: int | None = Field(None, ge=1)
    limits: ProviderRateSpec = Field(default_factory=ProviderRateSpec)
    options: dict[str, JsonValue] = Field(default_factory=dict)
    models: dict[str, ModelFacts] = Field(default_factory=dict)


def layered(entry: ProviderEntry, study: Mapping[str, Json]) -> dict[str, Json]:
    """Return the facts of a catalogue entry by pattern, with what a study says over them.

    Args:
        entry: the entry.
        study: the study's options for the provider; its own patterns come first.
    """
    over, others = divided(study)
    own = others.get("models")
    known: dict[str, Json] = {
        pattern: {**facts.model_dump(mode="json", exclude_none=True), **over}
        for pattern, facts in entry.models.items()
    }
    return {**own, **known} if isinstance(own, Mapping) else known
