"""Results in other tools' logs, in one form, and the candidates that they tell apart."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from bestarm_agent.domain.digest import digest

Object: TypeAlias = Mapping[str, Any]  # Any: parsed JSON that someone else wrote

_LONGEST = 48  # characters of a prompt or an input that a name may hold


@dataclass(frozen=True, slots=True)
class Result:
    """One answer, or one failed call, in another tool's log."""

    # `model`, and whatever else may tell candidates apart: prompt, temperature, ...
    candidate: Mapping[str, str]
    example: str
    task: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)  # by metric; empty: no verdict
    repeat: str = ""  # results of one pair that differ in it are repeats; else the later counts
    text: str | None = None  # the answer; None where the log has none, or nothing asked for it
    error: str | None = None
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None


def label_candidates(results: Iterable[Result]) -> dict[int, str]:
    """Return the label of each result's candidate, by position.

    A label is the model, followed by what differs between the candidates of the result's task.
    """
    kept = list(results)
    values: dict[tuple[str, str], set[str]] = defaultdict(set)
    traits = {key for result in kept for key in result.candidate}
    for result in kept:
        for key in traits:
            values[result.task, key].add(result.candidate.get(key, ""))
    return {
        position: ", ".join(
            value if key == "model" else f"{key}={shortened(value)}"
            for key, value in result.candidate.items()
            if key == "model" or len(values[result.task, key]) > 1
        )
        for position, result in enumerate(kept)
    }


def shortened(text: str) -> str:
    """Return a text on one line, cut and made unique by a digest if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}… {digest(text, length=8)}"


def plain(value: object) -> str:
    """Return a setting as text: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
