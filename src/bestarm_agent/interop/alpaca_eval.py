"""Reads AlpacaEval's annotations: the preference for `output_2` over the baseline's `output_1`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bestarm_agent.errors import ConfigError
from bestarm_agent.interop.results import Object, Result, example_id

_KEYS = {"instruction", "generator_1", "generator_2", "preference"}


def is_annotation(row: Object) -> bool:
    """Return whether a JSON object is an annotation."""
    return row.keys() >= _KEYS


def read_annotations(rows: Iterable[Object], where: str) -> Iterator[Result]:
    """Yield the results of `annotations.json`; raises ConfigError.

    The score of `generator_2` is the preference - 1: 1 if it won, 0 if the baseline did, between
    them where the annotator gave probabilities. Without a preference there is no score.
    """
    for row in rows:
        instruction = str(row["instruction"])
        yield Result(
            candidate={
                "model": str(row["generator_2"]),
                "baseline": str(row["generator_1"]),
                "annotator": str(row.get("annotator") or ""),
            },
            example=example_id(instruction),
            task=str(row.get("dataset") or ""),
            scores=_score(row["preference"], where),
            repeat=where,
            question=instruction,
            text=row.get("output_2"),
        )


def _score(preference: object, where: str) -> dict[str, float]:
    if preference is None or preference != preference:  # NaN
        return {}
    if isinstance(preference, int | float):
        if preference == 0:  # earlier annotators' draw
            return {"preference": 0.5}
        if 1 <= preference <= 2:
            return {"preference": float(preference) - 1.0}
    raise ConfigError(f"{where}: a preference is 1 to 2, or 0 for a draw, got {preference!r}")
