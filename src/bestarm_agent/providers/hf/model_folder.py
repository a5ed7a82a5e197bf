"""Reads a model's folder without loading the model: its files, size and features."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import file_digest
from math import prod
from pathlib import Path
from typing import Any

from bestarm_agent.errors import ConfigError

# Everything that decides a reply; a README or a training log does not.
CONTENT = ("*.json", "*.jinja", "*.model", "*.safetensors", "*.txt")

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model", "vocab.txt")
_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx")
_LENGTH_BYTES = 8
_AGAIN = "copy or download the model again, or correct its name"


@dataclass(frozen=True)
class ModelFolder:
    """A folder as ``save_pretrained`` writes it; messages call it ``shown``."""

    path: Path
    shown: str

    def check(self) -> None:
        """Check that no file is missing, malformed or truncated; raises ConfigError."""
        if "model_type" not in self.config:
            raise ConfigError(f"{self.shown}/config.json names no `model_type`; {_AGAIN}")
        self._check_tokenizer()
        if self.n_parameters == 0:
            raise ConfigError(f"{self.shown}: its weights hold no tensor; {_AGAIN}")

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
        if any(
            (self.path / name).exists() for name in ("chat_template.jinja", "chat_template.json")
        ):
            return True
        if not (self.path / "tokenizer_config.json").exists():
            return False
        return bool(self._json("tokenizer_config.json").get("chat_template"))

    @cached_property
    def n_parameters(self) -> int:
        """Numbers in all weight files; raises ConfigError if a file is missing or truncated."""
        return sum(self._count_parameters(name) for name in self._weight_files())

    def digest_files(self) -> dict[str, Path]:
        """Return the files that decide the replies, by name."""
        return {path.name: path for pattern in CONTENT for path in self.path.glob(pattern)}

    def _weight_files(self) -> list[str]:
        if (self.path / "model.safetensors").exists():
            return ["model.safetensors"]
        index = "model.safetensors.index.json"
        if (self.path / index).exists():
            shards = self._json(index).get("weight_map")
            if isinstance(shards, dict) and shards:
                return sorted(set(shards.values()))
            raise ConfigError(f"{self.shown}/{index} has no `weight_map`; {_AGAIN}")
        other = next((path.name for path in self.path.glob("*.bin")), None)
        if other is not None:
            raise ConfigError(
                f"{self.shown} holds {other}, a pickle, which can run code when it is loaded; load "
                "it where you trust it, and write safetensors with `model.save_pretrained(folder)`"
            )
        raise ConfigError(f"{self.shown} holds no model.safetensors; {_AGAIN}")

    def _count_parameters(self, name: str) -> int:
        shown = f"{self.shown}/{name}"
        try:
            header, n_data = _read_header(self.path / name)
            tensors = [entry for key, entry in header.items() if key != "__metadata__"]
            end = max((entry["data_offsets"][1] for entry in tensors), default=0)
            sizes = [prod(entry["shape"]) for entry in tensors]
        except FileNotFoundError:
            raise ConfigError(f"{shown} is missing; {_AGAIN}") from None
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise ConfigError(f"{shown} is no safetensors file ({error}); {_AGAIN}") from None
        if end != n_data:
            raise ConfigError(
                f"{shown} is not whole: its header announces {end:,} bytes of weights and "
                f"{n_data:,} follow; {_AGAIN}"
            )
        return sum(sizes)

    def _check_tokenizer(self) -> None:
        if not any((self.path / name).exists() for name in _TOKENIZERS):
            raise ConfigError(f"{self.shown} holds no tokenizer.json; {_AGAIN}")
        path = self.path / "tokenizer.json"
        if not path.exists():
            return
        from tokenizers import Tokenizer

        try:
            Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise ConfigError(
                f"{self.shown}/tokenizer.json cannot be read ({error}); {_AGAIN}"
            ) from None

    def _json(self, name: str) -> Mapping[str, Any]:
        try:
            value = json.loads((self.path / name).read_bytes())
        except FileNotFoundError:
            raise ConfigError(f"{self.shown} holds no {name}; {_AGAIN}") from None
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{self.shown}/{name} cannot be read as JSON ({error}); {_AGAIN}"
            ) from None
        if not isinstance(value, dict):
            raise ConfigError(f"{self.shown}/{name} holds no JSON object; {_AGAIN}")
        return value


class ContentDigests:
    """Digests of files, computed again only if a file's size or time has changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], str] = {}

    def of(self, path: Path) -> str:
        """Return the SHA-256 of a file's content, in hexadecimal."""
        status = path.stat()
        key = (str(path), status.st_size, status.st_mtime_ns)
        if key not in self._known:
            with path.open("rb") as content:
                self._known[key] = file_digest(content, "sha256").hexdigest()
        return self._known[key]


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the header of a safetensors file, and the number of bytes after it."""
    size = path.stat().st_size
    with path.open("rb") as content:
        length = int.from_bytes(content.read(_LENGTH_BYTES), "little")
        if not 0 < length <= size - _LENGTH_BYTES:
            raise ValueError(f"a header of {length:,} bytes in a file of {size:,}")
        header = json.loads(content.read(length))
    return header, size - _LENGTH_BYTES - length
