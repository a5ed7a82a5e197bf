"""Results in other tools' logs, in one form, and the candidates that they tell apart."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from bestarm_agent.domain.digest import digest

Object: TypeAlias = Mapping[str, Any]  # Any: parsed JSON that someone else wrote

_LONGEST = 48  # characters of a setting or an input that a name may hold
_LONGEST_MODEL = 400
_ODD = re.compile(r"[^\w.:@+()=,/-]+")


@dataclass(frozen=True, slots=True)
class Result:
    """One answer, or one failed call, in another tool's log."""

    # `model`, and whatever else may tell candidates apart: prompt, temperature, ...
    candidate: Mapping[str, str]
    example: str
    task: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)  # by metric; empty: no verdict
    repeat: str = ""  # which repeat of the pair; of equal ones, the last with a score counts
    question: str | None = None  # the example's input, for people
    text: str | None = None  # the answer; None where the log has none, or nothing asked for it
    error: str | None = None
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None


def label_candidates(results: Sequence[Result]) -> list[str]:
    """Return the label of each result's candidate.

    A label is the model, followed by what differs between the candidates of the result's task, in
    characters that names of models may hold.
    """
    traits = {"model", *(key for result in results for key in result.candidate)}
    values: dict[tuple[str, str], set[str]] = defaultdict(set)
    for result in results:
        for key in traits:
            values[result.task, key].add(result.candidate.get(key, ""))
    models = _names({result.candidate["model"] for result in results}, _LONGEST_MODEL)
    names = {place: _names(found, _LONGEST) for place, found in values.items()}
    return [
        ",".join(
            models[value] if key == "model" else f"{key}={names[result.task, key][value]}"
            for key, value in result.candidate.items()
            if key == "model" or len(values[result.task, key]) > 1
        )
        for result in results
    ]


def _names(values: Iterable[str], longest: int) -> dict[str, str]:
    """Return a name for each value; long ones, and those of equal names, get a digest."""
    names = {value: _ODD.sub("_", value).strip("_") for value in values}
    count = Counter(names.values())
    return {
        value: name
        if len(name) <= longest and count[name] == 1
        else f"{name[:longest]}-{digest(value, length=8)}"
        for value, name in names.items()
    }


def example_id(*content: str) -> str:
    """Return the id of an example that a log names by its content: its start, and a digest."""
    return f"{' '.join(content[0].split())[:_LONGEST]} {digest(content, length=8)}"


def plain(value: object) -> str:
    """Return a setting as text: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
