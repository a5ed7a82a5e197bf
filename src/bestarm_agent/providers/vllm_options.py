"""Options of vLLM servers that are started and stopped by us."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from decimal import Decimal
from os.path import expanduser
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bestarm_agent.errors import ConfigError, nearest

_MODULE = "vllm.entrypoints.openai.api_server"


class ServedModel(BaseModel):
    """A model with a server of its own, or just its path.

    Attributes:
        path: folder relative to the study, or a name on the hub.
        args: further arguments of its server.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(min_length=1)
    args: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, value: object) -> object:
        return {"path": value} if isinstance(value, str) else value


class Adapter(BaseModel):
    """A LoRA adapter, loaded into the server of its base model.

    Attributes:
        base: name of one of the served models.
        path: its folder, relative to the study.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    base: str
    path: str = Field(min_length=1)


class ServeOptions(BaseModel):
    """What ``serve`` of a ``vllm`` provider may hold.

    Attributes:
        models: what is served, by the name that candidates use.
        model: a single model's path, instead of ``models``; its name is the path.
        adapters: LoRA adapters, by the name that candidates use.
        python: interpreter of the environment that vLLM is installed in; one with a slash is a file
            relative to the study. Default: our own.
        command: what to run instead of ``python -m vllm.entrypoints.openai.api_server``; it gets
            the same arguments.
        args: further arguments of every server.
        env: variables to set.
        pass_env: further variables to pass on, such as HF_TOKEN. Those of CUDA, vLLM, torch and the
            like always are, unless their names end like a secret's.
        resident: servers that hold the accelerators at once. None: all.
        sleep: whether a server that makes room goes to sleep (its weights wait in main memory)
            instead of being stopped; CUDA and ROCm only.
        loading_share: share of the time, in (0, 1], that starting and waking may take, as with hf.
        gpus: accelerators that one server holds.
        usd_per_gpu_hour: price of an hour of one of them. Default: free.
        max_gpu_seconds: most accelerator seconds that one call is charged; with a price every call
            reserves this much before it is sent.
        in_flight: calls under way at once at one server.
        call_seconds: longest time for one call, once its model is awake.
        start_seconds: longest time until a server is ready.
        stop_seconds: longest time between asking a server to end and killing it.
        sleep_seconds: longest time for going to sleep, or waking; then it is stopped instead.
        log_dir: folder for what the servers write, relative to the study.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    models: dict[str, ServedModel] = Field(default_factory=dict)
    model: str | None = None
    adapters: dict[str, Adapter] = Field(default_factory=dict)
    python: str | None = None
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    resident: int | None = Field(default=None, ge=1)
    sleep: bool = False
    loading_share: float | None = Field(default=0.1, gt=0, le=1)
    gpus: int = Field(default=1, ge=1)
    usd_per_gpu_hour: Decimal = Field(default=Decimal(0), ge=0)
    max_gpu_seconds: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    in_flight: int = Field(default=256, ge=1)
    call_seconds: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    start_seconds: float = Field(default=900.0, gt=0, allow_inf_nan=False)
    stop_seconds: float = Field(default=20.0, ge=0, allow_inf_nan=False)
    sleep_seconds: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    log_dir: str = "runs/vllm"

    @model_validator(mode="after")
    def _check_names(self) -> ServeOptions:
        if (self.model is None) == (not self.models):
            raise ValueError("needs either `models` or `model`")
        for name, adapter in self.adapters.items():
            if name in self.served:
                raise ValueError(f"`{name}` is both a model and an adapter; rename one")
            if adapter.base not in self.served:
                known = nearest(adapter.base, self.served)
                raise ValueError(f"adapter `{name}`: no model is called `{adapter.base}`; {known}")
        return self

    @property
    def served(self) -> Mapping[str, ServedModel]:
        """The models by name."""
        if self.model is not None:
            return {self.model: ServedModel(path=self.model)}
        return self.models

    def holder(self, model: str) -> str:
        """The served model behind a name: itself, or the base of an adapter.

        Raises:
            ConfigError: nothing is called so.
        """
        if model in self.adapters:
            return self.adapters[model].base
        if model not in self.served:
            raise ConfigError(
                f"`serve` starts no server for {model!r}; "
                f"{nearest(model, [*self.served, *self.adapters])}"
            )
        return model

    def program(self) -> tuple[str, ...]:
        """The command line of a server, without arguments."""
        python = sys.executable if self.python is None else expanduser(self.python)
        return self.command or (python, "-m", _MODULE)

    def arguments(self, name: str, base_dir: Path, port: int) -> list[str]:
        """Arguments of one model's server."""
        served = self.served[name]
        arguments = ["--model", location(served.path, base_dir), "--served-model-name", name]
        arguments += ["--host", "127.0.0.1", "--port", str(port)]
        n_adapters = sum(adapter.base == name for adapter in self.adapters.values())
        if n_adapters:
            arguments += ["--enable-lora", "--max-loras", str(n_adapters)]
        if self.sleep:
            arguments.append("--enable-sleep-mode")
        return [*arguments, *self.args, *served.args]

    def variables(self) -> dict[str, str]:
        """Variables that our way of using a server needs, below those that the user sets."""
        needed = {"VLLM_NO_USAGE_STATS": "1"}
        if self.sleep:
            needed["VLLM_SERVER_DEV_MODE"] = "1"  # else there is no /sleep
        if self.adapters:
            needed["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "True"
        return {**needed, **self.env}


def location(path: str, base_dir: Path) -> str:
    """A folder next to the study as an absolute path; anything else is a name on the hub."""
    folder = base_dir / path
    return str(folder.resolve()) if folder.is_dir() else path
