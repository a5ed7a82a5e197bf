"""The devices that the models of a study are given on this machine, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bestarm_agent.providers.base import PlacesModels, Provider
from bestarm_agent.providers.placement import Placement


@dataclass(frozen=True, slots=True)
class PlacedModel:
    """The devices of one model."""

    model: str  # provider and model
    devices: tuple[tuple[int, ...], ...]  # numbers of the devices of each of its servers
    n_bytes: int  # memory that it takes of each device; of the first, where they differ
    of_bytes: int  # memory of that device
    turns_with: tuple[str, ...]  # models that it takes turns with; empty if it stays loaded


def placed_models(providers: Sequence[Provider]) -> tuple[PlacedModel, ...]:
    """Return all models that providers place, in their order; those of each provider once."""
    distinct = {id(provider): provider for provider in providers}
    return tuple(
        placed
        for provider in distinct.values()
        if isinstance(provider, PlacesModels) and provider.placement is not None
        for placed in _placed(provider.name, provider.placement)
    )


def _placed(provider: str, placement: Placement) -> Iterator[PlacedModel]:
    for model, servers in placement.servers.items():
        rivals = next((models for models in placement.turns if model in models), ())
        first = servers[0][0]
        yield PlacedModel(
            f"{provider}/{model}",
            tuple(tuple(device.number for device in server) for server in servers),
            placement.demands[model].memory(first),
            first.n_bytes,
            tuple(f"{provider}/{other}" for other in rivals if other != model),
        )
