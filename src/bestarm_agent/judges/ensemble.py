"""Several judges vote on every reply."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from bestarm_agent.domain.digest import digest
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Reply
from bestarm_agent.domain.outcome import Score, Vote
from bestarm_agent.errors import Blame, FailureKind, JudgeError
from bestarm_agent.judges.base import Calls, Judge, JudgeCall
from bestarm_agent.judges.members import Tagging, longest_calls_of, models_of, scored
from bestarm_agent.judges.together import together

_HALF = 0.5


class MemberOptions(BaseModel):
    """One judge of an ensemble; all keys but ``name`` and ``weight`` are its options.

    Attributes:
        name: name of the judge in the catalogue.
        weight: how much its vote counts, > 0; not with the median.
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, JsonValue]

    name: str = Field(min_length=1)
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)

    @property
    def options(self) -> dict[str, JsonValue]:
        """All other keys."""
        return dict(self.__pydantic_extra__)


class EnsembleOptions(BaseModel):
    """Options of ``ensemble``.

    Attributes:
        members: the judges, at least two.
        combine: "mean" of the scores, their "median", or "majority": the share of votes above one
            half decides between 1, 0 and, for a draw, 0.5.
        quorum: how many members must have scored a reply; None: all.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    members: tuple[MemberOptions, ...] = Field(min_length=2)
    combine: Literal["mean", "median", "majority"]
    quorum: int | None = Field(ge=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.quorum is not None and self.quorum > len(self.members):
            raise ValueError(
                f"`quorum` is {self.quorum}, but there are {len(self.members)} members"
            )
        if self.combine == "median" and any(member.weight != 1 for member in self.members):
            raise ValueError("`combine: median` takes no weights; use `mean`, or leave them out")
        return self


class EnsembleJudge:
    """Combines the scores of its members.

    A reply that a member calls the candidate's failure (refused, blank) is that for all. A member
    that fails gives no vote; with fewer votes than the quorum the ensemble has failed.

    Args:
        name: what users call it.
        options: the settings.
        members: the judges, in the order of ``options.members``.
    """

    adapter: ClassVar[str] = "ensemble"
    options_type: ClassVar[type[BaseModel]] = EnsembleOptions

    def __init__(self, name: str, options: EnsembleOptions, members: Sequence[Judge]) -> None:
        self.name = name
        self.members = tuple(members)
        self.needs_reference = any(member.needs_reference for member in members)
        self.models = models_of(members)
        self._options = options
        self._weights = [member.weight for member in options.members]
        self.digest = digest(
            {
                "adapter": self.adapter,
                "version": 1,
                "combine": options.combine,
                "quorum": options.quorum,
                "members": [member.digest for member in members],
                "weights": self._weights,
            }
        )

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        """Those of all members."""
        return longest_calls_of(self.members, example)

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Let all members score a reply at once and combine what they say.

        Raises:
            JudgeError: blame CANDIDATE if a member blames it; blame JUDGE below the quorum.
        """
        results = await together(
            [scored(m, example, reply, Tagging(calls, i)) for i, m in enumerate(self.members)]
        )
        failures = [result for result in results if isinstance(result, JudgeError)]
        for failure in failures:
            if failure.blame is Blame.CANDIDATE:
                raise failure
        scores = [(i, r) for i, r in enumerate(results) if isinstance(r, Score)]
        quorum = self._options.quorum or len(self.members)
        if len(scores) < quorum:
            raise JudgeError(
                f"{len(scores)} of {len(self.members)} judges of `{self.name}` scored the reply, "
                f"{quorum} must; {failures[0]}",
                kind=FailureKind.JUDGE_FAILED,
                blame=Blame.JUDGE,
                transient=any(failure.transient for failure in failures),
            )
        votes = [vote for i, score in scores for vote in self._votes(i, score)]
        value = self._combined([s.value for _, s in scores], [self._weights[i] for i, _ in scores])
        return Score(value, votes=tuple(votes))

    def _votes(self, i: int, score: Score) -> tuple[Vote, ...]:
        """A member's votes; a rule's score is its vote."""
        return score.votes or (Vote(self.members[i].name, score.value, score.answer or ""),)

    def _combined(self, values: Sequence[float], weights: Sequence[float]) -> float:
        if self._options.combine == "median":
            return float(median(values))
        if self._options.combine == "mean":
            return min(1.0, fmean(values, weights))
        lead = sum(w * ((v > _HALF) - (v < _HALF)) for v, w in zip(values, weights, strict=True))
        return 0.5 if lead == 0 else float(lead > 0)
