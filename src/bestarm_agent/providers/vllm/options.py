"""Options of vLLM servers that are started and stopped here."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import pairwise
from math import prod
from os.path import expanduser
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from bestarm_agent.config.fields import StrictModel
from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.providers.devices import Device
from bestarm_agent.providers.local_provider import LocalOptions
from bestarm_agent.providers.placement import Demand

_MODULE = "vllm.entrypoints.openai.api_server"
# Arguments whose product is the number of a server's devices.
_PARALLEL = (
    ("--tensor-parallel-size", "-tp"),
    ("--pipeline-parallel-size", "-pp"),
    ("--data-parallel-size", "-dp"),
)


def _check_devices(value: object) -> object:
    if value == "auto" or (
        isinstance(value, list | tuple)
        and value
        and all(isinstance(one, int) and one >= 0 for one in value)
    ):
        return value
    raise ValueError("must be `auto`, or a list of device numbers such as [0, 1]")


Devices: TypeAlias = Annotated[Literal["auto"] | tuple[int, ...], BeforeValidator(_check_devices)]


class ServedModel(StrictModel):
    """A model with servers of its own, or just its path.

    None, for the last four: as ``ServeOptions`` says for all models.
    """

    path: str = Field(min_length=1)  # folder relative to the study, or a name on the hub
    args: tuple[str, ...] = ()  # further arguments of its servers
    devices: Devices | None = None
    gpus: int | None = Field(default=None, ge=1)
    replicas: int | None = Field(default=None, ge=1)
    memory_gb: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, value: object) -> object:
        return {"path": value} if isinstance(value, str) else value


class Adapter(StrictModel):
    """A LoRA adapter, loaded into the server of its base model."""

    base: str  # name of one of the served models
    path: str = Field(min_length=1)  # its folder, relative to the study


class ServeOptions(LocalOptions):
    """The option ``serve`` of a ``vllm`` provider, in addition to ``LocalOptions``.

    Attributes:
        pass_env: further variables to pass on, such as HF_TOKEN. Those of CUDA, vLLM, torch and the
            like always are, unless their names end like a secret's.
        devices: numbers, as nvidia-smi counts, of the devices that servers may be given; "auto":
            all that are visible. Not used where ``resident`` is set, or no device is found.
        memory_gb: 1e9 bytes that a server takes of each of its devices, so that several share one;
            None: all, or the share in ``--gpu-memory-utilization`` of ``args``.
        resident: servers awake at once, whatever their devices, which are then left to ``args`` and
            ``env``. None: as many as fit onto the devices, or all if there are none.
        sleep: true to put a server to sleep (its weights wait in main memory) instead of stopping
            it when it makes room; CUDA and ROCm only.
    """

    models: dict[str, ServedModel] = Field(default_factory=dict)  # by the name that candidates use
    model: str | None = None  # a single model's path, instead of ``models``; its name is the path
    adapters: dict[str, Adapter] = Field(default_factory=dict)  # LoRA, by the candidates' names
    python: str | None = None  # has vLLM; in PATH, or a path relative to the study; None: our own
    command: tuple[str, ...] = ()  # instead of ``python -m vllm.entrypoints.openai.api_server``
    args: tuple[str, ...] = ()  # further arguments of every server
    env: dict[str, str] = Field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    devices: Devices = "auto"
    gpus: int = Field(default=1, ge=1)  # devices that one server holds
    replicas: int = Field(default=1, ge=1)  # servers of each model
    memory_gb: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    resident: int | None = Field(default=None, ge=1)
    sleep: bool = False
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
        for name, served in self.served.items():
            share = self._stated_share(name)
            if share is not None and not 0 < share <= 1:
                raise ValueError(f"--gpu-memory-utilization must be in (0, 1], got {share:g}")
            if share is not None and (served.memory_gb or self.memory_gb):
                raise ValueError(
                    f"`{name}` has both `memory_gb` and --gpu-memory-utilization in `args`; leave "
                    "one of them out"
                )
        if self.resident is not None and (path := self.needs_devices()):
            raise ValueError(
                f"`resident` leaves devices to you, and `{path[-1]}` has them assigned; leave one "
                "out"
            )
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

    def servers_of(self, name: str) -> int:
        """Return the number of servers of one model."""
        return self.served[name].replicas or self.replicas

    def demand(self, name: str) -> Demand:
        """Return the devices that one model takes."""
        served = self.served[name]
        gigabytes = served.memory_gb or self.memory_gb
        share = self._stated_share(name)
        devices = served.devices or self.devices
        return Demand(
            name,
            gpus=self._stated_gpus(name) or served.gpus or self.gpus,
            replicas=self.servers_of(name),
            n_bytes=None if gigabytes is None else int(gigabytes * 1e9),
            share=1.0 if share is None else share,
            devices=None if devices == "auto" else devices,
        )

    def needs_devices(self) -> tuple[str, ...]:
        """Return the path of an option that needs assigned devices; empty if there is none."""
        each: list[tuple[tuple[str, ...], ServedModel | ServeOptions]] = [((), self)]
        each += [(("models", name), served) for name, served in self.served.items()]
        for path, options in each:
            if options.devices not in (None, "auto"):
                return (*path, "devices")
            if options.memory_gb is not None:
                return (*path, "memory_gb")
            if options.replicas not in (None, 1):
                return (*path, "replicas")
        return ()

    def _stated_share(self, name: str) -> float | None:
        """Return the share of a device's memory by a server's arguments; None if not there."""
        return _value([*self.args, *self.served[name].args], "--gpu-memory-utilization")

    def _stated_gpus(self, name: str) -> int | None:
        """Return the devices of one server by its arguments; None if these do not say."""
        args = [*self.args, *self.served[name].args]
        stated = [size for flags in _PARALLEL if (size := _value(args, *flags)) is not None]
        return int(prod(stated)) if stated else None

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

    def arguments(
        self, name: str, base_dir: Path, port: int, devices: Sequence[Device] = ()
    ) -> list[str]:
        """Return the arguments of a model's server, on some devices if they are assigned."""
        served = self.served[name]
        arguments = ["--model", location(served.path, base_dir), "--served-model-name", name]
        arguments += ["--host", "127.0.0.1", "--port", str(port)]
        n_adapters = sum(adapter.base == name for adapter in self.adapters.values())
        if n_adapters:
            arguments += ["--enable-lora", "--max-loras", str(n_adapters)]
        if self.sleep:
            arguments.append("--enable-sleep-mode")
        if len(devices) > 1 and self._stated_gpus(name) is None:
            arguments += ["--tensor-parallel-size", str(len(devices))]
        n_bytes = self.demand(name).n_bytes
        if devices and n_bytes is not None:
            share = n_bytes / max(device.n_bytes for device in devices)
            arguments += ["--gpu-memory-utilization", f"{share:.4f}"]
        return [*arguments, *self.args, *served.args]

    def variables(self) -> dict[str, str]:
        """Return the variables that our use of a server needs, overridden by the user's."""
        needed = {"VLLM_NO_USAGE_STATS": "1"}
        if self.sleep:
            needed["VLLM_SERVER_DEV_MODE"] = "1"  # else there is no /sleep
        if self.adapters:
            needed["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "True"
        return {**needed, **self.env}


def _value(args: Sequence[str], *flags: str) -> float | None:
    """Return the number that follows a flag, the last one given; None if none is."""
    found = None
    words = [word for arg in args for word in arg.split("=", 1)]
    for flag, value in pairwise(words):
        if flag.replace("_", "-") in flags:
            with suppress(ValueError):  # vLLM itself says what is wrong with it
                found = float(value)
    return found


def location(path: str, base_dir: Path) -> str:
    """Return a folder next to the study as an absolute path; other texts are names on the hub."""
    folder = base_dir / path
    return str(folder.resolve()) if folder.is_dir() else path
