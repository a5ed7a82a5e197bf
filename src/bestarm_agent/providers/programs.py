"""Candidates that are programs: what they declare, what they answer, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, replace
from decimal import Decimal
from operator import add
from typing import Annotated, Any, Generic

from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import TypeVar

from bestarm_agent.config.fields import StrictModel
from bestarm_agent.config.file_errors import parse_row
from bestarm_agent.config.functions import Program
from bestarm_agent.domain.redaction import REDACTED, masked, without_traces
from bestarm_agent.domain.spend import Spend, Usage, nanos
from bestarm_agent.domain.values import Finish, Reply, Request
from bestarm_agent.errors import CandidateError, ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.base import Capabilities, Provider
from bestarm_agent.providers.failures import BilledError, failure

_Count = Annotated[int, Field(ge=0)]


class ProgramOptions(StrictModel):
    """Options that ``python`` and ``command`` share.

    The bounds hold for one answer, with all model calls of the program. Budgets depend on them: a
    cap on dollars needs ``usd_per_call``, one on tokens or worker seconds needs ``max_tokens`` and
    ``max_gpu_seconds``.
    """

    params: tuple[str, ...] = ()  # parameters that the program honours; others are not sent to it
    max_calls: int = Field(default=1, ge=1)  # most model calls of one answer
    max_tokens: int | None = Field(default=None, ge=0)  # of one answer; None: not declared
    max_gpu_seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    usd_per_call: Decimal | None = Field(default=None, ge=0, allow_inf_nan=False)
    version: str = ""  # change it to ignore old replies in the cache
    sources: tuple[str, ...] = ()  # further files that decide replies, relative to the study

    def bound(self) -> Spend:
        """Return the bounds; 0 for those that are not declared."""
        return Spend(
            calls=self.max_calls,
            tokens=self.max_tokens or 0,
            usd_nanos=nanos(self.usd_per_call or 0),
            gpu_seconds=self.max_gpu_seconds or 0.0,
        )

    def capabilities(self, in_flight: int, *, priced: bool = True) -> Capabilities:
        """Return the declared capabilities; ``priced`` is False if a called model has no price."""
        return Capabilities(
            params=frozenset(self.params),
            price_source=None if self.usd_per_call is None or not priced else "usd_per_call",
            in_flight=in_flight,
            queued=True,
            by_inputs=True,
            counted=self.max_tokens is not None and self.max_gpu_seconds is not None,
        )

    def broken_bound(self, spend: Spend) -> str | None:
        """Return the option that ``spend`` exceeds, with both values; None if all bounds hold."""
        usd = None if self.usd_per_call is None else nanos(self.usd_per_call) / 1e9
        declared = {
            "max_calls": (self.max_calls, spend.calls),
            "max_tokens": (self.max_tokens, spend.tokens),
            "max_gpu_seconds": (self.max_gpu_seconds, spend.gpu_seconds),
            "usd_per_call": (usd, spend.usd_nanos / 1e9),
        }
        for name, (most, used) in declared.items():
            if most is not None and used > most:
                return f"{name}: {most:g} ({used:g})"
        return None


ProgramOptionsT = TypeVar("ProgramOptionsT", bound=ProgramOptions, default=Any)


class _Usage(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, from_attributes=True)

    input: _Count = 0
    cached: _Count = 0
    cache_write: _Count = 0
    output: _Count = 0
    reasoning: _Count = 0


class ProgramAnswer(StrictModel):
    """A program's answer; only ``text`` or ``error`` is required.

    ``error`` is the kind of failure, such as "gave-up" or "refused" (the candidate's own) or
    "overloaded" (says nothing about it); ``retry_after`` seconds may go with it.
    """

    model_config = ConfigDict(from_attributes=True)

    text: str | None = None
    finish: Finish = Finish.STOP  # why it ended
    usage: _Usage = Field(default_factory=_Usage)  # of the model calls that the program itself made
    usd: Decimal | None = Field(default=None, ge=0, allow_inf_nan=False)  # dollars of those calls
    calls: int | None = Field(default=None, ge=0)  # None: one, if no call went through our clients
    gpu_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)  # of these calls
    model: str = ""  # the model that answered
    error: FailureKind | None = None
    message: str = ""  # one line about the error
    retry_after: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _has_one_outcome(self) -> ProgramAnswer:
        if (self.text is None) == (self.error is None):
            raise ValueError("an answer holds either `text` or `error`")
        if self.error is FailureKind.JUDGE_FAILED:
            raise ValueError("`error` is about the program, and 'judge-failed' is not")
        return self


def read_answer(value: object, subject: str) -> ProgramAnswer:
    """Read a program's result: a text, a mapping, a ``Reply``, or an object with these fields.

    The cost of a ``Reply`` of our clients is already counted: only its text, finish and model are
    read. Raises ConfigError if it is none of these, or a field breaks a rule.
    """
    if isinstance(value, str):
        return ProgramAnswer(text=value)
    if isinstance(value, Reply):
        return ProgramAnswer(text=value.text, finish=value.finish, model=value.model)
    if isinstance(value, Mapping) or hasattr(value, "text") or hasattr(value, "error"):
        return parse_row(ProgramAnswer, value, subject)  # type: ignore[arg-type] # by attributes
    raise ConfigError(
        f"{subject}: must be a text, a mapping or an object with `text`, got {type(value).__name__}"
    )


def add_usage(first: Usage, second: Usage) -> Usage:
    """Add the tokens of two calls, kind by kind."""
    return Usage(*map(add, astuple(first), astuple(second)))


class ProgramProvider(Provider[ProgramOptionsT], Generic[ProgramOptionsT]):
    """Base of the providers whose models are programs."""

    def bound(self, request: Request) -> Spend:
        """Return the declared bounds."""
        return self.options.bound()

    def _settled(
        self,
        answer: ProgramAnswer,
        program: str,  # its name, for messages
        seconds: float,  # until the answer
        hidden: Mapping[str, str],  # secrets and other texts to leave out
        called: Spend,  # on calls through our clients
        usage: Usage,  # of those that were answered
    ) -> Reply:
        """Return an answer as a reply with the cost of all calls.

        Tokens that failed calls may have been billed for count as input. Dollars that are not
        reported are 0 where the options declare a bound, else unknown. Raises BilledError: the
        answer reports an error, or breaks a bound that the options declare (fatal).
        """
        # A program that called nothing through our clients made one call at least, whatever it
        # says.
        least = int(called.calls == 0)
        cost = called + Spend(
            calls=max(least if answer.calls is None else answer.calls, least),
            tokens=answer.usage.input + answer.usage.output,
            usd_nanos=nanos(answer.usd or 0),
            gpu_seconds=answer.gpu_seconds,
        )
        # Before the answer is looked at: budgets rest on the declared bounds, so a program that
        # breaks them is stopped however well it answers.
        if broken := self.options.broken_bound(cost):
            error = failure(
                FailureKind.BAD_REQUEST,
                f"{program} took more than it declared, so that no budget could be kept: {broken}; "
                "raise the option",
            )
            raise BilledError(error, cost)
        if answer.error is not None:
            message = answer.message or "the program gave no message"
            error = failure(answer.error, message, retry_after=answer.retry_after)
            raise BilledError(as_candidate_error(error, program, hidden), cost)
        keys = [text for text, replacement in hidden.items() if replacement == REDACTED]
        usage = add_usage(usage, Usage(**answer.usage.model_dump()))
        is_priced = self.options.usd_per_call is not None or answer.usd is not None
        return Reply(
            text=without_traces(answer.text or "", keys),
            finish=answer.finish,
            # ``cost.tokens`` has the tokens of failed calls as well, which were neither input nor
            # output of any answer. As input they make the reply's total equal to what is charged.
            usage=replace(usage, input=usage.input + cost.tokens - usage.total),
            usd_nanos=cost.usd_nanos if is_priced else None,
            seconds=seconds,
            gpu_seconds=cost.gpu_seconds,
            model=without_traces(answer.model, keys),
            calls=cost.calls,
        )


def as_candidate_error(
    error: ProviderError, program: str, hidden: Mapping[str, str]
) -> ProviderError:
    """Return the error as the candidate's: fatal for this candidate alone, not for the model."""
    message = masked(str(error), hidden)
    if error.fatal:
        return failure(FailureKind.MODEL_NOT_FOUND, f"{program}: {message}")
    own = failure(error.kind, message, retry_after=error.retry_after)
    own.blame, own.transient = error.blame, error.transient
    return own


def meant_by(error: BaseException, program: Program, late: str) -> ProviderError | None:
    """Return what an error that a program raised says of itself; None of any other mistake.

    ``late`` is what is said of a time-out, "" if there was none: a program may raise TimeoutError
    of its own, which is a mistake like any other.
    """
    match error:
        case ProviderError():
            return error
        case CandidateError():
            return failure(FailureKind.GAVE_UP, program.masked(error) or f"{program.name} gave up")
        case ConfigError():
            return failure(FailureKind.INTERNAL, program.masked(error))
        case TimeoutError() if late:
            return failure(FailureKind.TIMEOUT, late)
    return None
