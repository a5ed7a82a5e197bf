"""Run several judges, or several calls of one judge, at the same time.

Combine the scores of several judges.

Score replies with one judge, and measure them with others beside it.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.digest import Json, digest
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Score, Vote
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.errors import Blame, FailureKind, JudgeError
from bestarm_agent.judges.base import (
    Calls,
    Judge,
    JudgeCall,
    JudgeModel,
    JudgeOptions,
    JudgeSetup,
)

T = TypeVar("T")


async def gather_all(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all at once; if some fail, raise one of the errors after all have ended.

    Calls in flight are paid for, so one failure does not cancel the others.
    """
    results, errors = [], []
    for result, error in await together(map(_result_or_error, coroutines)):
        results += result
        errors += error
    if errors:
        # an error that stops the whole run comes before an unreadable verdict
        raise min(errors, key=lambda error: isinstance(error, JudgeError))
    return results


async def _result_or_error(coroutine: Coroutine[Any, Any, T]) -> tuple[list[T], list[Exception]]:
    try:
        return [await coroutine], []
    except Exception as error:  # raised again once all have ended
        return [], [error]


class _MemberCalls:
    def __init__(self, calls: Calls, member: int) -> None:
        self._calls = calls
        self._member = member

    async def ask(self, call: JudgeCall) -> Reply:
        return await self._calls.ask(_marked(call, self._member))


def models_of(members: Sequence[Judge]) -> tuple[JudgeModel, ...]:
    """Return the models of all members, each once."""
    models = {model.key: model for member in members for model in member.models}
    return tuple(models.values())


def longest_calls_of(members: Sequence[Judge], example: Example) -> list[JudgeCall]:
    """Return the longest calls of all members, marked as when they are made."""
    return [
        _marked(call, i)
        for i, member in enumerate(members)
        for call in member.longest_calls(example)
    ]


async def score_all(
    members: Sequence[Judge], example: Example, reply: Reply, calls: Calls
) -> list[Score | JudgeError]:
    """Let all members score a reply at the same time; return errors instead of raising them."""
    return await gather_all(
        [_scored(m, example, reply, _MemberCalls(calls, i)) for i, m in enumerate(members)]
    )


def votes_of(members: Sequence[Judge], results: Sequence[Score | JudgeError]) -> tuple[Vote, ...]:
    """Return the votes of the members that scored; the score of a rule is its vote."""
    return tuple(
        vote
        for member, result in zip(members, results, strict=True)
        if isinstance(result, Score)
        for vote in result.votes or (Vote(member.name, result.value, result.answer or ""),)
    )


def too_few(message: str, failures: Sequence[JudgeError]) -> JudgeError:
    """Return the error of a group in which too few members gave a score."""
    return JudgeError(
        f"{message}; {failures[0]}",
        kind=FailureKind.JUDGE_FAILED,
        blame=Blame.JUDGE,
        transient=any(failure.transient for failure in failures),
    )


def _marked(call: JudgeCall, member: int) -> JudgeCall:
    request = replace(call.request, example=f"{call.request.example}/judge-{member + 1}")
    return replace(call, request=request)


async def _scored(judge: Judge, example: Example, reply: Reply, calls: Calls) -> Score | JudgeError:
    try:
        return await judge.score(example, reply, calls)
    except JudgeError as error:
        return error


_HALF = 0.5


class MemberOptions(BaseModel):
    """One judge of an ensemble; all keys but ``name`` and ``weight`` are its options."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, JsonValue]

    name: str = Field(min_length=1)
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)

    @property
    def options(self) -> dict[str, JsonValue]:
        """Return the options of the judge."""
        return dict(self.__pydantic_extra__)


class EnsembleOptions(JudgeOptions):
    """Options of ``ensemble``."""

    members: tuple[MemberOptions, ...] = Field(min_length=2)
    # "majority": 1 or 0 as most of the weight lies above or below 0.5; 0.5 for a draw
    combine: Literal["mean", "median", "majority"] = "mean"
    quorum: int | None = Field(None, ge=1)  # how many members must have scored; None: all

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.quorum is not None and self.quorum > len(self.members):
            raise ValueError(
                f"`quorum` is {self.quorum}, but there are {len(self.members)} members"
            )
        if self.combine == "median" and any(member.weight != 1 for member in self.members):
            raise ValueError("`combine: median` takes no weights; use `mean`, or leave them out")
        return self


class EnsembleJudge(Judge[EnsembleOptions]):
    """Combines the scores of its members.

    If a member blames the candidate (refused, blank), so does the ensemble. A member that fails
    does not vote; with fewer votes than the quorum the ensemble fails.
    """

    adapter = "ensemble"
    options_type = EnsembleOptions

    def __init__(self, name: str, options: EnsembleOptions, members: Sequence[Judge]) -> None:
        super().__init__(name, options)
        self.members = tuple(members)
        self.needs_reference = any(member.needs_reference for member in members)
        self.models = models_of(members)
        self._weights = [member.weight for member in options.members]
        self.digest = self._digest(
            combine=options.combine,
            quorum=options.quorum,
            members=[member.digest for member in members],
            weights=self._weights,
        )

    @classmethod
    def create(cls, name: str, options: Mapping[str, Json], setup: JudgeSetup) -> Self:
        """Validate the options and build the members; raises ConfigError."""
        parsed = setup.parse(EnsembleOptions, options)
        return cls(name, parsed, [setup.judge(one.name, one.options) for one in parsed.members])

    def check(self, example: Example) -> None:
        """Check that all members can score replies to ``example``; raises ConfigError."""
        for member in self.members:
            member.check(example)

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        """Return the calls of all members."""
        return longest_calls_of(self.members, example)

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Let all members score a reply and combine their scores."""
        results = await score_all(self.members, example, reply, calls)
        failures = [result for result in results if isinstance(result, JudgeError)]
        for failure in failures:
            if failure.blame is Blame.CANDIDATE:
                raise failure
        scores = [(i, r) for i, r in enumerate(results) if isinstance(r, Score)]
        quorum = self.options.quorum or len(self.members)
        if len(scores) < quorum:
            raise too_few(
                f"{len(scores)} of {len(self.members)} judges of `{self.name}` scored the reply, "
                f"{quorum} must",
                failures,
            )
        value = self._combined([s.value for _, s in scores], [self._weights[i] for i, _ in scores])
        return Score(value, votes=votes_of(self.members, results))

    def _combined(self, values: Sequence[float], weights: Sequence[float]) -> float:
        if self.options.combine == "median":
            return float(median(values))
        if self.options.combine == "mean":
            return min(1.0, fmean(values, weights))
        lead = sum(w * ((v > _HALF) - (v < _HALF)) for v, w in zip(values, weights, strict=True))
        return 0.5 if lead == 0 else float(lead > 0)


class MeasuredJudge(Judge[JudgeOptions]):
    """Returns the score of ``judge``, with those of ``measures`` in their order."""

    def __init__(self, judge: Judge, measures: Mapping[str, Judge]) -> None:
        super().__init__(f"{judge.name} and {', '.join(measures)}", JudgeOptions())
        self._members = (judge, *measures.values())
        self.needs_reference = any(one.needs_reference for one in self._members)
        self.models = models_of(self._members)
        named = [[name, one.digest] for name, one in measures.items()]
        self.digest = digest(["measured", judge.digest, named])

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        """Return the calls of all judges."""
        return longest_calls_of(self._members, example)

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Score and measure a reply at once; raise what the judge raises.

        A measure is None where its judge failed.
        """
        first, *others = await score_all(self._members, example, reply, calls)
        if isinstance(first, JudgeError):
            raise first
        measures = [one.value if isinstance(one, Score) else None for one in others]
        return replace(first, measures=tuple(measures))
