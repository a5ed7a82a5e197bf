"""Recorded calls in rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bestarm_agent.config.yaml.documents import parse_row
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.request_reply import Finish, Reply
from bestarm_agent.domain.spend import Usage, nanos
from bestarm_agent.errors import ConfigError, FailureKind


@dataclass(frozen=True, slots=True)
class RecordedFailure:
    """A recorded failure; ``retry_after`` is None or in seconds."""

    kind: FailureKind
    message: str
    retry_after: float | None


@dataclass(frozen=True, slots=True)
class Record:
    """One recorded call; the reply of a failed one holds an upper bound of its cost."""

    reply: Reply
    failed: RecordedFailure | None = None


class Recording(Protocol):
    """The records of (candidate, example) pairs."""

    def candidates(self) -> Sequence[str]:
        """Return the names of the candidates that have records."""

    def has_candidate(self, candidate: str) -> bool:
        """Return True if a candidate has records."""

    def examples(self, candidate: str) -> Sequence[str]:
        """Return the ids of the examples that a candidate may have records of."""

    def attempts(self, candidate: str, example: str) -> Sequence[Record]:
        """Return the calls recorded for one pair, in order; empty if there is none."""

    def priced(self, candidate: str) -> bool:
        """Return True if every record of a candidate holds its cost in dollars."""


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)

    candidate: str = Field(min_length=1)
    example: str = Field(min_length=1)
    text: str | None = None
    score: float | None = Field(default=None, ge=0, le=1)
    error: FailureKind | None = None
    message: str = ""
    retry_after: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    finish: Finish = Finish.STOP
    seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    usd: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    attempt: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _has_one_outcome(self) -> _Row:
        answered = self.text is not None or self.score is not None
        if answered == (self.error is not None):
            raise ValueError("a row holds either `text` or `score` (or both), or else `error`")
        if self.error is FailureKind.JUDGE_FAILED:
            raise ValueError("`error` is about the model's call, and 'judge-failed' is not")
        return self

    def record(self) -> Record:
        return Record(self._reply(), self._failed())

    def _reply(self) -> Reply:
        return Reply(
            text=self.text or "",
            finish=self.finish,
            usage=Usage(input=self.input_tokens, output=self.output_tokens),
            usd_nanos=None if self.usd is None else nanos(self.usd),
            seconds=self.seconds,
            model=self.candidate,
            score=self.score,
        )

    def _failed(self) -> RecordedFailure | None:
        if self.error is None:
            return None
        return RecordedFailure(self.error, self.message or "recorded failure", self.retry_after)


class RowRecording:
    """Records given row by row, each with its source ("answers.jsonl, line 3").

    Raises ConfigError if a row breaks a rule, or a pair's attempts are not numbered 1, 2, ...
    """

    def __init__(self, rows: Iterable[tuple[str, Mapping[str, Json]]]) -> None:
        self._attempts: dict[str, dict[str, tuple[Record, ...]]] = {}
        self._unpriced: set[str] = set()
        for where, values in rows:
            row = parse_row(_Row, values, where)
            examples = self._attempts.setdefault(row.candidate, {})
            earlier = examples.get(row.example, ())
            if row.attempt != len(earlier) + 1:
                raise ConfigError(
                    f"{where}: `attempt` is {row.attempt}, but {len(earlier)} row(s) of candidate "
                    f"{row.candidate!r} at example {row.example!r} come before it; delete one, or "
                    "number the pair's rows 1, 2, ... in this order"
                )
            examples[row.example] = (*earlier, row.record())
            if row.usd is None:
                self._unpriced.add(row.candidate)

    def candidates(self) -> Sequence[str]:
        """Return the names of the candidates that have records."""
        return list(self._attempts)

    def has_candidate(self, candidate: str) -> bool:
        """Return True if a candidate has records."""
        return candidate in self._attempts

    def examples(self, candidate: str) -> Sequence[str]:
        """Return the ids of the examples that a candidate has records of."""
        return list(self._attempts.get(candidate, ()))

    def attempts(self, candidate: str, example: str) -> Sequence[Record]:
        """Return the calls recorded for one pair, in order; empty if there is none."""
        return self._attempts.get(candidate, {}).get(example, ())

    def priced(self, candidate: str) -> bool:
        """Return True if every record of a candidate holds its cost in dollars."""
        return candidate not in self._unpriced
