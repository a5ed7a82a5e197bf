"""Judges made of judges: they score the same reply at the same time, and a group combines that."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.values import RIGHT, Example, Json, Reply, Score, Vote, digest
from bestarm_agent.errors import Blame, FailureKind, JudgeError
from bestarm_agent.judges.base import (
    Calls,
    Judge,
    JudgeCall,
    JudgeModel,
    JudgeOptions,
    JudgeSetup,
    OptionsT,
)

T = TypeVar("T")
Result: TypeAlias = Score | JudgeError


async def gather_all(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all at once; if some fail, raise one of the errors after all have ended.

    Calls in flight are paid for, so one failure does not cancel the others.
    """
    outcomes = await _settled(coroutines)
    if errors := [error for error in outcomes if isinstance(error, Exception)]:
        # an error that stops the whole run comes before an unreadable verdict
        raise min(errors, key=lambda error: isinstance(error, JudgeError))
    return cast("list[T]", outcomes)


async def _settled(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T | Exception]:
    async def settled(coroutine: Coroutine[Any, Any, T]) -> T | Exception:
        try:
            return await coroutine
        except Exception as error:
            return error

    return await together(map(settled, coroutines))


class Group(Judge[OptionsT]):
    """Judges that score the same replies; a subclass combines their scores.

    Calls of the first member are about the example ``ID/judge-1``, and so on, unless a group of
    judges that are known by themselves does not number them.
    """

    numbers_calls: ClassVar[bool] = True

    def __init__(
        self, name: str, options: OptionsT, members: Sequence[Judge], **decisive: Json
    ) -> None:
        """Take the members; ``decisive`` is what else decides a score, for the digest."""
        super().__init__(name, options)
        self.members = tuple(members)
        self.needs_reference = any(member.needs_reference for member in members)
        self.digest = self._digest(members=[member.digest for member in members], **decisive)

    @property
    def models(self) -> tuple[JudgeModel, ...]:  # type: ignore[override] # nobody sets it
        """The models of all members."""
        models = {model.key: model for member in self.members for model in member.models}
        return tuple(models.values())

    def _asked(self, example: Example) -> list[tuple[Judge, Example]]:
        """Return (judge, example) pairs; by default every member with this example."""
        return [(member, example) for member in self.members]

    def each_asked(self, example: Example) -> Iterator[tuple[Judge, Example]]:
        """Yield what each member yields."""
        for member, own_example in self._asked(example):
            yield from member.each_asked(own_example)

    def check(self, example: Example) -> None:
        """Check that its members can score replies to ``example``; raises ConfigError."""
        for member, own_example in self._asked(example):
            member.check(own_example)

    def unrecognised(self, example: Example) -> str:
        """Return the reason of the first member that does not recognise one of its targets."""
        reasons = (member.unrecognised(own_example) for member, own_example in self._asked(example))
        return next(filter(None, reasons), "")

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        """Return the calls of all members."""
        return [
            _numbered(call, number) if self.numbers_calls else call
            for number, (member, own_example) in enumerate(self._asked(example), 1)
            for call in member.longest_calls(own_example)
        ]

    async def _results(
        self, asked: Sequence[tuple[Judge, Example]], reply: Reply, calls: Calls
    ) -> list[Result]:
        """Return each member's score of a reply, or why it has none."""
        scores = [
            member.score(example, reply, _MemberCalls(calls, i) if self.numbers_calls else calls)
            for i, (member, example) in enumerate(asked, 1)
        ]
        # All are awaited even if one has failed: their calls are paid for, and their errors may be
        # the ones that decide (a refused reply blames the candidate whatever another judge says).
        outcomes = await _settled(scores)
        for error in outcomes:
            if isinstance(error, Exception) and not isinstance(error, JudgeError):
                raise error
        return cast("list[Result]", outcomes)


@dataclass(frozen=True, slots=True)
class _MemberCalls:
    calls: Calls
    number: int  # of the member, counted from 1

    async def ask(self, call: JudgeCall) -> Reply:
        return await self.calls.ask(_numbered(call, self.number))


def _numbered(call: JudgeCall, number: int) -> JudgeCall:
    """Return a call marked with the member that makes it."""
    # Two members may ask the same model the same question. The suffix keeps their calls apart in
    # the records of a run, so that each has a reply of its own.
    name = f"{call.request.example}/judge-{number}"
    return replace(call, request=replace(call.request, example=name))


class MemberOptions(BaseModel):
    """One judge of an ensemble; all keys but ``name`` and ``weight`` are its options."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, JsonValue]

    name: str = Field(min_length=1)
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)


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


class EnsembleJudge(Group[EnsembleOptions]):
    """Combines the scores of its members.

    If a member blames the candidate (refused, blank), so does the ensemble. A member that fails
    does not vote; with fewer votes than the quorum the ensemble fails.
    """

    adapter = "ensemble"
    check_option = "members"
    options_type = EnsembleOptions

    @classmethod
    def create(cls, name: str, options: Mapping[str, Json], setup: JudgeSetup) -> Self:
        """Validate the options and build the members; raises ConfigError."""
        parsed = setup.parse(EnsembleOptions, options)
        return cls(
            name,
            parsed,
            [setup.judge(member.name, member.__pydantic_extra__) for member in parsed.members],
            combine=parsed.combine,
            quorum=parsed.quorum,
            weights=[member.weight for member in parsed.members],
        )

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Let all members score a reply and combine their scores."""
        results = await self._results(self._asked(example), reply, calls)
        failures = [result for result in results if isinstance(result, JudgeError)]
        # A reply that cannot be judged is the candidate's failure for every judge. It comes before
        # the quorum, since else the failures of other judges would hide it.
        for failure in failures:
            if failure.blame is Blame.CANDIDATE:
                raise failure
        quorum = self.options.quorum or len(self.members)
        n_scored = len(results) - len(failures)
        if n_scored < quorum:
            raise JudgeError(
                f"{n_scored} of {len(self.members)} judges of `{self.name}` scored the reply, "
                f"{quorum} must; {failures[0]}",
                kind=FailureKind.JUDGE_FAILED,
                blame=Blame.JUDGE,
                transient=any(failure.transient for failure in failures),
            )
        weighed, votes = list[tuple[float, float]](), list[Vote]()
        for member, option, result in zip(self.members, self.options.members, results, strict=True):
            if isinstance(result, Score):
                weighed.append((result.value, option.weight))
                # the score of a rule is its vote
                votes += result.votes or [Vote(member.name, result.value, result.answer or "")]
        return Score(self._combined(*zip(*weighed, strict=True)), votes=tuple(votes))

    def _combined(self, values: Sequence[float], weights: Sequence[float]) -> float:
        if self.options.combine == "median":
            return float(median(values))
        if self.options.combine == "mean":
            return min(1.0, fmean(values, weights))
        # Votes are counted as above or below one half, and a value of exactly one half for neither
        # side.
        lead = sum(w * ((v > RIGHT) - (v < RIGHT)) for v, w in zip(values, weights, strict=True))
        return 0.5 if lead == 0 else float(lead > 0)


class MeasuredJudge(Group[JudgeOptions]):
    """Returns the score of ``judge``, with those of ``measures`` in their order before its own."""

    def __init__(self, judge: Judge, measures: Mapping[str, Judge]) -> None:
        name = f"{judge.name} and {', '.join(measures)}"
        super().__init__(name, JudgeOptions(), (judge, *measures.values()), names=[*measures])
        self._main, self._further = judge, tuple(measures)

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of the measures, then those of the judge's own."""
        return (*self._further, *self._main.measures)

    @property
    def main(self) -> Judge:
        """The judge whose score counts."""
        return self._main

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Score and measure a reply at once; raise what the judge raises.

        A measure is None where its judge failed.
        """
        score, *others = await self._results(self._asked(example), reply, calls)
        if isinstance(score, JudgeError):
            raise score
        measures = [result.value if isinstance(result, Score) else None for result in others]
        return replace(score, measures=(*measures, *score.measures))


class AuditedJudge(Group[JudgeOptions]):
    """Scores replies with one judge, and those to labelled examples with a trusted one too."""

    numbers_calls = False  # each may also judge without the other, by the same recorded replies

    def __init__(
        self,
        autoevaluator: Judge,
        trusted: Judge,
        labelled: Mapping[str, Example],  # by id, with the label as its reference
        *,
        floor: float = 0.0,  # score in [0, 1] of a reply that a judge cannot read
        # scores in [0, 1] that people gave, by the example's id and the digest of the reply's
        # text; they count instead of the trusted judge's
        people: Mapping[tuple[str, str], float] | None = None,
    ) -> None:
        self._labelled = labelled
        self._floor = floor
        self._people = people or {}
        labels = sorted(example.digest for example in labelled.values())
        super().__init__(
            f"{autoevaluator.name}, audited by {trusted.name}",
            JudgeOptions(),
            (autoevaluator, trusted),
            labels=labels,
            floor=floor,
            people=[[*key, score] for key, score in sorted(self._people.items())],
        )

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of the autoevaluator's."""
        return self.members[0].measures

    def _asked(self, example: Example) -> list[tuple[Judge, Example]]:
        autoevaluator, trusted = self.members
        labelled = self._labelled.get(example.id)
        pairs = [(autoevaluator, example)]
        return pairs if labelled is None else [*pairs, (trusted, labelled)]

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Score one reply, in [0, 1]; ``gold`` is the trusted score, None if that judge failed.

        A reply that the autoevaluator cannot read gets the floor, since the trusted judge may read
        it. If the autoevaluator fails, JudgeError blames the judge.
        """
        asked = self._asked(example)
        # People's score replaces the trusted judge's, which is then not called: it would cost and
        # not count.
        given = self._people.get((example.id, digest(reply.said))) if asked[1:] else None
        if given is not None:
            del asked[1:]
        results = await self._results(asked, reply, calls)
        # The two judges may differ in what they can read. A reply that only one of them cannot read
        # must still give both scores, or exactly the pairs where they disagree most would be
        # missing.
        for i, result in enumerate(results):
            if isinstance(result, JudgeError) and result.blame is Blame.CANDIDATE:
                results[i] = Score(self._floor)
        score, *gold = results
        if isinstance(score, JudgeError):
            raise score
        trusted = [result.value for result in gold if isinstance(result, Score)]
        return replace(score, gold=trusted[0] if trusted else given)
