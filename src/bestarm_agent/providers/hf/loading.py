"""Loads models from folders; code that comes with a model is never run."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.hf.continuous_engine import ContinuousEngine
from bestarm_agent.providers.hf.options import Device, Dtype, PageSettings
from bestarm_agent.providers.hf.static_engine import StaticBatchEngine
from bestarm_agent.providers.hf.tokenizing import TextCodec
from bestarm_agent.providers.model_memory import available_bytes

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")


def check_installed() -> None:
    """Check that torch and transformers are installed; raises ConfigError."""
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the provider hf needs {' and '.join(missing)}; run: pip install 'bestarm-agent[hf]'"
        )


def import_transformers() -> None:
    """Import the libraries, and keep them from writing to the terminal."""
    import torch  # noqa: F401
    from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: F401
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model's folder; raises whatever the libraries raise."""
    import_transformers()
    from transformers import AutoTokenizer

    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    return tokenizer


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """Type and device ("cpu" or "cuda") of the weights, and torch's threads in this thread."""

    dtype: Dtype
    device: str
    n_threads: int


def load_static(
    folder: Path, context_length: int | None, settings: LoadSettings, max_seconds: float
) -> StaticBatchEngine:
    """Load a model that generates in static batches, which are cut off after ``max_seconds``.

    Raises whatever the libraries raise on a broken folder, ValueError if weights are missing.
    """
    model, codec = _load(folder, context_length, settings)
    return StaticBatchEngine(model.generate, codec, max_seconds, device=settings.device)


def load_continuous(
    folder: Path, context_length: int | None, settings: LoadSettings, pages: PageSettings
) -> ContinuousEngine:
    """Load a model that generates continuously; raises as ``load_static`` does."""
    model, codec = _load(folder, context_length, settings)
    return ContinuousEngine(model, codec, pages)


def find_device(device: Device) -> str:
    """Return "cuda" or "cpu"; raises ConfigError. "auto" imports torch only with a driver."""
    if device == "cpu" or (device == "auto" and not _NVIDIA_DRIVER.exists()):
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if device == "auto":
        return "cpu"
    raise ConfigError(
        f"torch {torch.__version__} finds no CUDA device; install a build for CUDA and its driver, "
        "or set the option `device: cpu`"
    )


def free_bytes(device: str) -> int:
    """Return the free memory of a device, in bytes."""
    if device == "cpu":
        return available_bytes()
    import torch

    return int(torch.cuda.mem_get_info()[0])


def _load(
    folder: Path, context_length: int | None, settings: LoadSettings
) -> tuple[Any, TextCodec]:
    tokenizer = load_tokenizer(folder)
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    torch.set_num_threads(settings.n_threads)
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=getattr(torch, settings.dtype),
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        output_loading_info=True,
    )
    model, report = loaded
    missing = sorted({*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])})
    if missing:
        raise ValueError(f"its weights lack, or have in another shape, {', '.join(missing[:3])}")
    codec = TextCodec(tokenizer, _as_list(model.generation_config.eos_token_id), context_length)
    # recommended temperatures and penalties must not leak into what a study compares
    model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
    return model.to(settings.device).eval(), codec


def _as_list(eos: int | list[int] | None) -> list[int]:
    if eos is None:
        return []
    return eos if isinstance(eos, list) else [eos]
