"""The schema of a file of the providers catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, JsonValue, field_validator

from bestarm_agent.config.fields import StrictModel
from bestarm_agent.config.study import RateSpec
from bestarm_agent.domain.values import Finish, Json
from bestarm_agent.providers.prices import PriceOverride

# Fields that hold the prompt, or that ask for several answers or a stream.
PROMPT = frozenset({"model", "messages", "prompt", "input", "system", "stream", "n", "best_of"})
# Fields that the upper bound of a call's cost depends on.
_BOUND = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens", "service_tier"})

_ADDRESSES = frozenset({"base_url", "endpoints"})


class ModelFacts(StrictModel):
    """Facts about one model behind an API; None leaves a fact to the layer below.

    Attributes:
        default_max_tokens: longest answer, reasoning included, of requests that name none: without
            it a call's cost had no bound.
        completion: true to send plain prompts as they are, to be completed; else they are one
            message of the user, so that the model's chat template applies.
        images: false if it takes no images and files in messages.
        image_tokens: most tokens of an image, or of a page of a PDF besides its text.
        legacy_sampling: true to send temperature, top_p and top_k, under the last API version of
            Anthropic that takes them.
        cache_from: the fewest tokens that the API's prompt cache keeps; calls with the same
            beginning of that length go out one first and then together. 0: they do not.
        without: whatever is not listed here is sent, and what the server refuses is then learned:
            the list saves that call. Besides parameters: ``logprobs``, ``response_format``.
        effort_tokens: true where an effort is a budget of thinking tokens, under Anthropic's API.
        finish: what further reasons to stop of its server mean: stop, length, refusal or
            content-filter.
        extra_body: further fields, sent as they are; none that a call's bound depends on.
    """

    without: tuple[str, ...] | None = None  # parameters and features that it is known to refuse
    context: int | None = Field(None, ge=1)  # most tokens of prompt and answer together
    price: PriceOverride | None = Field(  # its price, where the table has none or a wrong one
        None, description="dollars per million tokens", examples=["{input: 0.10, output: 0.50}"]
    )
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] | None = None
    default_max_tokens: int | None = Field(None, ge=1)
    completion: bool | None = None
    images: bool | None = None
    image_tokens: int | None = Field(None, ge=1)
    api: Literal["chat", "responses"] | None = None  # of OpenAI's APIs
    legacy_sampling: bool | None = None
    effort_tokens: bool | None = None
    cache_from: int | None = Field(None, ge=0)
    extra_body: dict[str, JsonValue] | None = None
    finish: dict[str, Finish] | None = None

    @field_validator("extra_body")
    @classmethod
    def _check_extra_body(cls, body: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
        for name in sorted((body or {}).keys() & (PROMPT | _BOUND)):
            way_out = "set it in `params` of the study" if name in _BOUND else "leave it out"
            raise ValueError(f"`{name}` cannot be among these; {way_out}")
        return body


def merge_options(*layers: Mapping[str, Json]) -> dict[str, Json]:
    """Return options in which later layers override earlier ones.

    ``base_url`` and ``endpoints`` both say where a model is: each overrides the other.
    """
    merged: dict[str, Json] = {}
    for layer in layers:
        if _ADDRESSES & layer.keys():
            merged = {name: value for name, value in merged.items() if name not in _ADDRESSES}
        merged |= layer
    return merged


class ProviderEntry(StrictModel):
    """A file of a ``providers/`` folder.

    ``limits`` are those of each model unless the study or the provider states others. Keys of
    ``models`` are patterns of names (``claude-3-*``); the first that matches counts.
    """

    name: str  # the first part of ``provider/model``
    adapter: str
    description: str = ""  # one sentence for people
    in_flight: int | None = Field(None, ge=1)  # calls at once; None leaves it to the provider
    limits: RateSpec = Field(default_factory=RateSpec)
    options: dict[str, JsonValue] = Field(default_factory=dict)  # of the adapter; a study overrides
    models: dict[str, ModelFacts] = Field(default_factory=dict)

    def resolve(
        self, study: Mapping[str, Json], own: Mapping[str, Json]
    ) -> tuple[dict[str, Json], dict[str, Json]]:
        """Return the options of an API's provider, and the facts stated about one model.

        A model's ``own`` options come before those of the ``study``, and these before what this
        file says of the model, or of all. Facts about other models do not part their providers.
        """
        stated = _facts_among(own)
        shared = {name: value for name, value in own.items() if name not in stated}
        # From the weakest to the strongest: this file, the study's provider, and the model's own
        # options.
        options = merge_options(self._priced(self.options), study, shared)
        over, patterns = _facts_among(study), study.get("models")
        # What the study says of the provider overrides what this file says of single models:
        # ``models`` would otherwise come before it.
        known: dict[str, Json] = {
            pattern: {**self._priced(facts.model_dump(mode="json", exclude_unset=True)), **over}
            for pattern, facts in self.models.items()
        }
        options["models"] = {**(patterns if isinstance(patterns, Mapping) else {}), **known}
        return options, stated

    def _priced(self, facts: Mapping[str, Json]) -> dict[str, Json]:
        """Return facts whose price says that it is from this file."""
        price = facts.get("price")
        if not isinstance(price, Mapping):
            return dict(facts)
        return {**facts, "price": {"source": f"the catalogue's {self.name}", **price}}


def _facts_among(options: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in options.items() if name in ModelFacts.model_fields}
