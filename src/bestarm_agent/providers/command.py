"""Candidates that are programs of any language: JSON in on stdin, JSON out on stdout."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

from pydantic import Field

from bestarm_agent.config.documents import parse_options
from bestarm_agent.domain.allowance import Allowance
from bestarm_agent.domain.digest import Json, digest
from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import ConfigError, FailureKind, ProviderError
from bestarm_agent.functions import files_digest, matching_files
from bestarm_agent.providers.base import Capabilities
from bestarm_agent.providers.command_calls import Command, OneShot, Workers
from bestarm_agent.providers.command_process import (
    environment,
    find_program,
    hidden_from,
    shown_tail,
)
from bestarm_agent.providers.failures import BilledError, failure
from bestarm_agent.providers.program_answers import Metered, ProgramOptions, read_answer

_MOST_READ, _MOST_SHOWN = 10_000, 100


class CommandOptions(ProgramOptions):
    """Options of the ``command`` provider, besides those of ``ProgramOptions``.

    Attributes:
        argv: the program and its arguments. A program with a slash is a file relative to the
            study, others are looked up in PATH. It runs in the study's folder, without a shell.
        env: variables to set.
        pass_env: names of further variables to pass on, such as keys; PATH, HOME and the like
            always are, everything else is not.
        timeout_seconds: longest time for one answer; then the program and all that it started are
            killed.
        most_output_bytes: longest output of one answer.
        in_flight: programs at once.
        worker: whether a program answers many examples: one line of JSON in, one line out, flushed,
            until stdin ends. Else it is started for every answer.
    """

    argv: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    env: dict[str, str] = Field(default_factory=dict)
    pass_env: tuple[str, ...] = ()
    timeout_seconds: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    most_output_bytes: int = Field(default=1_000_000, ge=1)
    in_flight: int = Field(default=4, ge=1)
    worker: bool = False


class CommandProvider:
    """Answers by running a program; ``request.model`` is what users call it.

    It reads ``{"model", "prompt", "messages", "inputs", "params", "candidate", "example"}`` (one of
    ``prompt`` and ``messages`` is null) and writes an object as ``program_answers.Answer``
    describes, or a JSON text. What goes wrong is judged so:

    - ``{"error": "gave-up", "message": ...}``, or another kind of failure: as it says.
    - exit code 75 (try again later), or killed by a signal that is not ours: tried again.
    - any other exit code but 0: a mistake in the program; the pair is void.
    - no JSON, or too much of it: a malformed reply, tried again.
    - no answer in time: a time-out, tried again; the whole process group is killed.

    A failed answer that does not say what it cost counts with all declared bounds.

    Args:
        name: what users call the provider.
        options: the program, its bounds and its limits.
        base_dir: the study's folder.
        clock: seconds since some fixed moment.

    Raises:
        ConfigError: a pattern in ``sources`` matches nothing.
    """

    def __init__(
        self,
        name: str,
        options: CommandOptions,
        base_dir: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._options = options
        self._base_dir = base_dir
        self._clock = clock
        self._variables = environment(options.pass_env, options.env)
        self._hidden = hidden_from(options.pass_env, options.env, base_dir)
        self._runner: OneShot | Workers | None = None
        self._places = asyncio.Semaphore(options.in_flight)

    async def __aenter__(self) -> Self:
        """Nothing is started before it is needed."""
        command = Command(
            argv=self._options.argv,
            folder=self._base_dir,
            variables=self._variables,
            hidden=self._hidden,
            most_output_bytes=self._options.most_output_bytes,
        )
        self._runner = Workers(command) if self._options.worker else OneShot(command)
        self._places = asyncio.Semaphore(self._options.in_flight)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the programs that wait for more."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.close()

    def check(self, model: str) -> None:
        """Check that the program can be executed; raises ConfigError."""
        try:
            find_program(self._options.argv[0], self._base_dir, self._variables)
        except ConfigError as error:
            raise ConfigError(f"{self.name}/{model}: {error}") from None

    def capabilities(self, model: str) -> Capabilities:
        """What is declared."""
        return self._options.capabilities(self._options.in_flight)

    def fingerprint(self, model: str) -> str:
        """Digest of the arguments, the variables given, and the files.

        Files are those of the study's folder that ``argv`` names, and ``sources``.
        """
        options = self._options
        named = [self._base_dir / part for part in options.argv]
        files = {path for path in named if path.is_file() and path.is_relative_to(self._base_dir)}
        files.update(matching_files(options.sources, self._base_dir))
        return digest(
            {
                "argv": list(options.argv),
                "env": dict(options.env),
                "files": files_digest(sorted(files), self._base_dir),
                "version": options.version,
            }
        )

    def bound(self, request: Request) -> Spend:
        """The bounds that are declared."""
        return self._options.bound()

    def allowances(self, model: str) -> tuple[Allowance, ...]:
        """Nothing: no limits apply to the program itself."""
        return ()

    async def generate(self, request: Request) -> Reply:
        """Run the program, or ask one that runs.

        Raises:
            ProviderError: it could not be started (MODEL_NOT_FOUND), failed, or took more than it
                declared (BAD_REQUEST, fatal for the candidate).
        """
        async with self._places:
            start = self._clock()
            try:
                text = await self._output(_question(request))
            except ProviderError as error:
                never_ran = error.kind is FailureKind.MODEL_NOT_FOUND
                cost = Spend() if never_ran else self._options.bound()
                raise BilledError(error, cost) from error
        return self._reply(text, request, self._clock() - start)

    async def _output(self, question: bytes) -> bytes:
        if self._runner is None:
            raise RuntimeError("use the provider inside `async with provider:`")
        try:
            async with asyncio.timeout(self._options.timeout_seconds):
                return await self._runner.answer(question)
        except TimeoutError:
            raise failure(
                FailureKind.TIMEOUT,
                f"the program {self._options.argv[0]} did not answer within "
                f"{self._options.timeout_seconds:g} s and was killed; raise `timeout_seconds` if "
                "it is slow",
            ) from None

    def _reply(self, text: bytes, request: Request, seconds: float) -> Reply:
        try:
            answer = read_answer(json.loads(text), f"the answer of {request.model}")
        except (ValueError, ConfigError) as error:
            said = (
                f"it wrote {text[:_MOST_READ]!r}" if isinstance(error, ValueError) else str(error)
            )
            reason = shown_tail(said.encode(), self._hidden)[:_MOST_SHOWN]
            malformed = failure(
                FailureKind.MALFORMED_REPLY, f"the program {request.model}: no answer: {reason}"
            )
            raise BilledError(malformed, self._options.bound()) from error
        cost = answer.cost(Metered())
        self._options.check(cost, f"the program {request.model}")
        failed = answer.failed(self._hidden)
        if failed is not None:
            raise BilledError(failed, cost)
        return answer.reply(
            Metered(), seconds=seconds, priced=self._options.usd_per_call is not None
        )


def _question(request: Request) -> bytes:
    """What the program reads: one line."""
    question = {
        "model": request.model,
        "prompt": request.text,
        "messages": [message.as_json() for message in request.messages] or None,
        "inputs": dict(request.inputs),
        "params": dict(request.params),
        "candidate": request.candidate,
        "example": request.example,
    }
    return json.dumps(question).encode() + b"\n"


def create(name: str, options: Mapping[str, Json], base_dir: Path) -> CommandProvider:
    """Build the provider; raises ConfigError if an option is wrong."""
    parsed = parse_options(CommandOptions, options, subject=f"provider `{name}`")
    return CommandProvider(name, parsed, base_dir)
