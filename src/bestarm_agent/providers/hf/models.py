"""The models of a study: found once, checked, and compared with the memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from pathlib import Path

from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.hf.hub import locate
from bestarm_agent.providers.hf.model_folder import ModelFolder
from bestarm_agent.providers.hf.options import Dtype
from bestarm_agent.providers.model_memory import available_bytes

_BYTES_PER_NUMBER: Mapping[Dtype, int] = {"float32": 4, "bfloat16": 2}
_SHARE_OF_FREE_MEMORY = 0.6


class ModelFolders:
    """Finds models by name."""

    def __init__(
        self,
        base_dir: Path,  # folder of the study, the start of relative paths
        dtype: Dtype,  # type of the weights in memory
        memory_gb: float | None,  # for weights, 1e9 bytes; None: 60 % of what is free at first use
        free_bytes: Callable[[], int] = available_bytes,  # returns those of the models' device
    ) -> None:
        self._free_bytes = free_bytes
        self._base_dir = base_dir
        self._dtype = dtype
        self._memory_gb = memory_gb
        self._folders: dict[str, ModelFolder] = {}

    def __len__(self) -> int:
        return len(self._folders)

    def find(self, model: str) -> ModelFolder | None:
        """Return a model's checked folder, None if not downloaded yet; raises ConfigError."""
        return self._checked(model, download=False)

    def fetch(self, model: str) -> ModelFolder:
        """Return a model's checked folder, downloading it if necessary; raises as ``find`` does."""
        folder = self._checked(model, download=True)
        if folder is None:
            raise ConfigError(f"model {model} was downloaded, but its folder is gone; try again")
        return folder

    def n_bytes(self, folder: ModelFolder) -> int:
        """Return the bytes of a model's weights in memory."""
        return folder.n_parameters * _BYTES_PER_NUMBER[self._dtype]

    def fit(self, models: Collection[str]) -> bool:
        """Return True if models fit into memory together; those to be downloaded count nothing."""
        return sum(self.sizes.get(model, 0) for model in models) <= self.memory_cap

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of the weights of every model found so far."""
        return {model: self.n_bytes(folder) for model, folder in self._folders.items()}

    @cached_property
    def memory_cap(self) -> int:
        """Bytes for the weights of all loaded models."""
        return self.share_of(self._free_bytes())

    def share_of(self, free: int) -> int:
        """Return how much of some free memory weights may take, in bytes."""
        if self._memory_gb is not None:
            return int(self._memory_gb * 1e9)
        return int(_SHARE_OF_FREE_MEMORY * free)

    def _checked(self, model: str, *, download: bool) -> ModelFolder | None:
        if model not in self._folders:
            path = locate(model, self._base_dir, download=download)
            if path is None:
                return None
            folder = ModelFolder(path, model)
            folder.check()
            self._check_size(folder)
            self._folders[model] = folder
        return self._folders[model]

    def _check_size(self, folder: ModelFolder) -> None:
        needed = self.n_bytes(folder)
        if needed > self.memory_cap:
            way_out = "" if self._dtype == "bfloat16" else ", or set `dtype: bfloat16`"
            raise ConfigError(
                f"model {folder.shown} takes {needed / 1e9:.3g} GB as {self._dtype}, more than the "
                f"{self.memory_cap / 1e9:.3g} GB that models may take; raise the provider's option "
                f"`memory_gb`{way_out}"
            )
