"""Plays back recorded answers or scores: studies without a model, at any speed.

Files of any format that datasets have hold one row per recorded call:

- ``candidate``, ``example``: the pair.
- ``text``, ``score``: the answer, its score in [0, 1], or both; or ``error`` instead.
- ``error``: the kind of failure, such as "rate-limited" (see ``FailureKind``); ``message`` and
  ``retry_after`` (seconds) may go with it.
- ``finish``: why the model stopped; default "stop".
- ``seconds``, ``input_tokens``, ``output_tokens``, ``usd``: time and cost. Of a failed call
  they only bound the cost.
- ``attempt``: default 1. Rows 1, 2, ... of a pair are played in order; the last one repeats.

Of traces (``config.traces``), the recorded answers are those of the candidate ``recorded``; where
the trace says no price, the list price of its model on this day is taken, as long as it has one.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import file_digest
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from bestarm_agent.config.datasets import FileRow, load_rows
from bestarm_agent.config.fields import StrictModel
from bestarm_agent.config.file_errors import BrokenRule, OptionsError, parse_row
from bestarm_agent.config.traces import RECORDED
from bestarm_agent.domain.spend import Spend, Usage, nanos
from bestarm_agent.domain.values import Finish, Reply, Request, clip_rounding
from bestarm_agent.errors import Blame, ConfigError, FailureKind, ProviderError, nearest
from bestarm_agent.providers.base import Capabilities, Provider
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.prices import find_price

# Sampling parameters that may be an axis of a recorded grid.
_ANY_PARAMS = frozenset({"temperature", "top_p", "top_k", "max_tokens", "stop", "seed"})


class ReplayOptions(StrictModel):
    """Options of the ``replay`` provider."""

    path: str = Field(min_length=1)  # of a file as datasets have, relative to the study
    latency_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)  # where none is recorded
    speed: float = Field(default=1.0, gt=0)  # factor; "inf": without any delay
    by: Literal["model", "candidate"] = "model"  # records are named by model, or by label
    drop: tuple[str, ...] = ()  # fields that are removed from the messages of traces


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One recorded call; the reply of a failed one holds an upper bound of its cost."""

    reply: Reply
    failed: ProviderError | None = None


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)

    candidate: str = Field(min_length=1)
    example: str = Field(min_length=1)
    text: str | None = None
    score: Annotated[float, AfterValidator(clip_rounding), Field(ge=0, le=1)] | None = None
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

    def record(self) -> RecordedCall:
        reply = Reply(
            text=self.text or "",
            finish=self.finish,
            usage=Usage(input=self.input_tokens, output=self.output_tokens),
            usd_nanos=None if self.usd is None else nanos(self.usd),
            seconds=self.seconds,
            model=self.candidate,
            score=self.score,
            recorded=True,
        )
        if self.error is None:
            return RecordedCall(reply)
        message = self.message or "recorded failure"
        return RecordedCall(reply, failure(self.error, message, retry_after=self.retry_after))


_NUMBERS = ("score", "usd", "seconds", "retry_after", "input_tokens", "output_tokens")
# The calls recorded of every candidate and example, in order.
Recording: TypeAlias = dict[str, dict[str, tuple[RecordedCall, ...]]]


def parse_recording(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Recording:
    """Parse rows, each with its source ("a.jsonl, line 3").

    Raises ConfigError if a row breaks a rule, or a pair's attempts are not numbered 1, 2, ...
    """
    recording: Recording = {}
    for where, values in rows:
        row = parse_row(_Row, values, where)
        examples = recording.setdefault(row.candidate, {})
        earlier = examples.get(row.example, ())
        if row.attempt != len(earlier) + 1:
            raise ConfigError(
                f"{where}: `attempt` is {row.attempt}, but {len(earlier)} row(s) of candidate "
                f"{row.candidate!r} at example {row.example!r} come before it; delete one, or "
                "number the pair's rows 1, 2, ... in this order"
            )
        examples[row.example] = (*earlier, row.record())
    return recording


def read_recording(path: Path, source: str, drop: Sequence[str] = ()) -> Recording:
    """Read a file in the format of its suffix; raises ConfigError, which calls it ``source``."""
    if not path.exists():
        missing = BrokenRule(("path",), f"there is no file {source}; correct the option `path`")
        raise OptionsError("", [missing])
    rows = load_rows(path, "recording", drop=drop)
    return parse_recording((f"{source}, {row.position}", row.values) for row in map(filled, rows))


def _of_trace(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of a trace's call as a row of a recording."""
    read, written = call["baseline_input_tokens"], call["baseline_output_tokens"]
    usage, usd = Usage(input=read or 0, output=written or 0), call["baseline_usd"]
    # With one count alone, a price would be too low and look as if it were known.
    known = usd is None and None not in (read, written)
    if known and (price := find_price("", str(call["baseline_model"]))) is not None:
        usd = price.cost(usage) / 1e9
    of = {"candidate": RECORDED, "example": call.get("id"), "text": call["baseline_output"]}
    tokens = {"input_tokens": usage.input, "output_tokens": usage.output}
    return {**of, **tokens, "usd": usd}


def filled(row: FileRow) -> FileRow:
    """Leave out nulls, empty cells and NaN, which tables write for them, but not an empty answer.

    CSV cannot tell an empty answer from none.
    """
    values: Any = _of_trace(row.values) if "baseline_output" in row.values else row.values
    filled = {
        key: cell
        for key, cell in values.items()
        if cell not in (None, "") and not (str(cell).lower() == "nan" and key in _NUMBERS)
    }
    if values.get("text") == "" and not filled.keys() & {"score", "error"}:
        filled["text"] = ""
    return FileRow(row.position, filled)


class ReplayProvider(Provider[ReplayOptions]):
    """Answers with the record of the request's (model, example); raises ConfigError.

    ``request.model`` is the recorded candidate. The prompt and the sampling parameters have no
    effect, unless records are found by the candidate's label (``by: candidate``). A pair without a
    record fails with blame on the harness, so that it counts as missing, never as wrong.
    """

    options_type = ReplayOptions

    def __init__(
        self,
        name: str,
        options: ReplayOptions,
        base_dir: Path,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(name, options, base_dir)
        self._path = base_dir / options.path
        self._recording = read_recording(self._path, options.path, options.drop)
        with self._path.open("rb") as content:
            self._content_digest = file_digest(content, "sha256").hexdigest()[:16]
        self._unpriced = {
            candidate
            for candidate, examples in self._recording.items()
            if any(r.reply.usd_nanos is None for records in examples.values() for r in records)
        }
        self._sleep = sleep
        self._played = defaultdict[tuple[str, str], Counter[int]](Counter)  # by draw

    def check(self, model: str) -> None:
        """Check that the file holds records of ``model``; raises ConfigError."""
        if self.options.by == "model" and model not in self._recording:
            way_out = nearest(model, self._recording)
            if any(name.startswith(f"{model}/") for name in self._recording):
                way_out = (
                    "its records are named by the labels of candidates: give the provider "
                    "`by: candidate`"
                )
            raise ConfigError(f"{self.options.path} holds no records of {model!r}; {way_out}")

    def capabilities(self, model: str) -> Capabilities:
        """Return the parameters that records depend on: none, or any with ``by: candidate``."""
        return Capabilities(
            params=_ANY_PARAMS if self.options.by == "candidate" else frozenset(),
            seed=True,
            price_source=None if model in self._unpriced else "recording",
            in_flight=1024,
            by_example=True,
        )

    def fingerprint(self, model: str) -> str:
        """Return a digest of the file's content."""
        return self._content_digest

    def bound(self, request: Request) -> Spend:
        """Return the cost of the pair's most expensive attempt; of any pair's, if it has no record.

        Judges are bounded before there is a reply to judge, when the example's id is not known.
        """
        if attempts := self._attempts(request):
            return _max_spend(attempts)
        return self._max_spends.get(self._owner(request), Spend(calls=1))

    async def generate(self, request: Request) -> Reply:
        """Return the recorded reply, after the recorded time; raises ProviderError."""
        record = self._next(request)
        seconds = (record.reply.seconds or self.options.latency_seconds) / self.options.speed
        if seconds > 0:
            await self._sleep(seconds)
        if (failed := record.failed) is not None:
            # a new error each time: a shared one would collect the tracebacks of all who raise it
            raise failure(failed.kind, str(failed), retry_after=failed.retry_after)
        return record.reply

    def _next(self, request: Request) -> RecordedCall:
        attempts = self._attempts(request)
        if not attempts:
            raise ProviderError(
                f"{self.options.path} holds no record of candidate {self._owner(request)!r} at "
                f"example {request.example!r}; record the call, or drop the example",
                kind=FailureKind.BAD_REQUEST,
                blame=Blame.HARNESS,
            )
        if len(attempts) == 1:
            return attempts[0]
        # Rows of a pair are its attempts, and draws of a pair come after one another in the same
        # rows. So a call plays the row after all those that its own and earlier draws have played,
        # and the row of its draw at least: earlier draws may have been answered from the cache, and
        # so never came here.
        pair = self._played[self._owner(request), request.example]
        pair[request.draw] += 1
        played = sum(count for draw, count in pair.items() if draw <= request.draw)
        number = max(played, request.draw + 1)  # earlier draws may be in the cache, or come later
        return attempts[min(number, len(attempts)) - 1]

    def _attempts(self, request: Request) -> Sequence[RecordedCall]:
        return self._recording.get(self._owner(request), {}).get(request.example, ())

    def _owner(self, request: Request) -> str:
        return request.model if self.options.by == "model" else request.candidate

    @cached_property
    def _max_spends(self) -> dict[str, Spend]:
        return {
            candidate: _max_spend([record for records in examples.values() for record in records])
            for candidate, examples in self._recording.items()
        }


def _max_spend(records: Sequence[RecordedCall]) -> Spend:
    replies = [record.reply for record in records]
    return Spend(
        calls=1,
        tokens=max((reply.usage.total for reply in replies), default=0),
        usd_nanos=max((reply.usd_nanos or 0 for reply in replies), default=0),
    )
