"""Finds a model's folder: below the study, or in the Hugging Face hub's cache."""

from __future__ import annotations

import os
import re
from pathlib import Path

from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.providers.hf.model_folder import CONTENT

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
            f"there is no model folder {model}, and it cannot be downloaded: {error}; correct the "
            "name, set HF_TOKEN if the model is gated, or put a folder there"
        ) from None


def _neighbours(folder: Path) -> str:
    parent = folder.parent
    if not parent.is_dir():
        return "correct the path, which starts from the study's folder"
    names = [entry.name for entry in parent.iterdir() if entry.is_dir()]
    return f"in the same folder, {nearest(folder.name, names)}"
