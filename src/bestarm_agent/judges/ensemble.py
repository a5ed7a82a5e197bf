"""Combine the scores of several judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Score
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.errors import Blame, JudgeError
from bestarm_agent.judges.base import Calls, Judge, JudgeCall
from bestarm_agent.judges.base_judge import (
    BaseJudge,
    JudgeOptions,
    JudgeSetup,
    check_example,
)
from bestarm_agent.judges.member_calls import (
    longest_calls_of,
    models_of,
    score_all,
    too_few,
    votes_of,
)

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


class EnsembleJudge(BaseJudge[EnsembleOptions]):
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
            check_example(member, example)

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
