"""Reads recorded answers and scores from a file.

JSON lines and CSV hold one row per recorded call:

- ``candidate``, ``example``: the pair.
- ``text``, ``score``: the answer, its score in [0, 1], or both; or ``error`` instead.
- ``error``: the kind of failure, such as "rate-limited" (see ``FailureKind``); ``message`` and
  ``retry_after`` (seconds) may go with it.
- ``finish``: why the model stopped; default "stop".
- ``seconds``, ``input_tokens``, ``output_tokens``, ``usd``: time and cost. Of a failed call
  they only bound the cost.
- ``attempt``: default 1. Rows 1, 2, ... of a pair are played in order; the last one repeats.

A NumPy archive (.npz) holds a matrix of scores:

- ``scores``: (K, N), numbers in [0, 1] or bool; NaN where nothing was recorded.
- ``candidates``, ``models`` or ``methods``: (K,) names. Rows can also be named by number.
- ``examples``: (N,) ids. Columns can also be named by number.
- ``seconds``, ``input_tokens``, ``output_tokens``, ``usd``: (K, N), or (K,) if they are the same
  for every example; each is optional.
"""

from __future__ import annotations

import csv
import gzip
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from bestarm_agent.config.yaml.documents import OptionsError, Problem
from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.replay.matrix import AMOUNTS, NAMES, MatrixRecording
from bestarm_agent.providers.replay.rows import Recording, RowRecording

_ARRAYS = ("scores", "examples", *NAMES, *AMOUNTS)
_UNREADABLE = (OSError, UnicodeDecodeError, csv.Error, zipfile.BadZipFile, zlib.error, EOFError)


def read_recording(path: Path, shown: str) -> Recording:
    """Read a file in the format of its suffix; raises ConfigError, which calls it ``shown``."""
    suffix = path.suffix.lower()
    try:
        if suffix == ".npz":
            return _read_archive(path, shown)
        if suffix == ".csv":
            return RowRecording(_csv_rows(path, shown))
        if suffix == ".jsonl" or path.name.lower().endswith(".jsonl.gz"):
            return RowRecording(_json_rows(path, shown))
    except FileNotFoundError as error:
        missing = Problem(("path",), f"there is no file {shown}; correct the option `path`")
        raise OptionsError("", [missing]) from error
    except _UNREADABLE as error:
        raise ConfigError(f"{shown}: cannot be read: {error}") from error
    raise ConfigError(
        f"{shown}: recordings are .jsonl, .jsonl.gz, .csv or .npz files, not {suffix!r}"
    )


def _json_rows(path: Path, shown: str) -> Iterator[tuple[str, Mapping[str, Json]]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                where = f"{shown}, line {number}"
                yield where, _json_object(line, where)


def _json_object(line: str, where: str) -> Mapping[str, Json]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: a row is a JSON object, got {line.strip()[:40]!r}")
    return value


def _csv_rows(path: Path, shown: str) -> Iterator[tuple[str, Mapping[str, Json]]]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines, restkey="(beyond the last heading)", strict=True)
        for cells in reader:
            yield f"{shown}, line {reader.line_num}", _filled(cells)


def _filled(cells: Mapping[str, str | None]) -> Mapping[str, Json]:
    """Leave empty cells out, except an empty answer: CSV cannot tell the two apart."""
    filled: dict[str, Json] = {key: cell for key, cell in cells.items() if cell}
    if "text" in cells and not filled.keys() & {"score", "error"}:
        filled.setdefault("text", "")
    return filled


def _read_archive(path: Path, shown: str) -> Recording:
    if path.exists() and not zipfile.is_zipfile(path):
        raise ConfigError(f"{shown}: is no NumPy archive; write it with numpy.savez")
    try:
        with np.load(path, allow_pickle=False) as archive:
            return MatrixRecording({key: archive[key] for key in _ARRAYS if key in archive})
    except (ValueError, ConfigError) as error:
        raise ConfigError(f"{shown}: {error}") from error
