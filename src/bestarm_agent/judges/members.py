"""Judges that score one reply side by side."""

from __future__ import annotations

from dataclasses import replace

from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Reply
from bestarm_agent.domain.outcome import Score
from bestarm_agent.errors import JudgeError
from bestarm_agent.judges.base import Calls, Judge, JudgeCall


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
