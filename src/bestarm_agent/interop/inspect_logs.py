"""Reads Inspect logs, schema 2: `.eval` (a zip, its members perhaps zstd) and `.json`."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite, nan
from pathlib import Path
from types import ModuleType
from typing import Any

from bestarm_agent.errors import ConfigError
from bestarm_agent.interop.results import Object, Result, plain

_VERSION = 2
_VALUES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_DECIMAL = re.compile(r"[+-]?\d+(\.\d+)?")
_JOURNAL = "_journal"
# settings of sending calls, which leave the answers as they are
_SENDING = {
    "adaptive_connections",
    "attempt_timeout",
    "batch",
    "cache",
    "max_connections",
    "max_retries",
    "timeout",
}


def is_log(document: Object) -> bool:
    """Return whether a JSON object is an Inspect log."""
    spec = document.get("eval")
    return isinstance(spec, Mapping) and "task" in spec and "model" in spec


def read_document(document: Object, where: str) -> Iterator[Result]:
    """Yield the results of a `.json` log; raises ConfigError."""
    return _results(document, document.get("samples") or (), where)


def read_archive(path: Path, *, texts: bool) -> Iterator[Result]:
    """Yield the results of an `.eval` log, with the answers' texts if asked for.

    Of a run that was cut off, the samples that were finished are there. Raises ConfigError.
    """
    with _opened(path) as archive:
        names = archive.namelist()
        start = f"{_JOURNAL}/start.json"
        header = "header.json" if "header.json" in names else start
        if header not in names:
            raise ConfigError(f"{path}: no Inspect log: the archive has no header.json")
        members = _texts(names) if texts else _summaries(names)
        samples = [sample for name in members for sample in _listed(archive.read(name))]
        yield from _results(json.loads(archive.read(header)), samples, str(path))


def _texts(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith("samples/") and name.endswith(".json")]


def _summaries(names: Iterable[str]) -> list[str]:
    whole = [name for name in names if name == "summaries.json"]
    return whole or [name for name in names if name.startswith(f"{_JOURNAL}/summaries/")]


def _listed(content: bytes) -> list[Any]:
    value = json.loads(content)
    return value if isinstance(value, list) else [value]


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    module = _zip_module()
    try:
        with module.ZipFile(path) as archive:
            yield archive
    except NotImplementedError:
        raise ConfigError(
            f"{path}: its members are compressed with zstd, which this Python cannot read; "
            "pip install 'bestarm-agent[interop]'"
        ) from None
    except (module.BadZipFile, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: a damaged Inspect log: {error}") from error


def _zip_module() -> ModuleType:
    """Return a `zipfile` that knows zstd, if there is one: Python's own from 3.14 on."""
    try:
        from backports.zstd import zipfile as with_zstd
    except ImportError:
        return zipfile
    return with_zstd


def _results(log: Object, samples: Iterable[Object], where: str) -> Iterator[Result]:
    if log.get("version") != _VERSION:
        raise ConfigError(
            f"{where}: an Inspect log of schema {log.get('version')!r}; schema {_VERSION} is read"
        )
    spec = log["eval"]
    candidate = _candidate(spec, log.get("plan") or {})
    for sample in samples:
        error = sample.get("error")
        yield Result(
            candidate=candidate,
            example=str(sample["id"]),
            task=str(spec["task"]),
            scores={} if error else scores_in(sample.get("scores") or {}),
            repeat=f"{spec.get('task_id')} {sample.get('epoch', 1)}",
            question=plain(sample["input"]) if "input" in sample else None,
            text=(sample.get("output") or {}).get("completion"),
            error=str(error["message"] if isinstance(error, Mapping) else error) if error else None,
            seconds=float(sample.get("working_time") or sample.get("total_time") or 0.0),
            **usage_in((sample.get("model_usage") or {}).values()),
        )


def _candidate(spec: Object, plan: Object) -> dict[str, str]:
    """Return the model and its settings: arguments of task and solver, and of generating.

    A log that our own export wrote names its candidate.
    """
    if "bestarm_agent" in (spec.get("packages") or {}):
        return {"model": str(spec["task_args"]["candidate"])}
    generating = {**(spec.get("model_generate_config") or {}), **(plan.get("config") or {})}
    settings = {
        **(spec.get("task_args") or {}),
        "solver": spec.get("solver"),
        **(spec.get("solver_args") or {}),
        **generating,
    }
    unlike = {key for key, value in settings.items() if value is None} | _SENDING | {"model"}
    named = {key: plain(value) for key, value in settings.items() if key not in unlike}
    return {"model": str(spec["model"]), **named}


def scores_in(scores: Object) -> dict[str, float]:
    """Return the numbers by scorer; a scorer with several values gives one for each."""
    found: dict[str, float] = {}
    for name, score in scores.items():
        for label, value in _parts(name, score["value"]):
            number = _number(value)
            if isfinite(number):  # NaN: the scorer gave no verdict
                found[label] = number
    return found


def _parts(name: str, value: object) -> Iterable[tuple[str, object]]:
    if isinstance(value, Mapping):
        return [(f"{name}/{key}", part) for key, part in value.items()]
    if isinstance(value, list):
        return [(f"{name}/{key}", part) for key, part in enumerate(value)]
    return [(name, value)]


def _number(value: object) -> float:
    """Return a score as a number; NaN if it is none, such as a text."""
    if isinstance(value, bool | int | float):
        return float(value)
    if isinstance(value, str):
        if _DECIMAL.fullmatch(value):
            return float(value)
        return _VALUES.get(value, _VALUES.get(value.lower(), nan))
    return nan


def usage_in(usages: Iterable[Object]) -> dict[str, Any]:
    """Add up the tokens of all models a sample used, and the dollars if all are known."""
    used = list(usages)
    inputs = ("input_tokens", "input_tokens_cache_read", "input_tokens_cache_write")
    costs = [usage.get("total_cost") for usage in used]
    known = [cost for cost in costs if cost is not None]
    return {
        "input_tokens": sum(usage.get(key) or 0 for usage in used for key in inputs),
        "output_tokens": sum(usage.get("output_tokens") or 0 for usage in used),
        "usd": sum(known) if known and len(known) == len(costs) else None,
    }
