"""Read datasets into examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from bestarm_agent.config.datasets.columnar import (
    huggingface_source,
    read_huggingface,
    read_parquet,
)
from bestarm_agent.config.datasets.rows import ALL_COLUMNS, Columns, Row, to_examples
from bestarm_agent.config.datasets.text import read_json, read_jsonl, read_separated
from bestarm_agent.config.user_functions import load_object
from bestarm_agent.config.yaml.documents import check_file, shown_path
from bestarm_agent.domain.example import Example
from bestarm_agent.errors import ConfigError, PluginError
from bestarm_agent.plugins.registry import Registry

Reader: TypeAlias = Callable[[Path], Iterable[Mapping[str, object]]]

READERS: Final = Registry[Reader](
    "dataset format",
    None,
    {},
    callable,
    "a function from a path to rows",
)
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}


def load_examples(
    path: Path,
    columns: Columns = ALL_COLUMNS,
    *,
    format: str = "auto",
    limit: int | None = None,
    base_dir: Path | None = None,
) -> tuple[Example, ...]:
    """Read a dataset from a file.

    Args:
        path: the file.
        columns: the fields that hold id, target and inputs.
        format: "jsonl", "json", "csv", "tsv", "parquet", or a dotted path ``module:function``;
            "auto" goes by the suffix.
        limit: read at most this many rows, from the top, >= 1; None reads all.
        base_dir: folder where the module of a dotted path is looked up first.

    Raises:
        ConfigError: the file is missing, empty or malformed, or a row breaks a rule.
        PluginError: the function of a dotted path cannot be used.
    """
    check_file(path)
    with _reading(path):
        rows = islice(_rows(path, _format_of(path, format), columns, base_dir or Path()), limit)
        return to_examples(rows, columns, shown_path(path))


def load_rows(path: Path, kind: str = "dataset") -> Iterator[Row]:
    """Read the rows of a file, by its suffix; ``kind`` names it in a ConfigError."""
    check_file(path, kind)
    with _reading(path):
        yield from _rows(path, _format_of(path, "auto"), ALL_COLUMNS, Path())


def load_huggingface_examples(
    name: str,
    columns: Columns = ALL_COLUMNS,
    *,
    split: str = "test",
    subset: str | None = None,
    revision: str | None = None,
    limit: int | None = None,
) -> tuple[Example, ...]:
    """Read a dataset of the Hugging Face hub, or a local folder; download it if necessary.

    Args:
        name: name on the hub, or a local folder.
        columns: the fields that hold id, target and inputs.
        split: the split to read.
        subset: configuration of the dataset; None for its only or default one.
        revision: commit, tag or branch; pin it to keep the rows from changing.
        limit: read at most this many rows, from the top, >= 1; None reads all.

    Raises:
        ConfigError: the extra ``data`` is missing, or the dataset cannot be loaded.
    """
    rows = read_huggingface(name, columns, subset=subset, split=split, revision=revision)
    return to_examples(islice(rows, limit), columns, huggingface_source(name, split))


def _rows(path: Path, format: str, columns: Columns, base_dir: Path) -> Iterator[Row]:
    match format:
        case "jsonl":
            return read_jsonl(path)
        case "json":
            return read_json(path)
        case "csv":
            return read_separated(path, ",")
        case "tsv":
            return read_separated(path, "\t")
        case "parquet":
            return read_parquet(path, columns)
        case _:
            read = READERS.load(format, imported=partial(load_object, base_dir=base_dir))
            return _read_by_plugin(read, path, format)


def _read_by_plugin(read: Reader, path: Path, format: str) -> Iterator[Row]:
    try:
        for number, values in enumerate(read(path), start=1):
            yield Row(f"row {number}", values)
    except (OSError, ConfigError):
        raise
    except Exception as error:  # a reader may raise anything
        raise PluginError(
            f"dataset format `{format}` cannot read {shown_path(path)}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _format_of(path: Path, format: str) -> str:
    if format != "auto":
        return format
    found = _SUFFIXES.get(path.suffix.lower())
    if found is None:
        known = ", ".join(_SUFFIXES)
        raise ConfigError(
            f"{shown_path(path)}: the suffix {path.suffix!r} is none of {known}; set the format"
        )
    return found


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot read {shown_path(path)}: {error.strerror or error}") from None
