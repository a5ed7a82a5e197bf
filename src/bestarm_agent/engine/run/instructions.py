"""Instructions that other processes leave in the store for a run that goes on."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field

from bestarm_agent.domain.digest import Json
from bestarm_agent.engine.clock import Clock
from bestarm_agent.engine.run.run_loop import RunLoop
from bestarm_agent.errors import BestarmError, StoreError
from bestarm_agent.store.base import RunStore

LOOK_SECONDS = 1.0

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Instruction:
    """A wish for a run; one of these."""

    stop: bool | None = None  # once what is in flight has ended
    paused: bool | None = None  # ask for no more pairs; False: go on
    pulls: int | None = None  # spend so many more pairs from now on
    usd: float | None = None  # spend so many more dollars from now on
    drop: int | None = None  # take a candidate, by its row, out of the competition
    add: dict[str, Json] | None = None  # an entry of ``candidates`` as in a study file

    def given(self) -> dict[str, object]:
        """Return what it says."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class Instructions:
    """Instructions left for a run since it last began to go on, and its answers."""

    left: Sequence[Instruction] = ()
    answers: Sequence[str] = ()  # of the first of them: why it was refused, "" if it was obeyed

    @property
    def paused(self) -> bool:
        """Return whether the run asks for no more pairs until it may go on."""
        given = zip(self.left, self.answers, strict=False)
        wishes = [one.paused for one, refused in given if one.paused is not None and not refused]
        return bool(wishes and wishes[-1])

    @property
    def waiting(self) -> int:
        """Number of instructions that the run has not seen yet."""
        return len(self.left) - len(self.answers)


async def leave_instruction(store: RunStore, run_id: str, instruction: Instruction) -> None:
    """Leave an instruction; a run that goes on obeys soon, any other never.

    Raises:
        StoreError: it cannot be stored, or another one was left at the same moment.
    """
    version, known = await _left(store, run_id)
    data = json.dumps([one.given() for one in (*known, instruction)]).encode()
    await store.put_state(_name(run_id), data, after=version)


async def left_instructions(store: RunStore, run_id: str) -> Instructions:
    """Return the instructions left for a run, and its answers."""
    _, answers = await _answers(store, run_id)
    _, left = await _left(store, run_id)
    return Instructions(left[answers.before :], answers.given)


@dataclass(slots=True)
class _Answers:
    before: int = 0  # instructions left before the run went on: nobody obeys them
    given: list[str] = field(default_factory=list)


class InstructionReader:
    """Looks for new instructions in each turn of the loop, at most once a second.

    Args:
        obey: does what an instruction wants; raises BestarmError to refuse.
    """

    def __init__(
        self, store: RunStore, run_id: str, clock: Clock, obey: Callable[[Instruction], None]
    ) -> None:
        self._store = store
        self._run_id = run_id
        self._clock = clock
        self._obey = obey
        self._answers = _Answers()
        self._version = 0  # of the stored answers
        self._looked = clock.now()
        self._looking: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def attached_to(self, loop: RunLoop) -> AsyncIterator[None]:
        """Look, within this context, for what is left from now on."""
        _, before = await _left(self._store, self._run_id)
        self._version, known = await _answers(self._store, self._run_id)
        self._answers = _Answers(len(before))
        if known != self._answers:
            await self._store_answers()
        loop.each_turn.append(self._look)
        try:
            yield
        finally:
            loop.each_turn.remove(self._look)
            if self._looking is not None:
                await self._looking

    def _look(self) -> None:
        is_looking = self._looking is not None and not self._looking.done()
        if not is_looking and self._clock.now() >= self._looked + LOOK_SECONDS:
            self._looked = self._clock.now()
            self._looking = asyncio.create_task(self._answer())

    async def _answer(self) -> None:
        try:
            _, left = await _left(self._store, self._run_id)
            fresh = left[self._answers.before + len(self._answers.given) :]
            self._answers.given += map(self._answer_to, fresh)
            if fresh:
                await self._store_answers()
        except StoreError as error:  # the run itself finds out whether the store is gone for good
            _logger.warning("run %s: instructions: %s", self._run_id, error)

    def _answer_to(self, instruction: Instruction) -> str:
        try:
            self._obey(instruction)
        except BestarmError as error:
            _logger.warning("run %s refuses %s: %s", self._run_id, instruction.given(), error)
            return str(error)
        _logger.info("run %s obeys %s", self._run_id, instruction.given())
        return ""

    async def _store_answers(self) -> None:
        data = json.dumps(asdict(self._answers)).encode()
        name = _answers_name(self._run_id)
        self._version = await self._store.put_state(name, data, after=self._version)


async def _left(store: RunStore, run_id: str) -> tuple[int, Sequence[Instruction]]:
    """Return the number of the list's version and all instructions ever left, oldest first."""
    found = await store.get_state(_name(run_id))
    if found is None:
        return 0, ()
    version, data = found
    return version, [Instruction(**one) for one in json.loads(data)]


async def _answers(store: RunStore, run_id: str) -> tuple[int, _Answers]:
    """Return the number of the answers' version, and the answers."""
    found = await store.get_state(_answers_name(run_id))
    if found is None:
        return 0, _Answers()
    version, data = found
    return version, _Answers(**json.loads(data))


def _name(run_id: str) -> str:
    return f"instructions for run {run_id}"


def _answers_name(run_id: str) -> str:
    return f"answers to instructions for run {run_id}"
