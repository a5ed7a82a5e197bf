"""Read gold scores that people gave to answers.

A row holds ``example`` (its id), ``score`` in [0, 1], and the answer: ``candidate`` (its label),
``answer`` (the text) or ``answer_digest``. The file may have any format of datasets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bestarm_agent.config.datasets.load import load_rows
from bestarm_agent.config.yaml.documents import parse_row, shown_path
from bestarm_agent.domain.digest import digest
from bestarm_agent.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Label:
    """A gold score in [0, 1] of the answer of a candidate, or of an answer with this digest."""

    example: str
    score: float
    candidate: str | None = None
    answer: str | None = None
    answer_digest: str | None = None


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)

    example: str = Field(min_length=1)
    score: float = Field(ge=0, le=1)
    candidate: str | None = None
    answer: str | None = None
    answer_digest: str | None = None

    @model_validator(mode="after")
    def _check_whose(self) -> Self:
        if not (self.candidate or self.answer or self.answer_digest):
            raise ValueError("a label needs `candidate`, `answer` or `answer_digest`")
        return self


def answer_digest(text: str) -> str:
    """Return the digest by which labels may name an answer: 16 hexadecimal digits.

    Example:
        >>> answer_digest("46")
        'd509ce63dfefa7da'
    """
    return digest(text)


def load_labels(path: Path) -> tuple[Label, ...]:
    """Read gold scores; raise ConfigError with file and row if one breaks a rule."""
    labels: dict[tuple[str, str | None, str | None], Label] = {}
    for row in load_rows(path, "labels file"):
        where = f"{shown_path(path)}, {row.place}"
        values = {key: value for key, value in row.values.items() if value not in (None, "")}
        read = parse_row(_Row, values, where)  # type: ignore[arg-type]
        named = answer_digest(read.answer) if read.answer is not None else read.answer_digest
        label = Label(read.example, read.score, read.candidate, read.answer, named)
        key = (label.example, label.candidate, label.answer_digest)
        if labels.setdefault(key, label).score != label.score:
            raise ConfigError(f"{where}: this answer has another score already; keep one of them")
    return tuple(labels.values())


def by_answer(labels: Sequence[Label]) -> dict[tuple[str, str], Label]:
    """Return the labels by (example, candidate) and by (example, answer digest)."""
    found: dict[tuple[str, str], Label] = {}
    for label in labels:
        if label.candidate is not None:
            found[label.example, label.candidate] = label
        if label.answer_digest is not None:
            found[label.example, label.answer_digest] = label
    return found
