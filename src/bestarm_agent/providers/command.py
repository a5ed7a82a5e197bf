"""Candidates that are programs of any language: JSON in on stdin, JSON out on stdout."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Annotated

from pydantic import Field

from bestarm_agent.config.functions import files_digest, matching_files
from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.domain.values import Reply, Request, digest
from bestarm_agent.errors import ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.base import Capabilities
from bestarm_agent.providers.child_process import (
    ChildProcess,
    environment,
    find_program,
    hidden_from,
    shown_tail,
)
from bestarm_agent.providers.failures import BilledError, failure
from bestarm_agent.providers.programs import ProgramOptions, ProgramProvider, read_answer

_MAX_READ, _MAX_SHOWN = 10_000, 100
_TRY_AGAIN_LATER = 75  # EX_TEMPFAIL of sysexits.h


class CommandOptions(ProgramOptions):
    """Options of the ``command`` provider, in addition to ``ProgramOptions``.

    Attributes:
        argv: the program and its arguments. A program with a slash is a file relative to the study,
            others are looked up in PATH. It runs in the study's folder, without a shell.
        pass_env: further variables to pass on; PATH, HOME and the like always are.
        timeout_seconds: longest time for one answer; then the program's process group is killed.
    """

    argv: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    env: dict[str, str] = Field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    timeout_seconds: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    most_output_bytes: int = Field(default=1_000_000, ge=1)  # longest output of one answer
    in_flight: int = Field(default=4, ge=1)  # programs at once


class CommandProvider(ProgramProvider[CommandOptions]):
    """Answers by running a program; ``request.model`` is a name for it.

    It reads ``{"model", "prompt", "messages", "inputs", "params", "candidate", "example"}`` (one of
    ``prompt`` and ``messages`` is null) and writes an object with the fields of ``Answer``, or a
    JSON text. Failures are classified so:

    - ``{"error": "gave-up", "message": ...}``, or another kind of failure: that kind.
    - exit code 75 (try again later), or killed by a signal that is not ours: retried.
    - any other exit code but 0: a mistake in the program; the example has no answer.
    - no JSON, or too much of it: a malformed reply, retried.
    - no answer in time: a time-out, retried; the whole process group is killed.

    A failed answer that does not report its cost is charged all declared bounds.

    Raises:
        ConfigError: a pattern in ``sources`` matches nothing.
    """

    options_type = CommandOptions

    def __init__(self, name: str, options: CommandOptions, base_dir: Path) -> None:
        super().__init__(name, options, base_dir)
        self._variables = environment(options.pass_env, options.env)
        self._hidden = hidden_from(options.pass_env, options.env, base_dir)
        self._slots = asyncio.Semaphore(options.in_flight)

    async def start(self) -> None:
        """Begin with all slots free; programs are started when they are needed."""
        self._slots = asyncio.Semaphore(self.options.in_flight)

    def check(self, model: str) -> None:
        """Check that the program can be executed; raises ConfigError."""
        try:
            find_program(self.options.argv[0], self.base_dir, self._variables)
        except ConfigError as error:
            raise ConfigError(f"{self.name}/{model}: {error}") from None

    def capabilities(self, model: str) -> Capabilities:
        """Return the declared capabilities."""
        return self.options.capabilities(self.options.in_flight)

    def fingerprint(self, model: str) -> str:
        """Return a digest of ``argv`` with its files, the variables given, and ``sources``."""
        options = self.options
        paths = [self.base_dir / part for part in options.argv]
        files = {path for path in paths if path.is_file() and path.is_relative_to(self.base_dir)}
        files.update(matching_files(options.sources, self.base_dir))
        return digest(
            {
                "argv": list(options.argv),
                "env": dict(options.env),
                "files": files_digest(sorted(files), self.base_dir),
                "version": options.version,
            }
        )

    async def generate(self, request: Request) -> Reply:
        """Run the program; raises ProviderError. Cancellation kills it."""
        async with self._slots:
            start = time.monotonic()
            try:
                text = await self._output(_input_line(request))
            except ProviderError as error:
                # Only a program that could not be started surely called no model.
                not_started = error.kind is FailureKind.MODEL_NOT_FOUND
                cost = Spend() if not_started else self.options.bound()
                raise BilledError(error, cost) from error
        return self._reply(text, request, time.monotonic() - start)

    async def _output(self, question: bytes) -> bytes:
        child = await self._start()
        try:
            async with asyncio.timeout(self.options.timeout_seconds):
                output = await child.run_to_end(question, self.options.most_output_bytes)
        except TimeoutError:
            raise failure(
                FailureKind.TIMEOUT,
                f"the program {self.options.argv[0]} did not answer within "
                f"{self.options.timeout_seconds:g} s and was killed; raise `timeout_seconds` if "
                "it is slow",
            ) from None
        finally:
            await child.end()
        if output is None:
            raise failure(
                FailureKind.MALFORMED_REPLY,
                f"the program {self.options.argv[0]} wrote more than "
                f"{self.options.most_output_bytes:,} bytes and was killed; raise "
                "`most_output_bytes` if its answers are that long",
            )
        if child.exit_code:
            raise self._ended(child.exit_code, child.tail())
        return output

    async def _start(self) -> ChildProcess:
        first, *rest = self.options.argv
        try:
            program = find_program(first, self.base_dir, self._variables)
            return await ChildProcess.start(
                [program, *rest],
                folder=self.base_dir,
                variables=self._variables,
                hidden=self._hidden,
            )
        except (OSError, ValueError, ConfigError) as error:
            raise failure(
                FailureKind.MODEL_NOT_FOUND, f"the program {first} cannot be started: {error}"
            ) from error

    def _ended(self, code: int, tail: str) -> ProviderError:
        """Return the error of a program that ended without an answer."""
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        retried = code < 0 or code == _TRY_AGAIN_LATER
        return failure(
            FailureKind.SERVER if retried else FailureKind.INTERNAL,
            f"the program {self.options.argv[0]} {how}" + (f"; it wrote: {tail}" if tail else ""),
        )

    def _reply(self, text: bytes, request: Request, seconds: float) -> Reply:
        try:
            answer = read_answer(json.loads(text), f"the answer of {request.model}")
        except (ValueError, ConfigError) as error:
            note = f"it wrote {text[:_MAX_READ]!r}" if isinstance(error, ValueError) else str(error)
            reason = shown_tail(note.encode(), self._hidden)[:_MAX_SHOWN]
            malformed = failure(
                FailureKind.MALFORMED_REPLY, f"the program {request.model}: no answer: {reason}"
            )
            raise BilledError(malformed, self.options.bound()) from error
        program = f"the program {request.model}"
        return self._settled(answer, program, seconds, self._hidden, Spend(), Usage())


def _input_line(request: Request) -> bytes:
    question = {
        "model": request.model,
        "prompt": request.text,
        "messages": [{"role": m.role, "content": m.content} for m in request.messages] or None,
        "inputs": dict(request.inputs),
        "params": dict(request.params),
        "candidate": request.candidate,
        "example": request.example,
    }
    return json.dumps(question).encode() + b"\n"
