"""Plays back recorded answers or scores: studies without a model, at any speed."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from hashlib import file_digest
from pathlib import Path
from typing import Literal

from pydantic import Field

from bestarm_agent.config.fields import StrictModel
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import Blame, ConfigError, FailureKind, ProviderError, nearest
from bestarm_agent.providers.base import Capabilities
from bestarm_agent.providers.base_provider import BaseProvider
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.replay.files import read_recording
from bestarm_agent.providers.replay.rows import Record

# Sampling parameters that may be an axis of a recorded grid.
_ANY_PARAMS = frozenset({"temperature", "top_p", "top_k", "max_tokens", "stop", "seed"})


class ReplayOptions(StrictModel):
    """Options of the ``replay`` provider."""

    path: str = Field(min_length=1)  # relative to the study, in a format of ``replay.files``
    latency_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)  # where none is recorded
    speed: float = Field(default=1.0, gt=0)  # factor; "inf": without any delay
    by: Literal["model", "candidate"] = "model"  # records are named by model, or by label


class ReplayProvider(BaseProvider[ReplayOptions]):
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
        self._recording = read_recording(self._path, options.path)
        self._sleep = sleep
        self._played = defaultdict[tuple[str, str], Counter[int]](Counter)  # by draw
        self._max_spend: dict[str, Spend] = {}

    def check(self, model: str) -> None:
        """Check that the file holds records of ``model``; raises ConfigError."""
        if self.options.by == "model" and not self._recording.has_candidate(model):
            raise ConfigError(
                f"{self.options.path} holds no records of {model!r}; "
                f"{nearest(model, self._recording.candidates())}"
            )

    def capabilities(self, model: str) -> Capabilities:
        """Return the parameters that records depend on: none, or any with ``by: candidate``."""
        return Capabilities(
            params=_ANY_PARAMS if self.options.by == "candidate" else frozenset(),
            seed=True,
            priced=self._recording.priced(model),
            price_source="recording" if self._recording.priced(model) else None,
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
        attempts = self._attempts(request)
        if attempts:
            return _max_spend(attempts)
        model = self._owner(request)
        if model not in self._max_spend:
            pairs = (self._recording.attempts(model, e) for e in self._recording.examples(model))
            self._max_spend[model] = _max_spend([record for records in pairs for record in records])
        return self._max_spend[model]

    async def generate(self, request: Request) -> Reply:
        """Return the recorded reply, after the recorded time; raises ProviderError."""
        record = self._next(request)
        seconds = (record.reply.seconds or self.options.latency_seconds) / self.options.speed
        if seconds > 0:
            await self._sleep(seconds)
        if (failed := record.failed) is not None:
            raise failure(failed.kind, failed.message, retry_after=failed.retry_after)
        return record.reply

    def _next(self, request: Request) -> Record:
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
        pair = self._played[self._owner(request), request.example]
        pair[request.draw] += 1
        played = sum(count for draw, count in pair.items() if draw <= request.draw)
        number = max(played, request.draw + 1)  # earlier draws may be in the cache, or come later
        return attempts[min(number, len(attempts)) - 1]

    def _attempts(self, request: Request) -> Sequence[Record]:
        return self._recording.attempts(self._owner(request), request.example)

    def _owner(self, request: Request) -> str:
        return request.model if self.options.by == "model" else request.candidate

    @cached_property
    def _content_digest(self) -> str:
        with self._path.open("rb") as content:
            return file_digest(content, "sha256").hexdigest()[:16]


def _max_spend(records: Sequence[Record]) -> Spend:
    replies = [record.reply for record in records]
    return Spend(
        calls=1,
        tokens=max((reply.usage.total for reply in replies), default=0),
        usd_nanos=max((reply.usd_nanos or 0 for reply in replies), default=0),
    )
