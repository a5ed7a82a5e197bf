"""The models of a study: found once, checked, and compared with the memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from pathlib import Path

from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.providers.hf.model_folder import CONTENT, ModelFolder
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


_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_YES = {"1", "ON", "YES", "TRUE"}


def locate(model: str, base_dir: Path, *, download: bool) -> Path | None:
    """Find the folder of a path relative to ``base_dir``, or of a model on the hub.

    Returns None if it would have to be downloaded and ``download`` is False. Raises ConfigError if
    there is no such folder or model, or it cannot be downloaded.
    """
    folder = base_dir / model
    if folder.is_dir():
        return folder
    if not _HUB_NAME.fullmatch(model) or (base_dir / model.split("/")[0]).is_dir():
        raise ConfigError(f"there is no model folder {model}; {_neighbours(folder)}")
    if (cached := _snapshot(model, local_files_only=True)) is not None:
        return cached
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in _YES:
        raise ConfigError(
            f"there is no model folder {model}, nor a model of that name in the Hugging Face "
            "cache, and HF_HUB_OFFLINE is set; correct the name, or unset it to download the model"
        )
    return _snapshot(model, local_files_only=False) if download else None


def _snapshot(model: str, *, local_files_only: bool) -> Path | None:
    import huggingface_hub as hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            hub.snapshot_download(
                model, allow_patterns=list(CONTENT), local_files_only=local_files_only
            )
        )
    except HFValidationError as error:
        raise ConfigError(f"{model!r} can be no model's name: {error}") from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        if local_files_only:
            return None
        raise ConfigError(
            f"there is no model folder {model}, and it cannot be downloaded: "
            f"{str(error).partition(chr(10))[0]}; correct the name, set HF_TOKEN if the model is "
            f"gated, or put a folder there"
        ) from None


def _neighbours(folder: Path) -> str:
    parent = folder.parent
    if not parent.is_dir():
        return "correct the path, which starts from the study's folder"
    names = [entry.name for entry in parent.iterdir() if entry.is_dir()]
    return f"in the same folder, {nearest(folder.name, names)}"
