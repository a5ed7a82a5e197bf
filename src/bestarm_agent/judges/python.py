"""A Python function of the user's scores replies."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from bestarm_agent.domain.digest import digest
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Reply
from bestarm_agent.domain.outcome import Score
from bestarm_agent.functions import Program
from bestarm_agent.judges.base import Calls, JudgeCall, JudgeModel
from bestarm_agent.judges.rule import broken, check_reference, refuse_declined, unparsable


class PythonOptions(BaseModel):
    """Options of ``python``.

    Attributes:
        function: ``module:function``; the module is looked up in the study's folder, then among
            what is installed.
        sources: patterns of further files that decide scores, relative to the study's folder; a
            change of one is another judge.
        needs_reference: whether every example must hold a reference answer.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    function: str = Field(min_length=1)
    sources: tuple[str, ...]
    needs_reference: bool


class PythonJudge:
    """Scores a reply by ``function(answer, example)``.

    The function gets the reply's text and the ``Example``. It returns a number in [0, 1] or a bool;
    None says that the reply holds nothing to score, which is the candidate's failure. What it
    raises is the judge's failure. It may be a coroutine function; any other runs in a thread.

    Args:
        name: what users call it.
        options: the settings.
        program: the function, imported.
    """

    adapter: ClassVar[str] = "python"
    options_type: ClassVar[type[BaseModel]] = PythonOptions
    models: tuple[JudgeModel, ...] = ()

    def __init__(self, name: str, options: PythonOptions, program: Program) -> None:
        self.name = name
        self.needs_reference = options.needs_reference
        self._program = program
        self.digest = digest(
            {
                "adapter": self.adapter,
                "version": 1,
                "function": options.function,
                "source": program.digest,
            }
        )

    def check(self, example: Example) -> None:
        """Check that an example can be scored; raises ConfigError."""
        if self.needs_reference:
            check_reference(example, self.name)

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        """None: what the function calls is its own affair, and not accounted for."""
        return ()

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Score one reply.

        Raises:
            JudgeError: blame CANDIDATE if the reply was refused or the function returned None;
                blame JUDGE if it raised or returned anything else but a number in [0, 1].
        """
        refuse_declined(reply)
        try:
            if self._program.is_async:
                found = await self._program.function(reply.text, example)
            else:
                found = await asyncio.to_thread(self._program.function, reply.text, example)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise broken(f"{self._program.name} let a cancellation of its own get out") from error
        except Exception as error:  # a function may raise anything
            said = self._program.said(error)
            raise broken(f"{self._program.name} raised {type(error).__name__}: {said}") from error
        if found is None:
            raise unparsable(f"{self._program.name} found nothing to score", reply.text)
        try:
            value = float(found)
        except (TypeError, ValueError):
            value = math.nan
        if not 0.0 <= value <= 1.0:  # NaN fails this too
            raise broken(
                f"{self._program.name} must return a number in [0, 1] or None, got "
                f"{self._program.said(repr(found)):.60}"
            )
        return Score(value)
