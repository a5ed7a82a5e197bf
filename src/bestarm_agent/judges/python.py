"""Score replies by a Python function of the user."""

from __future__ import annotations

import asyncio
import math
import reprlib
from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field

from bestarm_agent.config.functions import Program, load_program, place_of
from bestarm_agent.domain.redaction import own_error, raised
from bestarm_agent.domain.threads import DaemonThreads
from bestarm_agent.domain.values import Example, Json, Reply, Score, clip_rounding
from bestarm_agent.judges.base import (
    Calls,
    Judge,
    JudgeOptions,
    JudgeSetup,
    judge_failed,
    refuse_declined,
    unparsable,
)

_THREADS = 32  # calls at once of ordinary functions


class PythonJudgeOptions(JudgeOptions):
    """Options of ``python``."""

    function: str = Field(min_length=1)  # ``module:function``, from the study's folder or installed
    sources: tuple[str, ...] = ()  # further files in the digest, from that folder
    needs_reference: bool = False  # whether every example must have a reference


class PythonJudge(Judge[PythonJudgeOptions]):
    """Scores a reply by ``function(answer, example)``.

    The function gets the reply's text and the ``Example``. It returns a number in [0, 1], a bool,
    or None if there is nothing to score, which is the candidate's failure. An exception is the
    judge's failure. A coroutine is awaited; a function that is none runs in a thread.
    """

    adapter = "python"
    check_option = "function"
    options_type = PythonJudgeOptions

    def __init__(self, name: str, options: PythonJudgeOptions, program: Program) -> None:
        super().__init__(name, options)
        self.needs_reference = options.needs_reference
        self._program = program
        self._threads = DaemonThreads(_THREADS)
        self.digest = self._digest(function=options.function, source=program.digest)

    @classmethod
    def create(cls, name: str, options: Mapping[str, Json], setup: JudgeSetup) -> Self:
        """Validate the options and import the function; raises ConfigError."""
        parsed = setup.parse(PythonJudgeOptions, options)
        program = load_program(parsed.function, setup.base_dir, parsed.sources)
        return cls(name, parsed, program)

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Score one reply; anything but None or a number in [0, 1] is the judge's failure."""
        refuse_declined(reply)
        result = await self._called(reply.said, example)
        if result is None:
            raise unparsable(f"{self._program.name} found nothing to score", reply.said)
        value = clip_rounding(_number(result))
        if not 0.0 <= value <= 1.0:  # NaN fails this too
            raise judge_failed(
                f"{self._program.name} must return a number in [0, 1] or None, got "
                f"{self._program.masked(reprlib.repr(result)):.60}"
            )
        return Score(value)

    async def _called(self, answer: str, example: Example) -> Any:  # noqa: ANN401 - as below
        program = self._program
        try:
            return await program.called(self._threads, answer, example)
        # The run's own cancellation must pass. One that the function caused by itself (it cancelled
        # a task and awaited it) is its failure like any other exception.
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise judge_failed(f"{program.name} let a cancellation of its own get out") from error
        except (Exception, SystemExit) as error:  # a function may raise anything
            call = f"{program.name.partition(':')[2]}(answer, example)"
            place = place_of(own_error(error), program) or f"; it is called as {call}"
            raise judge_failed(f"{raised(program.name, error, program.hidden)}{place}") from error


def _number(result: Any) -> float:  # noqa: ANN401 - a function may return anything
    """Return a number or bool as a float; NaN for anything else, such as the text "1"."""
    if isinstance(result, str | bytes):
        return math.nan
    try:
        return float(result)
    except Exception:  # of the object's own conversion
        return math.nan
