"""Two ways to ask a program: start it for every answer, or keep it and send it lines."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bestarm_agent.errors import ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.command_process import (
    Child,
    converse,
    find_program,
    read_tail,
    shown_tail,
    start,
)
from bestarm_agent.providers.failures import failure

_TRY_AGAIN_LATER = 75  # EX_TEMPFAIL of sysexits.h
_SECONDS_TO_LEAVE = 2.0


@dataclass(frozen=True, slots=True)
class Command:
    """A program, and how it is run.

    Attributes:
        argv: the program and its arguments.
        folder: its working directory.
        variables: its whole environment.
        hidden: texts that are never shown, with what stands in their place.
        most_output_bytes: longest output of one answer.
    """

    argv: Sequence[str]
    folder: Path
    variables: Mapping[str, str]
    hidden: Mapping[str, str]
    most_output_bytes: int

    async def start(self) -> Child:
        """Start it; raises ProviderError, MODEL_NOT_FOUND, if that cannot be."""
        try:
            program = find_program(self.argv[0], self.folder, self.variables)
            return await start(
                [program, *self.argv[1:]],
                self.folder,
                self.variables,
                most_line=self.most_output_bytes,
            )
        except (OSError, ValueError, ConfigError) as error:
            raise failure(
                FailureKind.MODEL_NOT_FOUND,
                f"the program {self.argv[0]} cannot be started: {error}",
            ) from error

    def too_much(self) -> ProviderError:
        """The error of an output that is too long."""
        return failure(
            FailureKind.MALFORMED_REPLY,
            f"the program {self.argv[0]} wrote more than {self.most_output_bytes:,} bytes and was "
            "killed; raise `most_output_bytes` if its answers are that long",
        )

    def ended(self, code: int, tail: bytes) -> ProviderError:
        """The error of a program that ended without an answer."""
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        said = shown_tail(tail, self.hidden)
        retried = code < 0 or code == _TRY_AGAIN_LATER
        return failure(
            FailureKind.SERVER if retried else FailureKind.INTERNAL,
            f"the program {self.argv[0]} {how}" + (f"; it wrote: {said}" if said else ""),
        )


class OneShot:
    """Starts the program for every answer.

    Args:
        command: the program.
    """

    def __init__(self, command: Command) -> None:
        self._command = command

    async def answer(self, question: bytes) -> bytes:
        """Return what the program writes; raises ProviderError. Cancelling kills it."""
        child = await self._command.start()
        try:
            output, tail = await converse(child, question, self._command.most_output_bytes)
        finally:
            await child.end()
        if output is None:
            raise self._command.too_much()
        if child.process.returncode:
            raise self._command.ended(child.process.returncode, tail)
        return output

    async def close(self) -> None:
        """Nothing is kept."""


@dataclass(slots=True, eq=False)
class _Worker:
    child: Child
    listening: asyncio.Task[None]
    tail: bytearray


class Workers:
    """Keeps programs that answered, and gives them further questions, one at a time each.

    A program that fails in any way, or whose question is cancelled, is killed; the next question
    starts another.

    Args:
        command: the program.
    """

    def __init__(self, command: Command) -> None:
        self._command = command
        self._idle: list[_Worker] = []

    async def answer(self, question: bytes) -> bytes:
        """Return the line that a program writes; raises ProviderError. Cancelling kills it."""
        worker = await self._take()
        try:
            line = await self._ask(worker, question)
        except BaseException:
            await _dismiss(worker)
            raise
        self._idle.append(worker)
        return line

    async def close(self) -> None:
        """Let the programs read the end of their input, and kill those that do not leave then."""
        workers, self._idle = self._idle, []
        async with asyncio.TaskGroup() as group:
            for worker in workers:
                group.create_task(_let_go(worker))

    async def _take(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.child.process.returncode is None:
                return worker
            await _dismiss(worker)  # it ended while nobody asked it anything
        child = await self._command.start()
        tail = bytearray()
        return _Worker(child, asyncio.create_task(read_tail(child.stderr, tail)), tail)

    async def _ask(self, worker: _Worker, question: bytes) -> bytes:
        with suppress(BrokenPipeError, ConnectionResetError):  # the empty line tells below
            worker.child.stdin.write(question)
            await worker.child.stdin.drain()
        try:
            line = await worker.child.stdout.readline()
        except ValueError:
            raise self._command.too_much() from None
        if line.endswith(b"\n"):
            return line
        await worker.child.exited.wait()
        worker.child.kill()  # what it left behind holds the pipes open
        await worker.listening
        raise self._command.ended(worker.child.process.returncode or 0, bytes(worker.tail))


async def _let_go(worker: _Worker) -> None:
    worker.child.stdin.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(_SECONDS_TO_LEAVE):
            await worker.child.exited.wait()
    await _dismiss(worker)


async def _dismiss(worker: _Worker) -> None:
    await worker.child.end()
    worker.listening.cancel()
    await asyncio.wait([worker.listening])
