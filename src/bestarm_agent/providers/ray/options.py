"""Options of the ``ray`` provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from bestarm_agent.config.fields import StrictModel
from bestarm_agent.domain.digest import Json


class RayOptions(StrictModel):
    """Options of the ``ray`` provider; all others are those of the provider that the actors run.

    Attributes:
        address: "auto": the cluster that RAY_ADDRESS names, or that runs on this machine. "local":
            one that is started for the run. Or host and port.
        adapter: the provider that the actors run, by its name in the catalogue or its dotted path.
        gpus: accelerators of one actor; a share of one lets actors share it.
        start_seconds: longest time without any actor, of waiting for resources and of starting.
            Raise it where an autoscaler has to start machines first.
        runtime_env: Ray's runtime environment of the actors.
    """

    address: str = Field(default="auto", min_length=1)
    adapter: str = Field(default="hf", min_length=1)
    replicas: int = Field(default=1, ge=1)  # actors; each loads the models that it is asked for
    gpus: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    cpus: float = Field(default=1.0, ge=0, allow_inf_nan=False)  # cores of one actor
    start_seconds: float = Field(default=120.0, gt=0, allow_inf_nan=False)
    runtime_env: dict[str, Any] = Field(default_factory=dict)


def split_options(
    options: Mapping[str, Json],
) -> tuple[dict[str, Json], dict[str, Json]]:
    """Return our own options and those of the provider that the actors run."""
    own = RayOptions.model_fields
    ours = {name: value for name, value in options.items() if name in own}
    return ours, {name: value for name, value in options.items() if name not in own}
