"""What programs may answer: a text, or a mapping or an object that also says what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bestarm_agent.config.documents import parse_row
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.exchange import Finish, Reply
from bestarm_agent.domain.redaction import masked
from bestarm_agent.domain.spend import Spend, Usage, nanos
from bestarm_agent.errors import ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.base import Capabilities
from bestarm_agent.providers.failures import BilledError, failure

_Count = Annotated[int, Field(ge=0)]


class ProgramOptions(BaseModel):
    """What every program declares of itself; base of the options of ``python`` and ``command``.

    The bounds hold for one answer, all model calls of the program together. They are what makes a
    budget hold: a cap on dollars needs ``usd_per_call``, one on tokens or worker seconds needs
    ``max_tokens`` and ``max_gpu_seconds``.

    Attributes:
        params: names of the parameters that the program heeds; others are never sent to it.
        max_calls: most model calls of one answer.
        max_tokens: most tokens of one answer; None: not declared.
        max_gpu_seconds: most worker seconds of one answer; None: not declared.
        usd_per_call: most dollars of one answer; None: not declared.
        version: another version, other replies: old ones are not taken from the cache.
        sources: further files that decide the replies, as patterns relative to the study.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    params: tuple[str, ...] = ()
    max_calls: int = Field(default=1, ge=1)
    max_tokens: int | None = Field(default=None, ge=0)
    max_gpu_seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    usd_per_call: Decimal | None = Field(default=None, ge=0, allow_inf_nan=False)
    version: str = ""
    sources: tuple[str, ...] = ()

    def bound(self) -> Spend:
        """The bounds; 0 for what is not declared."""
        return Spend(
            calls=self.max_calls,
            tokens=self.max_tokens or 0,
            usd_nanos=nanos(self.usd_per_call or 0),
            gpu_seconds=self.max_gpu_seconds or 0.0,
        )

    def capabilities(self, in_flight: int, *, priced: bool = True) -> Capabilities:
        """What is declared.

        Args:
            in_flight: answers at once.
            priced: whether all that the program calls has a price, where that is known.
        """
        priced = priced and self.usd_per_call is not None
        return Capabilities(
            params=frozenset(self.params),
            priced=priced,
            price_source="usd_per_call" if priced else None,
            in_flight=in_flight,
            queued=True,
            by_inputs=True,
            counted=self.max_tokens is not None and self.max_gpu_seconds is not None,
        )

    def check(self, cost: Spend, program: str) -> None:
        """Check that an answer kept what was declared.

        Raises:
            BilledError: BAD_REQUEST, fatal for the candidate: no budget could be kept otherwise.
        """
        broken = self.broken_bound(cost)
        if broken is None:
            return
        message = f"{program} took more than it declared, so that no budget could be kept: {broken}"
        raise BilledError(failure(FailureKind.BAD_REQUEST, f"{message}; raise the option"), cost)

    def broken_bound(self, spend: Spend) -> str | None:
        """The option that ``spend`` is above, and by what; None if all bounds hold."""
        declared = {
            "max_calls": (self.max_calls, spend.calls),
            "max_tokens": (self.max_tokens, spend.tokens),
            "max_gpu_seconds": (self.max_gpu_seconds, spend.gpu_seconds),
        }
        for name, (most, used) in declared.items():
            if most is not None and used > most:
                return f"{name}: {most:g} ({used:g})"
        if self.usd_per_call is not None and spend.usd_nanos > nanos(self.usd_per_call):
            return f"usd_per_call: {self.usd_per_call} ({spend.usd_nanos / 1e9:g})"
        return None


class _Usage(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, from_attributes=True)

    input: _Count = 0
    cached: _Count = 0
    cache_write: _Count = 0
    output: _Count = 0
    reasoning: _Count = 0


class Answer(BaseModel):
    """What a program answered; only ``text`` or ``error`` is needed.

    Attributes:
        text: the answer.
        finish: why it ended.
        usage: tokens of the model calls that the program made by itself.
        usd: dollars of those calls.
        calls: how many they were; None: one, if none went through our clients.
        gpu_seconds: worker seconds of those calls.
        model: the model that answered.
        error: how the program failed, instead of ``text``: a kind of failure such as "gave-up",
            "refused" (the candidate's own) or "overloaded" (says nothing about it).
        message: one line about the error.
        retry_after: seconds to wait before trying again, with ``error``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str | None = None
    finish: Finish = Finish.STOP
    usage: _Usage = Field(default_factory=_Usage)
    usd: Decimal | None = Field(default=None, ge=0, allow_inf_nan=False)
    calls: int | None = Field(default=None, ge=0)
    gpu_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    model: str = ""
    error: FailureKind | None = None
    message: str = ""
    retry_after: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _has_one_outcome(self) -> Answer:
        if (self.text is None) == (self.error is None):
            raise ValueError("an answer holds either `text` or `error`")
        if self.error is FailureKind.JUDGE_FAILED:
            raise ValueError("`error` is about the program, and 'judge-failed' is not")
        return self

    def failed(self, hidden: Mapping[str, str]) -> ProviderError | None:
        """The error that it reports, if it does, without what is ``hidden``."""
        if self.error is None:
            return None
        message = masked(self.message, hidden) or "the program gave no message"
        return failure(self.error, message, retry_after=self.retry_after)

    def cost(self, metered: Metered) -> Spend:
        """What the answer cost: the calls of our clients, and those that the program reports."""
        calls = int(metered.spend.calls == 0) if self.calls is None else self.calls
        return metered.spend + Spend(
            calls=max(calls, int(metered.spend.calls == 0)),
            tokens=self.usage.input + self.usage.output,
            usd_nanos=nanos(self.usd or 0),
            gpu_seconds=self.gpu_seconds,
        )

    def reply(self, metered: Metered, *, seconds: float, priced: bool) -> Reply:
        """The answer with what it cost.

        Args:
            metered: what the calls of our clients took.
            seconds: how long it took.
            priced: whether dollars are known: what is not reported costs nothing then.
        """
        cost = self.cost(metered)
        return Reply(
            text=self.text or "",
            finish=self.finish,
            usage=_sum(metered.tokens(), Usage(**self.usage.model_dump())),
            usd_nanos=cost.usd_nanos if priced or self.usd is not None else None,
            seconds=seconds,
            gpu_seconds=cost.gpu_seconds,
            model=self.model,
            calls=cost.calls,
        )


@dataclass(frozen=True, slots=True)
class Metered:
    """What the model calls of a program took that went through our clients.

    Attributes:
        spend: all of it, failed calls included.
        usage: tokens of the calls that were answered.
    """

    spend: Spend = field(default_factory=Spend)
    usage: Usage = field(default_factory=Usage)

    def tokens(self) -> Usage:
        """All tokens; those that failed calls may have been billed for count as input."""
        lost = self.spend.tokens - self.usage.total
        return replace(self.usage, input=self.usage.input + lost)

    def plus(self, cost: Spend, usage: Usage) -> Metered:
        """This and another call."""
        return Metered(self.spend + cost, _sum(self.usage, usage))


def read_answer(value: object, subject: str) -> Answer:
    """Read what a program returned: a text, a mapping, a ``Reply``, or an object with these fields.

    A ``Reply`` of one of our clients was metered when it came; only its text, finish and model are
    taken.

    Raises:
        ConfigError: it is none of these, or a field breaks a rule.
    """
    if isinstance(value, str):
        return Answer(text=value)
    if isinstance(value, Reply):
        return Answer(text=value.text, finish=value.finish, model=value.model)
    if isinstance(value, Mapping):
        return parse_row(Answer, value, subject)
    fields: dict[str, Json] = {
        name: getattr(value, name) for name in Answer.model_fields if hasattr(value, name)
    }
    if not fields.keys() & {"text", "error"}:
        raise ConfigError(
            f"{subject}: must be a text, a mapping or an object with `text`, got "
            f"{type(value).__name__}"
        )
    return parse_row(Answer, fields, subject)


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        one.input + other.input,
        one.cached + other.cached,
        one.cache_write + other.cache_write,
        one.output + other.output,
        one.reasoning + other.reasoning,
    )
