"""Loading from a folder; code that comes with a model is never run."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.hf_continuous import ContinuousEngine, PageSettings
from bestarm_agent.providers.hf_engine import StaticBatchEngine
from bestarm_agent.providers.hf_text import TextCodec
from bestarm_agent.providers.residency import available_bytes

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Dtype: TypeAlias = Literal["float32", "bfloat16"]
Device: TypeAlias = Literal["auto", "cpu", "cuda"]

_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")


def check_installed() -> None:
    """Check that torch and transformers are there; raises ConfigError."""
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the provider hf needs {' and '.join(missing)}; run: pip install 'bestarm-agent[hf]'"
        )


def import_transformers() -> None:
    """Import what loading needs, and keep it from writing on the terminal."""
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
class Loading:
    """How models are loaded.

    Attributes:
        dtype: of the weights in memory.
        device: where they go, "cpu" or "cuda".
        n_threads: torch's threads in the calling thread, where the model is to be used.
    """

    dtype: Dtype
    device: str
    n_threads: int


def load_static(
    folder: Path, context_length: int | None, how: Loading, max_seconds: float
) -> StaticBatchEngine:
    """Load a model that generates in static batches.

    Args:
        folder: as ``save_pretrained`` writes it.
        context_length: tokens of prompt and reply together, or None for no limit.
        how: dtype, device and threads.
        max_seconds: a batch that takes longer is cut off, > 0.

    Raises:
        ValueError: weights are missing, so that the model would answer at random.
        Exception: whatever the libraries raise on a broken folder.
    """
    model, codec = _load(folder, context_length, how)
    return StaticBatchEngine(model.generate, codec, max_seconds, device=how.device)


def load_continuous(
    folder: Path, context_length: int | None, how: Loading, pages: PageSettings
) -> ContinuousEngine:
    """Load a model that generates continuously; raises as ``load_static`` does."""
    model, codec = _load(folder, context_length, how)
    return ContinuousEngine(model, codec, pages)


def find_device(asked: Device) -> str:
    """The device to use: "cuda" or "cpu".

    Without a driver torch is not even imported to look.

    Raises:
        ConfigError: "cuda" is asked for, and torch finds none.
    """
    if asked == "cpu" or (asked == "auto" and not _NVIDIA_DRIVER.exists()):
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if asked == "auto":
        return "cpu"
    raise ConfigError(
        f"torch {torch.__version__} finds no CUDA device; install a build for CUDA and its driver, "
        "or set the option `device: cpu`"
    )


def free_bytes(device: str) -> int:
    """Memory that is free for use on a device."""
    if device == "cpu":
        return available_bytes()
    import torch

    return int(torch.cuda.mem_get_info()[0])


def _load(folder: Path, context_length: int | None, how: Loading) -> tuple[Any, TextCodec]:
    """A model in evaluation mode, and its tokenizer."""
    tokenizer = load_tokenizer(folder)
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    torch.set_num_threads(how.n_threads)
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=getattr(torch, how.dtype),
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        output_loading_info=True,
    )
    model, report = loaded
    lacking = sorted({*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])})
    if lacking:
        raise ValueError(f"its weights lack, or have in another shape, {', '.join(lacking[:3])}")
    codec = TextCodec(tokenizer, _listed(model.generation_config.eos_token_id), context_length)
    # recommended temperatures and penalties must not leak into what a study compares
    model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
    return model.to(how.device).eval(), codec


def _listed(eos: int | list[int] | None) -> list[int]:
    if eos is None:
        return []
    return eos if isinstance(eos, list) else [eos]
