"""Options of vLLM servers that are started and stopped here."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from os.path import expanduser
from pathlib import Path
from typing import ClassVar

from pydantic import Field, model_validator

from bestarm_agent.config.fields import StudyModel
from bestarm_agent.domain.redaction import is_secret_variable
from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.providers.api.options import ApiOptions
from bestarm_agent.providers.child_process import environment
from bestarm_agent.providers.local import LocalOptions
from bestarm_agent.providers.vllm.devices import Devices, Need

_NVIDIA = Path("/proc/driver/nvidia/gpus")  # a folder for each device
_MODULE = "vllm.entrypoints.openai.api_server"
# Arguments by which a study divides a model over its devices itself.
_DIVIDING = (
    *("--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp"),
    *("--data-parallel-size", "-dp"),
)


class ServedModel(StudyModel):
    """A model with a server of its own, or just its path."""

    short_form: ClassVar[str | None] = "path"

    path: str = Field(min_length=1)  # folder relative to the study, or a name on the hub
    args: tuple[str, ...] = ()  # further arguments of its server
    gpus: int | None = Field(default=None, ge=1)  # None: as ``ServeOptions`` says for all models


class ServeOptions(LocalOptions):
    """The option ``serve`` of a ``vllm`` provider, in addition to ``LocalOptions``.

    Attributes:
        pass_env: variables to pass on although their names end like a secret's, such as HF_TOKEN.
        sleep: true to put a server to sleep (its weights wait in main memory) instead of stopping
            it when it makes room; CUDA and ROCm only.
    """

    models: dict[str, ServedModel] = Field(min_length=1)  # by the name that candidates use
    python: str | None = None  # interpreter of vLLM's environment; None: our own
    args: tuple[str, ...] = ()  # further arguments of every server
    env: dict[str, str] = Field(default_factory=dict)  # variables to set
    pass_env: tuple[str, ...] = ()
    gpus: int = Field(default=1, ge=1)  # devices that one server holds
    sleep: bool = False
    in_flight: int = Field(default=256, ge=1)  # calls at once at one server
    call_seconds: float = Field(default=600.0, gt=0, allow_inf_nan=False)  # longest time of a call
    start_seconds: float = Field(default=900.0, gt=0, allow_inf_nan=False)  # until it is ready
    log_dir: str = "runs/vllm"  # folder for the servers' logs, relative to the study

    def served(self, model: str) -> ServedModel:
        """Return a model's own options; raises ConfigError if it is not served."""
        if model not in self.models:
            raise ConfigError(
                f"`serve` starts no server for {model!r}; {nearest(model, self.models)}"
            )
        return self.models[model]

    def gpus_of(self, model: str) -> int:
        """Return the number of devices of a model's server."""
        return self.served(model).gpus or self.gpus

    def devices(self) -> Devices:
        """Return the devices that servers may see, and what each model's server takes of them."""
        seen = self.variables().get("CUDA_VISIBLE_DEVICES")
        names = seen.split(",") if seen else [str(i) for i in range(len([*_NVIDIA.glob("*")]))]
        return Devices(names, {model: self._need(model, len(names)) for model in self.models})

    def _need(self, model: str, n_seen: int) -> Need:
        given = [part for argument in self._given(model) for part in argument.split("=", 1)]
        names = [part.replace("_", "-") for part in given]
        # Where the arguments divide it over more devices than `gpus` says, it sees all of them.
        n = self.gpus_of(model)
        n = n_seen if n == 1 and not set(_DIVIDING).isdisjoint(names) else n
        share = 1.0  # of one that does not say what it takes
        with suppress(ValueError, IndexError):
            share = float(given[names.index("--gpu-memory-utilization") + 1])
        return Need(max(n, 1), min(share, 1.0))

    def _given(self, model: str) -> tuple[str, ...]:
        return (*self.args, *self.served(model).args)

    def program(self) -> str:
        """Return the interpreter that runs the servers; raises ConfigError if ours lacks vLLM."""
        if self.python is not None:
            return expanduser(self.python)
        if find_spec("vllm") is None:
            raise ConfigError(
                "vLLM is not installed in this Python; install it (pip install vllm), or name the "
                "interpreter that has it in `serve: {python: ...}`"
            )
        return sys.executable

    def arguments(self, model: str, base_dir: Path, port: int) -> list[str]:
        """Return the interpreter's arguments for a model's server."""
        served = self.served(model)
        folder = base_dir / served.path
        path = str(folder.resolve()) if folder.is_dir() else served.path
        arguments = ["-m", _MODULE, "--model", path, "--served-model-name", model]
        arguments += ["--host", "127.0.0.1", "--port", str(port)]
        if self.sleep:
            arguments.append("--enable-sleep-mode")
        given = self._given(model)
        # "--tensor_parallel_size=2" is another way to write "--tensor-parallel-size 2".
        names = {argument.partition("=")[0].replace("_", "-") for argument in given}
        if self.gpus_of(model) > 1 and names.isdisjoint(_DIVIDING):
            arguments += ["--tensor-parallel-size", str(self.gpus_of(model))]
        return [*arguments, *given]

    def variables(self) -> dict[str, str]:
        """Return a server's variables: our own without secrets, what it needs, and those set."""
        # vLLM, CUDA and NCCL are set up by variables of many names, so all but secrets are passed
        # on.
        own = {name: os.environ[name] for name in os.environ if not is_secret_variable(name)}
        needed = {"VLLM_NO_USAGE_STATS": "1"}
        if self.sleep:
            needed["VLLM_SERVER_DEV_MODE"] = "1"  # else there is no /sleep
        return {**own, **environment(self.pass_env, {**needed, **self.env})}


class VllmOptions(ApiOptions):
    """Options of the ``vllm`` provider: those of ``openai``, or servers to be started."""

    serve: ServeOptions | None = None

    @model_validator(mode="after")
    def _check_servers(self) -> VllmOptions:
        if self.serve is not None and self.endpoints is not None:
            raise ValueError(
                "has both `serve`, which starts servers, and `endpoints` of servers that run "
                "already; leave one of them out"
            )
        return self
