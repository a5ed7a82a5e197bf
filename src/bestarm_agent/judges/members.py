"""Judges that score one reply side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Reply
from bestarm_agent.domain.outcome import Score
from bestarm_agent.errors import JudgeError
from bestarm_agent.judges.base import Calls, Judge, JudgeCall, JudgeModel


class Tagging:
    """Tells the calls of one member from those of the others.

    Args:
        calls: makes them.
        member: its index.
    """

    def __init__(self, calls: Calls, member: int) -> None:
        self._calls = calls
        self._member = member

    async def ask(self, call: JudgeCall) -> Reply:
        """Answer a call under the member's name."""
        return await self._calls.ask(tagged(call, self._member))


def models_of(members: Sequence[Judge]) -> tuple[JudgeModel, ...]:
    """The models of all members, each once."""
    models = {model.key: model for member in members for model in member.models}
    return tuple(models.values())


def longest_calls_of(members: Sequence[Judge], example: Example) -> list[JudgeCall]:
    """The longest calls of all members, tagged as when they are made."""
    return [
        tagged(call, i)
        for i, member in enumerate(members)
        for call in member.longest_calls(example)
    ]


def tagged(call: JudgeCall, member: int) -> JudgeCall:
    """A member's call, as ``Tagging`` makes it."""
    request = replace(call.request, example=f"{call.request.example}/judge-{member + 1}")
    return replace(call, request=request)


async def scored(judge: Judge, example: Example, reply: Reply, calls: Calls) -> Score | JudgeError:
    """What a member says of a reply; an error is returned, so that the others are heard."""
    try:
        return await judge.score(example, reply, calls)
    except JudgeError as error:
        return error
