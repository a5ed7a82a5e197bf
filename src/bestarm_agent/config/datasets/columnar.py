"""Read parquet files and datasets of the Hugging Face hub; both need the extra ``data``."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from bestarm_agent.config.datasets.rows import Columns, Row
from bestarm_agent.config.yaml.documents import shown_path
from bestarm_agent.errors import ConfigError

_BATCH_ROWS = 1024


def read_parquet(path: Path, columns: Columns) -> Iterator[Row]:
    """Read the required columns of a parquet file."""
    parquet = _extra("pyarrow.parquet", "reading parquet files")
    lib = import_module("pyarrow.lib")
    try:
        with parquet.ParquetFile(path) as file:
            names = columns.selected(file.schema_arrow.names, shown_path(path))
            batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=names)
            yield from _rows(batches)
    except (lib.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{shown_path(path)} is not a sound parquet file: {reason}") from None


def read_huggingface(
    name: str, columns: Columns, *, subset: str | None, split: str, revision: str | None
) -> Iterator[Row]:
    """Read one split of a dataset of the Hugging Face hub; download it if necessary."""
    hub = _extra("datasets", "reading datasets of the Hugging Face hub")
    try:
        table = hub.load_dataset(name, subset, split=split, revision=revision)
    except Exception as error:  # the hub, the network, the disk, the dataset's own files
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"cannot load {huggingface_source(name, split)}: {reason}") from error
    names = columns.selected(table.column_names, huggingface_source(name, split))
    table = table.select_columns(names)
    yield from _rows(table.with_format("arrow").iter(batch_size=_BATCH_ROWS))


def huggingface_source(name: str, split: str) -> str:
    """Return the name of a dataset of the hub for messages."""
    return f"split `{split}` of the Hugging Face dataset {name}"


def _extra(module: str, purpose: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError:
        raise ConfigError(
            f"{purpose} needs the extra `data`; run: pip install 'bestarm-agent[data]'"
        ) from None


def _rows(batches: Iterator[Any]) -> Iterator[Row]:
    number = 0
    for batch in batches:
        names = batch.schema.names
        columns = [_values(batch.column(at)) for at in range(len(names))]
        for values in zip(*columns, strict=True):
            number += 1
            yield Row(f"row {number}", dict(zip(names, values, strict=True)))


def _values(column: Any) -> list[object]:  # noqa: ANN401 - an arrow array
    """Return the JSON values of a column: short floats stay short, times and decimals are text."""
    arrow = import_module("pyarrow")
    types = arrow.types
    if types.is_float16(column.type) or types.is_float32(column.type):
        column = column.cast(arrow.float32()).cast(arrow.string()).cast(arrow.float64())
    elif types.is_temporal(column.type) or types.is_decimal(column.type):
        column = column.cast(arrow.string())
    values: list[object] = column.to_pylist()
    return values
