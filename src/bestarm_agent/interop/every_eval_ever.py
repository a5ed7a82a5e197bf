"""Reads and writes instance files of Every Eval Ever, schema 0.2: one object per answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from bestarm_agent.errors import ConfigError
from bestarm_agent.interop.results import Object, Result

_VERSIONS = ("0.2.1", "0.2.2")
_PREFIX = "instance_level_eval_"


def is_instance(row: Object) -> bool:
    """Return whether a JSON object is an instance."""
    return row.keys() >= {"schema_version", "evaluation_id", "model_id", "evaluation"}


def read_instances(rows: Iterable[Object], where: str) -> Iterator[Result]:
    """Yield the results of an instance file; raises ConfigError.

    Samples are joined on their id. One that comes several times in an evaluation was repeated.
    """
    seen: Counter[tuple[str, ...]] = Counter()
    aggregates: dict[tuple[str, ...], str] = {}
    for row in rows:
        version = str(row["schema_version"]).removeprefix(_PREFIX)
        if version not in _VERSIONS:
            raise ConfigError(
                f"{where}: Every Eval Ever instances of schema {version!r}; "
                f"{' and '.join(_VERSIONS)} are read"
            )
        key = tuple(str(row[name]) for name in ("evaluation_id", "evaluation_name", "sample_id"))
        aggregate = str(row.get("evaluation_result_id"))
        if aggregates.setdefault(key[:2], aggregate) != aggregate:
            raise ConfigError(
                f"{where}: evaluation {key[0]!r} holds several results of a sample "
                f"({aggregates[key[:2]]}, {aggregate}); keep the lines of one in the file"
            )
        seen[key] += 1
        yield _result(row, repeat=f"{key[0]} {seen[key]}")


def _result(row: Object, repeat: str) -> Result:
    metadata, usage = row.get("metadata") or {}, row.get("token_usage") or {}
    error, text = row.get("error"), _text(row)
    return Result(
        candidate={"model": str(metadata.get("candidate") or row["model_id"])},
        example=str(row["sample_id"]),
        task=str(row["evaluation_name"]),
        scores={} if error and not text else {"score": float(row["evaluation"]["score"])},
        repeat=repeat,
        text=text,
        error=str(error) if error and not text else None,
        seconds=((row.get("performance") or {}).get("latency_ms") or 0) / 1000,
        input_tokens=usage.get("input_tokens") or 0,
        output_tokens=usage.get("output_tokens") or 0,
    )


def _text(row: Object) -> str | None:
    """Return the answer: the output, or the last thing that the assistant said."""
    if output := row.get("output"):
        return output["raw"][0] if output["raw"] else None
    said = [m.get("content") for m in row.get("messages") or () if m["role"] == "assistant"]
    return said[-1] if said else None
