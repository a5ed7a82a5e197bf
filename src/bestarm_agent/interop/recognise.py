"""Recognises the format of a log by its content."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from bestarm_agent.errors import ConfigError
from bestarm_agent.interop import inspect_logs, lm_eval_samples
from bestarm_agent.interop import plain_tables as plain
from bestarm_agent.interop import promptfoo_results as promptfoo
from bestarm_agent.interop.results import Object, Result

_SUFFIXES = (".eval", ".json", ".jsonl", ".jsonl.gz")
_READ = (
    "Inspect logs (.eval, .json), lm-eval's samples_*.jsonl, promptfoo's results (.json), and "
    "tables with candidate, example and score (.csv, .jsonl)"
)


def is_log(location: str) -> bool:
    """Return whether a location ends as logs do; `read_results` also reads `.csv`."""
    return location.endswith(_SUFFIXES)


def read_results(path: Path, *, texts: bool = False) -> Iterator[Result]:
    """Yield the results in a file of any known format; answers' texts where asked for.

    Raises ConfigError if the file is missing or damaged, or its format or version unknown.
    """
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r}; check the name")
    try:
        yield from _results(path, texts)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{path}: the log lacks what its format promises: {type(error).__name__}: {error}"
        ) from error


def _results(path: Path, texts: bool) -> Iterator[Result]:
    if path.suffix == ".eval":
        return inspect_logs.read_archive(path, texts=texts)
    if path.suffix == ".csv":
        return plain.read_csv(path)
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        return _from_rows(_lines(path), path)
    if path.suffix != ".json":
        raise ConfigError(f"{path}: not a log of a known format; these can be read: {_READ}")
    document = _document(path)
    if isinstance(document, list):
        return _from_rows(document, path)
    return _from_document(document, path)


def _from_rows(rows: Iterable[Any], path: Path) -> Iterator[Result]:
    found = iter(rows)
    first = next(found, None)
    if not isinstance(first, Mapping):
        raise _unknown(path, first)
    every = chain((first,), found)
    if lm_eval_samples.is_sample(first):
        return lm_eval_samples.read_samples(every, path)
    if plain.is_record(first):
        return plain.read_records(every, str(path))
    raise _unknown(path, first)


def _from_document(document: Object, path: Path) -> Iterator[Result]:
    if inspect_logs.is_log(document):
        return inspect_logs.read_document(document, str(path))
    if promptfoo.is_output(document):
        return promptfoo.read_output(document, str(path))
    if "lm_eval_version" in document:
        raise ConfigError(
            f"{path}: lm-eval's results are means; give its samples_*.jsonl, which "
            "`lm_eval --log_samples` writes beside them"
        )
    raise _unknown(path, document)


def _unknown(path: Path, found: object) -> ConfigError:
    shown = f"a value {str(found)[:40]!r}"
    if isinstance(found, Mapping):
        shown = f"an object with the keys {', '.join(list(map(str, found))[:6]) or '(none)'}"
    elif found is None:
        shown = "nothing"
    return ConfigError(
        f"{path}: not a log of a known format, it holds {shown}; these can be read: {_READ}"
    )


def _document(path: Path) -> Any:  # noqa: ANN401 - parsed JSON
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error


def _lines(path: Path) -> Iterator[Any]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _parsed(line, f"{path}, line {number}")
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def _parsed(line: str, where: str) -> Any:  # noqa: ANN401 - parsed JSON
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from error
