"""The protocol of judges, for rules and for judges that call a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from bestarm_agent.domain.digest import Json, canonical
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Score
from bestarm_agent.domain.request_reply import Reply, Request


@dataclass(frozen=True)
class JudgeModel:
    """A model that a judge calls; ``options`` are provider options that differ from the study's."""

    provider: str
    name: str
    options: Mapping[str, Json] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """Return the identity of the model: equal key, equal model."""
        return canonical([self.provider, self.name, dict(self.options)])

    def __str__(self) -> str:
        return f"{self.provider}/{self.name}"


def _always(_reply: Reply) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class JudgeCall:
    """One call that a judge makes.

    ``request.example`` is the example's id, with a suffix ("/second") if a judge makes several
    calls for one reply. A cached reply for which ``is_readable`` returns False is not used: the
    model is asked again.
    """

    model: JudgeModel
    request: Request
    is_readable: Callable[[Reply], bool] = field(default=_always, compare=False, repr=False)


class Calls(Protocol):
    """Makes the calls of a judge: caches, limits, retries and charges them."""

    async def ask(self, call: JudgeCall) -> Reply:
        """Answer a call; parameters that the model does not support are left out.

        Raises JudgeError, blame JUDGE, if there was no answer after all retries.
        """


class Judge(Protocol):
    """Scores replies."""

    name: str  # in messages and reports
    # of all that decides a score (rule, options, template, model); scores of two never mix
    digest: str
    needs_reference: bool  # whether every example must have a reference answer
    models: tuple[JudgeModel, ...]  # the models that it calls; none for a rule

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        """Return the calls that judging the longest reply to ``example`` makes, each once.

        Their cost is reserved before the candidate is called. A rule returns none.
        """

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Score one reply, in [0, 1]; errors of ``calls`` pass through.

        Raises:
            JudgeError: blame CANDIDATE if the reply itself cannot be scored (no number in it, say),
                blame JUDGE if the judge failed.
        """
