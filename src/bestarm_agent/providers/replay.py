"""Plays back recorded answers or scores: studies without a model, at any speed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from hashlib import file_digest
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from bestarm_agent.config.documents import parse_options
from bestarm_agent.domain.allowance import Allowance
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import Blame, ConfigError, FailureKind, ProviderError, nearest
from bestarm_agent.providers.base import Capabilities
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.replay_files import read_recording
from bestarm_agent.providers.replay_records import Record


class ReplayOptions(BaseModel):
    """Options of the ``replay`` provider.

    Attributes:
        path: file of records, relative to the study; ``replay_files`` says what it holds.
        latency_seconds: how long a call takes whose record does not say, or says 0.
        speed: how many times faster than recorded the answers come; "inf" for at once.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(min_length=1)
    latency_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    speed: float = Field(default=1.0, gt=0)


class ReplayProvider:
    """Answers with what was recorded for the request's (model, example).

    ``request.model`` names the recorded candidate: ``replay/<candidate>`` in a configuration. The
    prompt and the sampling parameters change nothing. A pair without a record fails with blame on
    the harness, so that it counts as missing, never as wrong.

    Args:
        name: what users call the provider.
        options: where the records are, and how fast to play them.
        base_dir: folder that ``options.path`` starts from.
        sleep: lets seconds pass.

    Raises:
        ConfigError: the file cannot be read or breaks a rule.
    """

    def __init__(
        self,
        name: str,
        options: ReplayOptions,
        base_dir: Path,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = name
        self._options = options
        self._path = base_dir / options.path
        self._recording = read_recording(self._path, options.path)
        self._sleep = sleep
        self._played: Counter[tuple[str, str]] = Counter()
        self._dearest: dict[str, Spend] = {}

    async def __aenter__(self) -> Self:
        """Nothing needs to be started."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Nothing needs to be stopped."""

    def check(self, model: str) -> None:
        """Check that the file holds records of ``model``; raises ConfigError."""
        if not self._recording.knows(model):
            raise ConfigError(
                f"{self._options.path} holds no records of {model!r}; "
                f"{nearest(model, self._recording.candidates())}"
            )

    def capabilities(self, model: str) -> Capabilities:
        """No parameter is honoured, since records do not depend on any."""
        return Capabilities(
            params=frozenset(),
            seed=True,
            priced=self._recording.priced(model),
            price_source="recording" if self._recording.priced(model) else None,
            in_flight=1024,
            by_example=True,
        )

    def fingerprint(self, model: str) -> str:
        """Digest of the file's content."""
        return self._content_digest

    def bound(self, request: Request) -> Spend:
        """What the dearest recorded attempt at the pair cost; at any pair, where it has no record.

        Judges are bounded before there is a reply to judge: the call has not got its name yet.
        """
        attempts = self._attempts(request)
        if attempts:
            return _dearest(attempts)
        model = request.model
        if model not in self._dearest:
            pairs = (self._recording.attempts(model, e) for e in self._recording.examples(model))
            self._dearest[model] = _dearest([record for records in pairs for record in records])
        return self._dearest[model]

    def allowances(self, model: str) -> tuple[Allowance, ...]:
        """Nothing: no limits apply."""
        return ()

    async def generate(self, request: Request) -> Reply:
        """Return the recorded reply, after the recorded time.

        Raises:
            ProviderError: a failure was recorded, or nothing at all.
        """
        record = self._next(request)
        seconds = (record.reply.seconds or self._options.latency_seconds) / self._options.speed
        if seconds > 0:
            await self._sleep(seconds)
        if (fault := record.fault) is not None:
            raise failure(fault.kind, fault.message, retry_after=fault.retry_after)
        return record.reply

    def _next(self, request: Request) -> Record:
        attempts = self._attempts(request)
        if not attempts:
            raise ProviderError(
                f"{self._options.path} holds no record of candidate {request.model!r} at example "
                f"{request.example!r}; record the call, or drop the example",
                kind=FailureKind.BAD_REQUEST,
                blame=Blame.HARNESS,
            )
        if len(attempts) == 1:
            return attempts[0]
        pair = (request.model, request.example)
        self._played[pair] += 1
        return attempts[min(self._played[pair], len(attempts)) - 1]

    def _attempts(self, request: Request) -> Sequence[Record]:
        return self._recording.attempts(request.model, request.example)

    @cached_property
    def _content_digest(self) -> str:
        with self._path.open("rb") as content:
            return file_digest(content, "sha256").hexdigest()[:16]


def _dearest(records: Sequence[Record]) -> Spend:
    replies = [record.reply for record in records]
    return Spend(
        calls=1,
        tokens=max((reply.usage.total for reply in replies), default=0),
        usd_nanos=max((reply.usd_nanos or 0 for reply in replies), default=0),
    )


def create(name: str, options: Mapping[str, Json], base_dir: Path) -> ReplayProvider:
    """Build the provider; raises ConfigError if an option is wrong."""
    parsed = parse_options(ReplayOptions, options, subject=f"provider `{name}`")
    return ReplayProvider(name, parsed, base_dir)
