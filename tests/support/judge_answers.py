"""Judges that ask a model, with a script in its place."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.values import Example, Finish, Reply, Request, Score
from bestarm_agent.errors import JudgeError
from bestarm_agent.judges.base import Judge, JudgeCall
from bestarm_agent.judges.registry import check_examples, create_judge

EXAMPLE = Example("e1", {"question": "What is 19 + 27?", "baseline_output": "It is 45."}, "46")
CATALOG = Catalog()
MARK = "MARK-OF-THE-PROMPT"


def mark_in(prompt: str) -> str:
    """The mark that a prompt asks for in a verdict; "" if it asks for none."""
    marks = re.findall(r'"mark": "(\w+)"', prompt)
    return str(marks[-1]) if marks else ""


class Script:
    """Answers a judge's calls, with the mark of the prompt for ``MARK``, and keeps them."""

    def __init__(self, said: Callable[[Request], Reply | str] | Iterable[Reply | str]) -> None:
        self._said = said if callable(said) else self._next
        self._lines = iter(() if callable(said) else said)
        self.calls: list[JudgeCall] = []

    @property
    def requests(self) -> list[Request]:
        return [call.request for call in self.calls]

    def _next(self, _request: Request) -> Reply | str:
        return next(self._lines)

    async def ask(self, call: JudgeCall) -> Reply:
        self.calls.append(call)
        reply = self._said(call.request)
        mark = mark_in(call.request.messages[-1].text)
        return Reply(reply.replace(MARK, mark)) if isinstance(reply, str) else reply


class NoCalls:
    """Fails the test if a judge calls a model."""

    async def ask(self, call: JudgeCall) -> Reply:
        """Fail."""
        raise AssertionError(f"{call.model} was called")


def make(name: str, **options: object) -> Judge:
    """A judge of the catalogue, its model being ``openai/judge``."""
    model = {} if name == "ensemble" else {"model": "openai/judge"}
    return create_judge(name, {**model, **options}, CATALOG)  # type: ignore[dict-item]


def score(judge: Judge, script: Script, answer: str = "46", example: Example = EXAMPLE) -> Score:
    check_examples(judge, [example])
    return asyncio.run(judge.score(example, Reply(answer), script))


def failure(judge: Judge, script: Script, reply: Reply) -> JudgeError:
    async def ask() -> JudgeError:
        try:
            await judge.score(EXAMPLE, reply, script)
        except JudgeError as error:
            return error
        raise AssertionError("it was scored")

    return asyncio.run(ask())


def verdict(value: object, **more: object) -> str:
    return json.dumps({"mark": MARK, "explanation": "because", "verdict": value, **more})


REFUSED = Reply("no", Finish.REFUSAL)
