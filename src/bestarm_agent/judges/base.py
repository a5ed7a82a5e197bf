"""The seam between a reply and its score: one contract for rules and LLM judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from bestarm_agent.domain.digest import Json, canonical
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.outcome import Score
from bestarm_agent.errors import Blame, FailureKind, JudgeError


@dataclass(frozen=True)
class JudgeModel:
    """A model that a judge calls.

    Attributes:
        provider: name of the provider.
        name: the model's name as the provider knows it.
        options: provider options that differ from the study's, such as ``path`` of a recording.
    """

    provider: str
    name: str
    options: Mapping[str, Json] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """Tells models apart: equal key, equal model."""
        return canonical([self.provider, self.name, dict(self.options)])

    def __str__(self) -> str:
        return f"{self.provider}/{self.name}"


@dataclass(frozen=True, slots=True)
class JudgeCall:
    """One call that a judge makes.

    Attributes:
        model: who is asked.
        request: what is asked; ``example`` is the example's id, with a suffix ("/second") where a
            judge makes several calls for one reply.
    """

    model: JudgeModel
    request: Request


class Calls(Protocol):
    """Makes a judge's calls: whoever runs the judge caches, limits, repeats and pays them."""

    async def ask(self, call: JudgeCall) -> Reply:
        """Answer a call; what the model does not offer is left out of the request.

        Raises:
            JudgeError: blame JUDGE; there was no answer, after all repetitions.
        """
        ...


class NoCalls:
    """For judges that call no model."""

    async def ask(self, call: JudgeCall) -> Reply:
        """Refuse; raises JudgeError with blame JUDGE."""
        raise JudgeError(
            f"judge model {call.model} was to be called, and no way to call models was given",
            kind=FailureKind.JUDGE_FAILED,
            blame=Blame.JUDGE,
        )


class Judge(Protocol):
    """Scores replies.

    Attributes:
        name: what users call it.
        digest: digest of everything that decides a score (rule, options, template, model). Scores
            of two digests never mix in one estimate.
        needs_reference: whether every example must hold a reference answer.
        models: the models that it calls; none for a rule.
    """

    name: str
    digest: str
    needs_reference: bool
    models: tuple[JudgeModel, ...]

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        """The calls that judging the longest reply to ``example`` makes, each made once.

        What they can cost is set aside before the candidate is called. None for a rule.
        """
        ...

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Score one reply, in [0, 1].

        Args:
            example: what the candidate was asked.
            reply: its answer.
            calls: makes the judge's calls; its errors pass through. A rule makes none.

        Raises:
            JudgeError: blame CANDIDATE if the reply itself cannot be scored (no number in it, say),
                blame JUDGE if the judge failed.
        """
        ...
