"""Datasets are read into examples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Literal, TypeAlias

from bestarm_agent.config.documents import shown_path
from bestarm_agent.datasets.columnar import huggingface_source, read_huggingface, read_parquet
from bestarm_agent.datasets.rows import Columns, Fields, Row, to_examples
from bestarm_agent.datasets.text import read_json, read_jsonl, read_separated
from bestarm_agent.domain.example import Example
from bestarm_agent.errors import ConfigError, nearest

Format: TypeAlias = Literal["jsonl", "json", "csv", "tsv", "parquet"]

_SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}


def load_examples(
    path: Path,
    *,
    format: Format | Literal["auto"] = "auto",
    id_field: str | None = None,
    target_field: str | None = None,
    fields: Fields = None,
    limit: int | None = None,
) -> tuple[Example, ...]:
    """Read a dataset from a file.

    Args:
        path: the file.
        format: "auto" goes by the file's suffix.
        id_field: field with a unique id; None takes ``id`` if the first row has it, else numbers
            the rows: "000001".
        target_field: field with the reference answer or a list of acceptable ones, texts or
            numbers; None if no judge needs one.
        fields: fields that templates may use, or a mapping from the names that templates use to
            the fields; None means all but the target.
        limit: read this many rows at most, from the top, >= 1; None reads all.

    Raises:
        ConfigError: the file is missing, empty or malformed, or a row breaks a rule; names file,
            line or row, and the way out.
    """
    _check_limit(limit)
    _check_file(path)
    columns = Columns(id_field, target_field, fields)
    with _reading(path):
        rows = islice(_rows(path, _format_of(path, format), columns), limit)
        return to_examples(rows, columns, shown_path(path))


def load_rows(path: Path) -> Iterator[Row]:
    """Read the rows of a file as they are; its suffix says how.

    Raises:
        ConfigError: the file is missing or malformed.
    """
    _check_file(path)
    with _reading(path):
        yield from _rows(path, _format_of(path, "auto"), Columns())


def load_huggingface_examples(
    name: str,
    *,
    split: str = "test",
    subset: str | None = None,
    revision: str | None = None,
    id_field: str | None = None,
    target_field: str | None = None,
    fields: Fields = None,
    limit: int | None = None,
) -> tuple[Example, ...]:
    """Read a dataset of the Hugging Face hub, downloading it if need be.

    Args:
        name: name on the hub, or a local folder.
        split: which split.
        subset: configuration of the dataset; None for its only or default one.
        revision: commit, tag or branch; pin it to keep the rows from changing.
        id_field: as for ``load_examples``.
        target_field: likewise.
        fields: likewise.
        limit: likewise.

    Raises:
        ConfigError: the extra ``data`` is not installed, the dataset cannot be loaded, or a row
            breaks a rule.
    """
    _check_limit(limit)
    columns = Columns(id_field, target_field, fields)
    rows = read_huggingface(name, columns, subset=subset, split=split, revision=revision)
    return to_examples(islice(rows, limit), columns, huggingface_source(name, split))


def _rows(path: Path, format: Format, columns: Columns) -> Iterator[Row]:
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


def _format_of(path: Path, format: Format | Literal["auto"]) -> Format:
    if format != "auto":
        return format
    found = _SUFFIXES.get(path.suffix.lower())
    if found is None:
        known = ", ".join(_SUFFIXES)
        raise ConfigError(
            f"{shown_path(path)}: the suffix {path.suffix!r} is none of {known}; set the format"
        )
    return found


def _check_limit(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise ValueError(f"`limit` must be >= 1, got {limit}")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Say what the system says as a ConfigError."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot read {shown_path(path)}: {error.strerror or error}") from None


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise ConfigError(f"dataset {shown_path(path)} is a folder; name a file in it")
    if not path.exists():
        folder = path.parent
        if not folder.is_dir():
            raise ConfigError(
                f"dataset {shown_path(path)} does not exist, and neither does its folder; a "
                "relative path starts from the study file's folder"
            )
        files = [file.name for file in folder.iterdir()]
        raise ConfigError(f"dataset {shown_path(path)} does not exist; {nearest(path.name, files)}")
