"""Model folders: found by name, downloaded, and checked without loading the model."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import file_digest
from math import prod
from pathlib import Path
from typing import Any

from bestarm_agent.domain.values import Request
from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.providers.hf.tokenizer import TextCodec, load_tokenizer, max_text_tokens

# Tokens that tokenizers put around a text: BOS, EOS, a leading space, and some to spare.
_SPECIAL_TOKENS = 8

# Everything that decides a reply; a README or a training log does not.
_CONTENT = ("*.json", "*.jinja", "*.model", "*.safetensors", "*.txt")

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model", "vocab.txt")
_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx")
BYTES_PER_NUMBER = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
_STORED = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_AGAIN = "copy or download the model again, or correct its name"


@dataclass(frozen=True)
class ModelFolder:
    """A folder as ``save_pretrained`` writes it; messages call it ``subject``."""

    path: Path
    subject: str

    def check(self) -> None:
        """Check that no file is missing, malformed or truncated; raises ConfigError."""
        if "model_type" not in self.config:
            raise ConfigError(f"{self.subject}/config.json names no `model_type`; {_AGAIN}")
        self._check_tokenizer()
        if self.n_parameters == 0:
            raise ConfigError(f"{self.subject}: its weights hold no tensor; {_AGAIN}")

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """Content of ``config.json``; raises ConfigError."""
        return self._json("config.json")

    @cached_property
    def context_length(self) -> int | None:
        """Most tokens of prompt and reply together, or None if the folder does not say."""
        config = {**self.config, **(self.config.get("text_config") or {})}
        for key in _CONTEXT_KEYS:
            if isinstance(config.get(key), int) and config[key] > 0:
                return int(config[key])
        return None

    @cached_property
    def has_chat_template(self) -> bool:
        """True if the tokenizer can write chat messages."""
        if any((self.path / f"chat_template.{kind}").exists() for kind in ("jinja", "json")):
            return True
        if not (self.path / "tokenizer_config.json").exists():
            return False
        return bool(self._json("tokenizer_config.json").get("chat_template"))

    @cached_property
    def n_parameters(self) -> int:
        """Numbers in all weight files; raises ConfigError if a file is missing or truncated."""
        return sum(n for name in self._weight_files() for _, n in self._tensors(name))

    @cached_property
    def dtype(self) -> str:
        """Type in which the weights are meant to be loaded, as torch calls it; raises ConfigError.

        As ``config.json`` says, else that of the first floating-point weight.
        """
        config = {**(self.config.get("text_config") or {}), **self.config}
        stated = str(config.get("dtype") or config.get("torch_dtype")).removeprefix("torch.")
        return stated if stated in BYTES_PER_NUMBER else self._stored_dtype()

    def max_prompt_tokens(self, request: Request) -> int:
        """Return the most tokens that a prompt can have; at most the model's context length.

        Every token takes at least one byte. The bytes that a chat template adds are measured by
        rendering it once for every sequence of roles; only then is a tokenizer loaded.
        """
        if request.text is not None:
            bound = max_text_tokens(request.text)
        else:
            overhead, copies = self.template_size(tuple(m.role for m in request.messages))
            contents = sum(max_text_tokens(message.text) for message in request.messages)
            bound = overhead + copies * contents
        bound += _SPECIAL_TOKENS
        return bound if self.context_length is None else min(bound, self.context_length)

    def template_size(self, roles: tuple[str, ...]) -> tuple[int, int]:
        """Return the bytes that the chat template adds, and how often it repeats each content."""
        if roles not in self._template_sizes:
            # Contents of one and of two letters: every copy of a content makes the text one byte
            # longer per message, so the difference, divided by the number of messages and rounded
            # up, is how often it is repeated. The shorter text still holds one letter of each copy,
            # which errs to the safe side.
            try:  # contents of two lengths
                shorter, longer = (
                    len(self._codec.render([(role, "x" * n) for role in roles]).encode())
                    for n in (1, 2)
                )
                size = shorter, max(1, -(-(longer - shorter) // len(roles)))
            except Exception:  # a template raises what it likes where it refuses the roles
                size = 0, 1  # such a call fails before it has used anything
            self._template_sizes[roles] = size
        return self._template_sizes[roles]

    @cached_property
    def _template_sizes(self) -> dict[tuple[str, ...], tuple[int, int]]:
        return {}

    @cached_property
    def _codec(self) -> TextCodec:
        return TextCodec(load_tokenizer(self.path))

    def _weight_files(self) -> list[str]:
        if (self.path / "model.safetensors").exists():
            return ["model.safetensors"]
        index = "model.safetensors.index.json"
        if (self.path / index).exists():
            shards = self._json(index).get("weight_map")
            if isinstance(shards, dict) and shards:
                return sorted(set(shards.values()))
            raise ConfigError(f"{self.subject}/{index} has no `weight_map`; {_AGAIN}")
        # Named apart from "no weights", since the way out is another one.
        other = next((path.name for path in self.path.glob("*.bin")), None)
        if other is not None:
            raise ConfigError(
                f"{self.subject} holds {other}, a pickle, which can run code when it is "
                "loaded; load it where you trust it, and write safetensors with "
                "`model.save_pretrained(folder)`"
            )
        raise ConfigError(f"{self.subject} holds no model.safetensors; {_AGAIN}")

    def _stored_dtype(self) -> str:
        kinds = (kind for name in self._weight_files() for kind, _ in self._tensors(name))
        return next((_STORED[kind] for kind in kinds if kind in _STORED), "float32")

    def _tensors(self, name: str) -> list[tuple[str, int]]:
        """Return type and size of each tensor of a file; raises ConfigError."""
        from safetensors import SafetensorError, safe_open

        file = f"{self.subject}/{name}"
        try:
            with safe_open(self.path / name, framework="np") as weights:
                slices = [weights.get_slice(key) for key in weights.keys()]  # noqa: SIM118
                return [(tensor.get_dtype(), prod(tensor.get_shape())) for tensor in slices]
        except FileNotFoundError:
            raise ConfigError(f"{file} is missing; {_AGAIN}") from None
        except (OSError, SafetensorError) as error:
            raise ConfigError(f"{file} is no whole safetensors file ({error}); {_AGAIN}") from None

    def _check_tokenizer(self) -> None:
        if not any((self.path / name).exists() for name in _TOKENIZERS):
            raise ConfigError(f"{self.subject} holds no tokenizer.json; {_AGAIN}")
        path = self.path / "tokenizer.json"
        if not path.exists():
            return
        from tokenizers import Tokenizer

        try:
            Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise ConfigError(
                f"{self.subject}/tokenizer.json cannot be read ({error}); {_AGAIN}"
            ) from None

    def _json(self, name: str) -> Mapping[str, Any]:
        try:
            value = json.loads((self.path / name).read_bytes())
        except FileNotFoundError:
            raise ConfigError(f"{self.subject} holds no {name}; {_AGAIN}") from None
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{self.subject}/{name} cannot be read as JSON ({error}); {_AGAIN}"
            ) from None
        if not isinstance(value, dict):
            raise ConfigError(f"{self.subject}/{name} holds no JSON object; {_AGAIN}")
        return value


def content_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the files in a model's folder that decide replies, by name."""
    files = (path for pattern in _CONTENT for path in folder.glob(pattern))
    # Hashing gigabytes takes seconds, so a digest is kept as long as the file has its size and
    # time.
    state = {path: path.stat() for path in files}
    return {path.name: _digest(path, st.st_size, st.st_mtime_ns) for path, st in state.items()}


@cache  # as long as size and time stay
def _digest(path: Path, _size: int, _mtime_ns: int) -> str:
    with path.open("rb") as content:
        return file_digest(content, "sha256").hexdigest()


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
    # A path "models/small" and the name "org/model" look alike. Where the first part is a folder
    # here, a path was meant, and the hub is not asked for a name that was misspelt.
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
                model, allow_patterns=list(_CONTENT), local_files_only=local_files_only
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
