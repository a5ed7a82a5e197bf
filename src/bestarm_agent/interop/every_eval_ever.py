"""Reads and writes instance files of Every Eval Ever: one object per answer and metric."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import ConfigError
from bestarm_agent.interop.results import Object, Result
from bestarm_agent.interop.stored_runs import model_of, scorer_of, usage_of
from bestarm_agent.store.export import export_stream
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.score_export_rows import Record, Texts, records

_VERSIONS = ("0.2.1", "0.2.2", "0.3.0")
_KEY = ("evaluation_id", "evaluation_name", "sample_id")
_PREFIX = "instance_level_eval_"
_RIGHT = 0.5  # a score of at least this counts as right


def is_instance(row: Object) -> bool:
    """Return whether a JSON object is an instance."""
    return row.keys() >= {"schema_version", "evaluation_id", "model_id", "evaluation"}


def read_instances(rows: Iterable[Object], where: str) -> Iterator[Result]:
    """Yield the results of an instance file; raises ConfigError.

    Samples are joined on their id. One that comes several times in an evaluation with the same
    metric was repeated.
    """
    seen: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        version = str(row["schema_version"]).removeprefix(_PREFIX)
        if version not in _VERSIONS:
            raise ConfigError(
                f"{where}: Every Eval Ever instances of schema {version!r}; "
                f"{', '.join(_VERSIONS)} are read"
            )
        key = (*(str(row[name]) for name in _KEY), _metric(row))
        seen[key] += 1
        yield _result(row, repeat=f"{key[0]} {seen[key]}")


def _result(row: Object, repeat: str) -> Result:
    metadata, usage = row.get("metadata") or {}, row.get("token_usage") or {}
    error, text = row.get("error"), _text(row)
    return Result(
        candidate={"model": str(metadata.get("candidate") or row["model_id"])},
        example=str(row["sample_id"]),
        # lm-eval's converter adds the filter, which is part of the metric too
        task=str(row["evaluation_name"]).removesuffix(f"/{metadata.get('filter')}"),
        scores={} if error and not text else {_metric(row): float(row["evaluation"]["score"])},
        repeat=repeat,
        question=row["input"]["raw"],
        text=text,
        error=str(error) if error and not text else None,
        seconds=((row.get("performance") or {}).get("latency_ms") or 0) / 1000,
        input_tokens=usage.get("input_tokens") or 0,
        output_tokens=usage.get("output_tokens") or 0,
    )


def _metric(row: Object) -> str:
    """Name the score by the aggregate that it is part of, where a sample has several."""
    return str(row.get("evaluation_result_id") or "score")


def _text(row: Object) -> str | None:
    """Return the answer: the output, or the last thing that the assistant said."""
    if output := row.get("output"):
        return output["raw"][0] if output["raw"] else None
    said = [m.get("content") for m in row.get("messages") or () if m["role"] == "assistant"]
    return said[-1] if said else None


def write_instances(state: RunState, texts: Iterable[Texts], target: Path | IO[bytes]) -> int:
    """Write a run's scored pairs as instances, and return their number.

    Pairs without a score are left out: the schema has no place for them.

    Args:
        state: the run.
        texts: one per ask.
        target: a file, which appears whole or not at all, or a stream.

    Raises:
        StoreError: the file cannot be written.
    """
    number = 0
    with export_stream(target) as stream:
        for record in records(state, texts=texts):
            if record.score is not None:
                stream.write(json.dumps(_instance(state, record, record.score)).encode() + b"\n")
                number += 1
    return number


def _instance(state: RunState, record: Record, score: float) -> dict[str, Json]:
    started = state.started
    assert started is not None  # there is a record
    failure = {} if record.failure is None else {"failure": record.failure}
    found: dict[str, Json] = {
        "schema_version": f"{_PREFIX}{_VERSIONS[0]}",
        "evaluation_id": f"{started.name}/{record.candidate}/{started.at}",
        "model_id": model_of(record),
        "evaluation_name": started.name,
        "sample_id": record.example,
        "interaction_type": "single_turn",
        "input": {
            "raw": record.prompt or "",
            "reference": record.target.splitlines() if record.target else [],
        },
        "output": {"raw": [] if record.reply is None else [record.reply]},
        "answer_attribution": _attribution(record, scorer_of(started)),
        "evaluation": {"score": score, "is_correct": score >= _RIGHT},
        "metadata": {"candidate": record.candidate, "state": record.state, **failure},
    }
    if (usage := usage_of(state, record)) is not None:
        found["token_usage"] = {
            "input_tokens": usage.input,
            "output_tokens": usage.output,
            "total_tokens": usage.total,
        }
    if record.seconds:
        found["performance"] = {"latency_ms": 1000 * record.seconds}
    return found


def _attribution(record: Record, scorer: str) -> list[Json]:
    if record.answer is None:
        return []
    return [
        {
            "turn_idx": 0,
            "source": "output.raw",
            "extracted_value": record.answer,
            "extraction_method": scorer,
            "is_terminal": True,
        }
    ]
