"""Gold scores, which people gave to answers: read them from a file, look them up by answer.

A row of the file holds ``example`` (its id), ``score`` in [0, 1], and the answer: ``candidate``
(its label), ``answer`` (the text) or ``answer_digest``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from bestarm_agent.config.datasets import load_rows
from bestarm_agent.config.file_errors import parse_row
from bestarm_agent.config.files import shown_path
from bestarm_agent.domain.values import clip_rounding, digest
from bestarm_agent.errors import ConfigError

_WORDS = dict.fromkeys(("right", "r", "true", "yes"), 1.0)
_WORDS |= dict.fromkeys(("wrong", "w", "false", "no"), 0.0) | {"same": 0.5}


def read_score(given: object) -> float:
    """Return a score as people and spreadsheets write it: "right", "80 %", 0.8 or "0,8".

    Raises ValueError.
    """
    text = str(given).strip().lower()
    number = _WORDS.get(text, text.replace(",", ".").removesuffix("%"))
    try:
        return clip_rounding(float(number) / (100 if text[-1:] == "%" else 1))
    except ValueError:
        raise ValueError("must be 0 to 1, a percentage, right, wrong or same") from None


class Label(BaseModel):
    """A gold score in [0, 1] of the answer of a candidate, or of an answer with this digest."""

    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)

    example: str = Field(min_length=1)
    score: Annotated[float, BeforeValidator(read_score), Field(ge=0, le=1)]
    candidate: str | None = None
    answer: str | None = None
    answer_digest: str | None = None
    rater: str | None = None  # who gave it
    place: int | None = None  # in the order of labelling; None: of an answer chosen by hand
    tie: bool = False  # "no difference" among the answers shown: no score of this one by itself

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
    labels: dict[tuple[str | None, ...], Label] = {}
    for row in load_rows(path, "labels file"):
        where = f"{shown_path(path)}, {row.position}"
        values: Any = {key: value for key, value in row.values.items() if value not in (None, "")}
        label = parse_row(Label, values, where)
        if label.answer is not None:
            label = label.model_copy(update={"answer_digest": answer_digest(label.answer)})
        # Several people may label one answer; one person's two scores for it contradict each other.
        key = (label.example, label.candidate, label.answer_digest, label.rater)
        if labels.setdefault(key, label).score != label.score:
            raise ConfigError(f"{where}: this answer has another score already; keep one of them")
    return tuple(labels.values())


def by_answer(labels: Sequence[Label]) -> dict[tuple[str, str], Label]:
    """Return the labels by (example, candidate) and by (example, answer digest).

    Several people's of one answer become one of their mean; ties are no scores.
    """
    given: dict[tuple[str, str], list[Label]] = {}
    for label in labels:
        for whose in (label.candidate, label.answer_digest):
            if whose is not None and not label.tie:
                given.setdefault((label.example, whose), []).append(label)
    return {
        key: some[0].model_copy(update={"score": sum(label.score for label in some) / len(some)})
        for key, some in given.items()
    }
