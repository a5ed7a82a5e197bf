"""What a file of the providers catalogue may hold."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from bestarm_agent.config.rates import ProviderRateSpec


class ProviderEntry(BaseModel):
    """A file of a ``providers/`` folder.

    Attributes:
        name: what users call the provider, the first part of ``provider/model``.
        adapter: how it is spoken to.
        description: one sentence for people.
        in_flight: calls under way at once; None leaves it to the provider.
        limits: rate limits of each model, where neither the study nor the provider says others.
        options: options of the adapter; a study's own come before them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    adapter: str
    description: str = ""
    in_flight: int | None = Field(None, ge=1)
    limits: ProviderRateSpec = Field(default_factory=ProviderRateSpec)
    options: dict[str, JsonValue] = Field(default_factory=dict)
