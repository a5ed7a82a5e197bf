"""Reads promptfoo's results, versions 2 and 3, as `promptfoo eval -o FILE.json` writes them.

A candidate is a provider with a prompt, an example a test's variables and assertions; with
`--repeat`, a test is there several times. A row whose provider failed has no score.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from bestarm_agent.errors import ConfigError
from bestarm_agent.interop.results import Object, Result, example_id, plain

_VERSIONS = (2, 3)
_FAILED = 2  # `failureReason` of a provider's error; 1 is a failed assertion


def is_output(document: Object) -> bool:
    """Return whether a JSON object is promptfoo's output file."""
    results = document.get("results")
    return isinstance(results, Mapping) and "version" in results and "results" in results


def read_output(document: Object, where: str) -> Iterator[Result]:
    """Yield the results of an output file; raises ConfigError."""
    summary = document["results"]
    if summary["version"] not in _VERSIONS:
        raise ConfigError(
            f"{where}: promptfoo results of version {summary['version']!r}; versions 2 and 3 are "
            "read"
        )
    names = _candidates(summary["results"])
    _check_told_apart(summary, names, where)
    seen: Counter[tuple[Hashable, str]] = Counter()
    for row in summary["results"]:
        column, example = _column(row), _example(row)
        seen[column, example] += 1
        error = row.get("error") if _provider_failed(row) else None
        response = row.get("response") or {}
        tokens = response.get("tokenUsage") or row.get("tokenUsage") or {}
        yield Result(
            candidate=names[column],
            example=example,
            scores=_scores(row) if error is None else {},
            repeat=f"{document.get('evalId') or where} {seen[column, example]}",
            question=_variables(row),
            text=plain(response["output"]) if response.get("output") is not None else None,
            error=error if error is None else plain(error),
            seconds=(row.get("latencyMs") or 0) / 1000,
            input_tokens=tokens.get("prompt") or 0,
            output_tokens=tokens.get("completion") or 0,
            usd=row.get("cost") if error is None else None,
        )


def _column(row: Object) -> Hashable:
    """Return what is the same in a candidate's rows: their column, which version 2 leaves out."""
    return row["promptIdx"] if "promptIdx" in row else tuple(_traits(row).values())


def _candidates(rows: Any) -> dict[Hashable, dict[str, str]]:  # noqa: ANN401 - parsed JSON
    """Return the traits of each column; two columns alike are told apart by their number."""
    traits = {_column(row): _traits(row) for row in rows}
    alike = Counter(tuple(found.values()) for found in traits.values())
    return {
        column: found if alike[tuple(found.values())] == 1 else {**found, "column": str(column)}
        for column, found in traits.items()
    }


def _check_told_apart(summary: Object, found: Mapping[Hashable, object], where: str) -> None:
    """Refuse columns of version 2 whose rows look the same, as they would become one candidate."""
    columns = ((summary.get("table") or {}).get("head") or {}).get("prompts") or ()
    if len(columns) > len(found):
        raise ConfigError(
            f"{where}: {len(columns)} columns, but only {len(found)} pairs of provider and prompt "
            "in its rows; write it with promptfoo 0.57 or newer and a `label` for each provider"
        )


def _traits(row: Object) -> dict[str, str]:
    provider, prompt = row.get("provider") or {}, row.get("prompt") or {}
    name = provider if isinstance(provider, str) else provider.get("label") or provider.get("id")
    shown = prompt.get("label") or prompt.get("display") or prompt.get("raw") or ""
    return {"model": str(name), "prompt": str(shown).strip()}


def _example(row: Object) -> str:
    """Name a test by its variables: its index counts repeats too."""
    asserted = json.dumps((row.get("testCase") or {}).get("assert"), sort_keys=True)
    return example_id(_variables(row), asserted)


def _variables(row: Object) -> str:
    return json.dumps(row.get("vars") or {}, sort_keys=True, ensure_ascii=False)


def _provider_failed(row: Object) -> bool:
    if (reason := row.get("failureReason")) is not None:
        return bool(reason == _FAILED)
    return bool(row.get("error")) and row.get("gradingResult") is None


def _scores(row: Object) -> dict[str, float]:
    named = {name: float(value) for name, value in (row.get("namedScores") or {}).items()}
    return {**named, "score": float(row["score"]), "success": float(bool(row["success"]))}
