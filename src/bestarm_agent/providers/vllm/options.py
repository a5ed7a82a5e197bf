"""Options of vLLM servers that are started and stopped here."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from os.path import expanduser
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.providers.local_provider import LocalOptions

_MODULE = "vllm.entrypoints.openai.api_server"


class ServedModel(BaseModel):
    """A model with a server of its own, or just its path."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(min_length=1)  # folder relative to the study, or a name on the hub
    args: tuple[str, ...] = ()  # further arguments of its server

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, value: object) -> object:
        return {"path": value} if isinstance(value, str) else value


class Adapter(BaseModel):
    """A LoRA adapter, loaded into the server of its base model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base: str  # name of one of the served models
    path: str = Field(min_length=1)  # its folder, relative to the study


class ServeOptions(LocalOptions):
    """The option ``serve`` of a ``vllm`` provider, in addition to ``LocalOptions``.

    Attributes:
        pass_env: further variables to pass on, such as HF_TOKEN. Those of CUDA, vLLM, torch and the
            like always are, unless their names end like a secret's.
        sleep: true to put a server to sleep (its weights wait in main memory) instead of stopping
            it when it makes room; CUDA and ROCm only.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    models: dict[str, ServedModel] = Field(default_factory=dict)  # by the name that candidates use
    model: str | None = None  # a single model's path, instead of ``models``; its name is the path
    adapters: dict[str, Adapter] = Field(default_factory=dict)  # LoRA, by the candidates' names
    python: str | None = None  # has vLLM; in PATH, or a path relative to the study; None: our own
    command: tuple[str, ...] = ()  # instead of ``python -m vllm.entrypoints.openai.api_server``
    args: tuple[str, ...] = ()  # further arguments of every server
    env: dict[str, str] = Field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    resident: int | None = Field(default=None, ge=1)  # servers awake at once; None: all
    sleep: bool = False
    gpus: int = Field(default=1, ge=1)  # accelerators that one server holds
    in_flight: int = Field(default=256, ge=1)  # calls at once at one server
    call_seconds: float = Field(default=600.0, gt=0, allow_inf_nan=False)  # longest time of a call
    start_seconds: float = Field(default=900.0, gt=0, allow_inf_nan=False)  # until it is ready
    stop_seconds: float = Field(default=20.0, ge=0, allow_inf_nan=False)  # between SIGTERM and kill
    sleep_seconds: float = Field(default=60.0, gt=0, allow_inf_nan=False)  # to go to sleep, or wake
    log_dir: str = "runs/vllm"  # folder for the servers' logs, relative to the study

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
        """Served models by name."""
        if self.model is not None:
            return {self.model: ServedModel(path=self.model)}
        return self.models

    def holder(self, model: str) -> str:
        """Return the served model behind a name, an adapter's base included; raises ConfigError."""
        if model in self.adapters:
            return self.adapters[model].base
        if model not in self.served:
            raise ConfigError(
                f"`serve` starts no server for {model!r}; "
                f"{nearest(model, [*self.served, *self.adapters])}"
            )
        return model

    def program(self) -> tuple[str, ...]:
        """Return the command line of a server, without arguments."""
        python = sys.executable if self.python is None else expanduser(self.python)
        return self.command or (python, "-m", _MODULE)

    def check_installed(self) -> None:
        """Check that vLLM is installed, if our own interpreter runs it; raises ConfigError."""
        if not self.command and self.python is None and find_spec("vllm") is None:
            raise ConfigError(
                "vLLM is not installed in this Python; install it (pip install vllm), or name the "
                "interpreter that has it in `serve: {python: ...}`"
            )

    def arguments(self, name: str, base_dir: Path, port: int) -> list[str]:
        """Return the arguments of one model's server."""
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
        """Return the variables that our use of a server needs, overridden by the user's."""
        needed = {"VLLM_NO_USAGE_STATS": "1"}
        if self.sleep:
            needed["VLLM_SERVER_DEV_MODE"] = "1"  # else there is no /sleep
        if self.adapters:
            needed["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "True"
        return {**needed, **self.env}


def location(path: str, base_dir: Path) -> str:
    """Return a folder next to the study as an absolute path; other texts are names on the hub."""
    folder = base_dir / path
    return str(folder.resolve()) if folder.is_dir() else path
