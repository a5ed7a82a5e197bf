"""Reads the samples of lm-eval 0.4: one object per document and filter.

A metric's name is `METRIC,FILTER`, as in lm-eval's own results. Documents are joined on their hash.
The model and its settings stand in `results_DATE.json` beside the samples; without that file, the
folder names the model.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bestarm_agent.interop.results import Object, Result, plain

_SETTINGS = ("gen_kwargs", "system_instruction", "chat_template", "fewshot_as_multiturn")


def is_sample(row: Object) -> bool:
    """Return whether a JSON object is a sample of lm-eval."""
    return "doc_hash" in row and "filtered_resps" in row


def read_samples(rows: Iterable[Object], path: Path) -> Iterator[Result]:
    """Yield the results of a `samples_TASK_DATE.jsonl`."""
    task, date = _task_and_date(path)
    candidate = _candidate(path, task, date)
    seen: Counter[tuple[str, str]] = Counter()
    for row in rows:
        filtered, key = str(row["filter"]), str(row["doc_hash"])[:16]
        seen[filtered, key] += 1
        number = seen[filtered, key]  # a data set may hold a document twice
        yield Result(
            candidate=candidate,
            example=key if number == 1 else f"{key} #{number}",
            task=task,
            scores=_scores(row, filtered),
            repeat=date,
            question=json.dumps(row["doc"], ensure_ascii=False),
            text=_text(row),
        )


def _task_and_date(path: Path) -> tuple[str, str]:
    task, _, date = path.stem.removeprefix("samples_").rpartition("_")
    return (task, date) if task else (path.stem, "")


def _candidate(path: Path, task: str, date: str) -> dict[str, str]:
    results = path.with_name(f"results_{date}.json")
    if not results.is_file():
        return {"model": path.parent.name.replace("__", "/")}
    found = json.loads(results.read_text(encoding="utf-8"))
    settings = {"n-shot": (found.get("n-shot") or {}).get(task), **(found.get("config") or {})}
    settings |= {key: found.get(key) for key in _SETTINGS[1:]}
    traits = {key: plain(settings[key]) for key in ("n-shot", *_SETTINGS) if settings.get(key)}
    return {"model": str(found.get("model_name") or path.parent.name), **traits}


def _scores(row: Object, filtered: str) -> dict[str, float]:
    """Return the metrics that are one number per document; others are made of several."""
    values = {name: row.get(name) for name in row["metrics"]}
    return {
        f"{name},{filtered}": float(value)
        for name, value in values.items()
        if isinstance(value, bool | int | float)
    }


def _text(row: Object) -> str | None:
    """Return the first raw answer; None where log-likelihoods were asked for."""
    first: Any = row.get("resps")
    while isinstance(first, list) and first:
        first = first[0]
    return first if isinstance(first, str) and row["arguments"].get("gen_args_0") else None
