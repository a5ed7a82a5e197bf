"""Two ways to run a program: once for every answer, or as a worker that reads lines."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bestarm_agent.domain.concurrent import together
from bestarm_agent.errors import ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.program.command_process import (
    Child,
    find_program,
    read_tail,
    run_to_end,
    shown_tail,
    start,
)

_TRY_AGAIN_LATER = 75  # EX_TEMPFAIL of sysexits.h
_STOP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Command:
    """A program, and how it is run; ``hidden`` texts are never shown."""

    argv: Sequence[str]
    folder: Path
    variables: Mapping[str, str]
    hidden: Mapping[str, str]
    most_output_bytes: int

    async def start(self) -> Child:
        """Start it; raises ProviderError, MODEL_NOT_FOUND, if it cannot be started."""
        try:
            program = find_program(self.argv[0], self.folder, self.variables)
            return await start(
                [program, *self.argv[1:]],
                self.folder,
                self.variables,
                max_line=self.most_output_bytes,
            )
        except (OSError, ValueError, ConfigError) as error:
            raise failure(
                FailureKind.MODEL_NOT_FOUND,
                f"the program {self.argv[0]} cannot be started: {error}",
            ) from error

    def too_much(self) -> ProviderError:
        """Return the error of an output that is too long."""
        return failure(
            FailureKind.MALFORMED_REPLY,
            f"the program {self.argv[0]} wrote more than {self.most_output_bytes:,} bytes and was "
            "killed; raise `most_output_bytes` if its answers are that long",
        )

    def ended(self, code: int, tail: bytes) -> ProviderError:
        """Return the error of a program that ended without an answer."""
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        said = shown_tail(tail, self.hidden)
        retried = code < 0 or code == _TRY_AGAIN_LATER
        return failure(
            FailureKind.SERVER if retried else FailureKind.INTERNAL,
            f"the program {self.argv[0]} {how}" + (f"; it wrote: {said}" if said else ""),
        )


class OneShotRunner:
    """Starts the program for every answer."""

    def __init__(self, command: Command) -> None:
        self._command = command

    async def answer(self, line_in: bytes) -> bytes:
        """Return the program's output; raises ProviderError. Cancellation kills it."""
        child = await self._command.start()
        try:
            output, tail = await run_to_end(child, line_in, self._command.most_output_bytes)
        finally:
            await child.end()
        if output is None:
            raise self._command.too_much()
        if child.process.returncode:
            raise self._command.ended(child.process.returncode, tail)
        return output

    async def close(self) -> None:
        """Do nothing: no program is kept."""


@dataclass(slots=True, eq=False)
class _Worker:
    child: Child
    reading: asyncio.Task[None]
    tail: bytearray


class WorkerPool:
    """Keeps programs that answered, and sends them further lines, one at a time each.

    A program that fails in any way, or whose call is cancelled, is killed.
    """

    def __init__(self, command: Command) -> None:
        self._command = command
        self._idle: list[_Worker] = []

    async def answer(self, line_in: bytes) -> bytes:
        """Return the line that a program writes; raises ProviderError. Cancellation kills it."""
        worker = await self._take()
        try:
            line = await self._ask(worker, line_in)
        except BaseException:
            await _kill(worker)
            raise
        self._idle.append(worker)
        return line

    async def close(self) -> None:
        """Close the programs' input, and kill those that do not end then."""
        workers, self._idle = self._idle, []
        await together(map(_stop, workers))

    async def _take(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.child.process.returncode is None:
                return worker
            await _kill(worker)  # it ended while it was idle
        child = await self._command.start()
        tail = bytearray()
        return _Worker(child, asyncio.create_task(read_tail(child.stderr, tail)), tail)

    async def _ask(self, worker: _Worker, line_in: bytes) -> bytes:
        with suppress(BrokenPipeError, ConnectionResetError):  # the empty line is handled below
            worker.child.stdin.write(line_in)
            await worker.child.stdin.drain()
        try:
            line = await worker.child.stdout.readline()
        except ValueError:
            raise self._command.too_much() from None
        if line.endswith(b"\n"):
            return line
        await worker.child.exited.wait()
        worker.child.kill()  # its children hold the pipes open
        await worker.reading
        raise self._command.ended(worker.child.process.returncode or 0, bytes(worker.tail))


async def _stop(worker: _Worker) -> None:
    worker.child.stdin.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(_STOP_SECONDS):
            await worker.child.exited.wait()
    await _kill(worker)


async def _kill(worker: _Worker) -> None:
    await worker.child.end()
    worker.reading.cancel()
    await asyncio.wait([worker.reading])
