"""Records read from files: lines of JSON, a CSV table, or stored score matrices."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from math import isnan
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.config.yaml.documents import check_file
from bestarm_agent.errors import ConfigError
from bestarm_agent.preselection.feedback import Record, parse_line, parse_record

_OF_A_ROW = ("prompt", "shown", "winner", "ranking")


def read_history(path: Path) -> Iterator[Record]:
    """Read records one by one; raise ConfigError if the file or a record cannot be used.

    A CSV has a column ``prompt`` and either ``shown`` (names with ``|`` between them) with
    ``winner`` or ``ranking``, or else one column of scores per candidate, empty where it was not
    run. An npz has ``scores`` (n, N), ``methods`` (n) and ``prompt_text`` (N) or ``features``
    (N, p), and may have ``usd`` or ``cost`` (n).
    """
    readers = {".jsonl": _jsonl, ".csv": _csv, ".npz": _npz}
    reader = readers.get(path.suffix)
    if reader is None:
        raise ConfigError(f"history is read from {', '.join(readers)}, got {str(path)!r}")
    check_file(path, "history")
    try:
        yield from reader(path)
    except (OSError, UnicodeDecodeError, csv.Error, BadZipFile) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _jsonl(path: Path) -> Iterator[Record]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield parse_line(line, f"{path}, line {number}")


def _csv(path: Path) -> Iterator[Record]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, restkey="")
        columns = reader.fieldnames or ()
        if "prompt" not in columns:
            raise ConfigError(f"{path}: no column `prompt`; there are {', '.join(columns)}")
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            if "" in row or None in row.values():
                raise ConfigError(f"{where}: the row is not as wide as the header")
            yield parse_record(_from_row(row, where), where)


def _from_row(row: dict[str, str], where: str) -> dict[str, Any]:
    if "shown" in row:
        made: dict[str, Any] = {"prompt": row["prompt"], "shown": _split(row["shown"])}
        if row.get("ranking"):
            return {**made, "ranking": _split(row["ranking"])}
        return {**made, "winner": row.get("winner") or None}
    given = {name: text for name, text in row.items() if name not in _OF_A_ROW and text.strip()}
    try:
        scores = {name: float(text) for name, text in given.items()}
    except ValueError as error:
        raise ConfigError(f"{where}: scores must be numbers ({error})") from None
    return {"prompt": row["prompt"], "scores": scores}


def _split(text: str) -> list[str]:
    return [name.strip() for name in text.split("|") if name.strip()]


def _npz(path: Path) -> Iterator[Record]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in _WANTED if key in file.files}
    except ValueError as error:
        raise ConfigError(f"{path} is not a file of plain arrays: {error}") from error
    yield from matrix_records(arrays, str(path))


_WANTED = ("scores", "methods", "prompt_text", "features", "usd", "cost")


def matrix_records(arrays: dict[str, NDArray[Any]], source: str) -> Iterator[Record]:
    """Yield the columns of a score matrix as records; a NaN cell was not run."""
    if not {"scores", "methods"} <= set(arrays) or not {"prompt_text", "features"} & set(arrays):
        raise ConfigError(
            f"{source}: needs the arrays `scores`, `methods`, and `prompt_text` or `features`"
        )
    scores, names = arrays["scores"], [str(name) for name in arrays["methods"]]
    texts = arrays.get("prompt_text", np.full(scores.shape[-1], ""))
    features = arrays.get("features", np.zeros((scores.shape[-1], 0)))
    if scores.shape != (len(names), len(texts)) or len(features) != len(texts):
        raise ConfigError(f"{source}: scores must be {len(names)} x {len(texts)}")
    prices = arrays.get("usd", arrays.get("cost"))
    usd = {} if prices is None else dict(zip(names, prices.tolist(), strict=True))
    for j in range(len(texts)):
        cells = zip(names, scores[:, j].tolist(), strict=True)
        run = {name: float(score) for name, score in cells if not isnan(score)}
        row = {"prompt": str(texts[j]), "scores": run, "features": features[j].tolist()}
        spent = {name: usd[name] for name in run if name in usd}
        yield parse_record({**row, "usd": spent}, f"{source}, column {j}")
