"""Run several judges, or several calls of one judge, at the same time."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Score, Vote
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.errors import Blame, FailureKind, JudgeError
from bestarm_agent.judges.base import Calls, Judge, JudgeCall, JudgeModel

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
