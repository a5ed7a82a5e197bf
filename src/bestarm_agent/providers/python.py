"""Candidates that are Python functions: a whole chain, an agent, or anything else that answers."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import Field, model_validator

from bestarm_agent.config.documents import parse_options
from bestarm_agent.config.entries import check_model_name
from bestarm_agent.domain.allowance import Allowance
from bestarm_agent.domain.digest import Json, digest
from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import CandidateError, ConfigError, FailureKind, ProviderError
from bestarm_agent.functions import Program, load_program
from bestarm_agent.providers.base import Capabilities, Provider
from bestarm_agent.providers.failures import BilledError, failure
from bestarm_agent.providers.program_answers import Answer, ProgramOptions, read_answer
from bestarm_agent.providers.program_task import (
    Lookup,
    Models,
    Send,
    Task,
    send_directly,
    task_of,
)
from bestarm_agent.providers.program_threads import DaemonThreads

_BLOCKED_ON_LEAVING_SECONDS = 5.0


class PythonOptions(ProgramOptions):
    """Options of the ``python`` provider, besides those of ``ProgramOptions``.

    Attributes:
        models: models that the functions may call through ``task.models``, as ``provider/model``.
            What is given here goes through our clients, and what failed answers cost is what
            these counted; without any, the function is taken to call models by itself, and a failed
            answer counts with all its declared bounds.
        threads: calls under way at once of functions that are no coroutines.
        in_flight: calls under way at once of coroutines.
        timeout_seconds: longest time for one answer.
    """

    models: tuple[str, ...] = ()
    threads: int = Field(default=8, ge=1, le=256)
    in_flight: int = Field(default=64, ge=1)
    timeout_seconds: float = Field(default=120.0, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _check_models(self) -> PythonOptions:
        for name in self.models:
            check_model_name(name)
        if self.models and "max_calls" not in self.model_fields_set:
            raise ValueError("`models` need `max_calls`, the most model calls of one answer")
        return self


class PythonProvider:
    """Answers by calling functions; ``request.model`` is ``module:function``.

    The function is called with a ``Task``. It returns a text, or a mapping or an object as
    ``program_answers.Answer`` describes. What it raises is judged so:

    - ``CandidateError``: it failed by its own doing, and the pair has the floor score.
    - ``ProviderError``, of a model that it called: as if the call had been the candidate's.
    - nothing in time: a time-out, tried again.
    - anything else: a mistake in the program, which says nothing about quality; the pair is void.

    Coroutines run on the event loop and must not block it. Other functions run in threads; when
    such a call is cancelled or runs out of time, its thread runs on to its end and its result is
    dropped, but it can call no more models.

    Args:
        name: what users call the provider.
        options: bounds, models, and how many at once.
        base_dir: the study's folder, where modules are looked up first.
        clock: seconds since some fixed moment.
    """

    def __init__(
        self,
        name: str,
        options: PythonOptions,
        base_dir: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._options = options
        self._base_dir = base_dir
        self._clock = clock
        self._programs: dict[str, Program] = {}
        self._providers: dict[str, Provider] = {}
        self._send: Send = send_directly
        self._threads: DaemonThreads | None = None

    def connect(self, lookup: Lookup) -> None:
        """Take the providers of the declared models; raises ConfigError."""
        for full_name in self._options.models:
            provider, _, model = full_name.partition("/")
            self._providers[full_name] = lookup(provider, model)

    def send_by(self, send: Send) -> None:
        """Send all calls of ``task.models`` this way from now on."""
        self._send = send

    async def __aenter__(self) -> Self:
        """Make room for threads."""
        self._threads = DaemonThreads(self._options.threads)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Wait for threads, but not for ever: one that hangs is left behind."""
        threads, self._threads = self._threads, None
        if threads is not None:
            await threads.close(_BLOCKED_ON_LEAVING_SECONDS)

    def check(self, model: str) -> None:
        """Import the function, and check the models that it declares; raises ConfigError."""
        self._program(model)
        for full_name in self._options.models:
            if full_name not in self._providers:
                raise ConfigError(
                    f"provider `{self.name}`: the models it declares are not connected; use it in "
                    "a study, or call connect()"
                )
            self._providers[full_name].check(full_name.partition("/")[2])

    def capabilities(self, model: str) -> Capabilities:
        """What is declared; raises ConfigError if the function cannot be imported."""
        is_async = self._program(model).is_async
        inner = (p.capabilities(name.partition("/")[2]) for name, p in self._providers.items())
        in_flight = self._options.in_flight if is_async else self._options.threads
        return self._options.capabilities(in_flight, priced=all(able.priced for able in inner))

    def fingerprint(self, model: str) -> str:
        """Digest of the source files, the option ``version``, and the models that are called."""
        return digest(
            {
                "files": self._program(model).digest,
                "version": self._options.version,
                "models": {
                    name: provider.fingerprint(name.partition("/")[2])
                    for name, provider in self._providers.items()
                },
            }
        )

    def bound(self, request: Request) -> Spend:
        """The bounds that are declared."""
        return self._options.bound()

    def allowances(self, model: str) -> tuple[Allowance, ...]:
        """Nothing: no limits apply to the function itself."""
        return ()

    async def generate(self, request: Request) -> Reply:
        """Call the function.

        Raises:
            ProviderError: it raised an error, returned what is no answer, or took more than it
                declared (BAD_REQUEST, fatal for the candidate: its budget could not be kept).
        """
        try:
            program = self._program(request.model)
        except ConfigError as error:
            raise failure(FailureKind.MODEL_NOT_FOUND, str(error)) from None
        start = self._clock()
        async with Models(self._providers, self._options, request, self._send) as models:
            answer = await self._answer(program, task_of(request, models))
        if isinstance(answer, ProviderError):
            raise BilledError(_own(answer, program), self._failed_spend(models)) from answer
        return self._reply(answer, models, program, self._clock() - start)

    async def _answer(self, program: Program, task: Task) -> Answer | ProviderError:
        limit = self._options.timeout_seconds
        try:
            async with asyncio.timeout(limit) as timer:
                value = await self._called(program, task)
            return read_answer(value, f"the answer of {program.name}")
        except ProviderError as error:
            return error
        except CandidateError as error:
            said = program.said(error)
            return failure(FailureKind.GAVE_UP, said or f"{program.name} gave up")
        except ConfigError as error:
            return failure(FailureKind.INTERNAL, program.said(error))
        except (Exception, SystemExit) as error:
            if isinstance(error, TimeoutError) and timer.expired():
                return failure(
                    FailureKind.TIMEOUT,
                    f"program {program.name} did not answer within {limit:g} s; raise the option "
                    "`timeout_seconds` if it is slow",
                )
            return failure(
                FailureKind.INTERNAL,
                f"program {program.name} raised {type(error).__name__}{_place(error)}: "
                f"{program.said(error)}",
            )

    async def _called(self, program: Program, task: Task) -> object:
        if program.is_async:
            return await program.function(task)
        value = await self._in_thread(partial(program.function, task), program)
        return await value if inspect.isawaitable(value) else value

    async def _in_thread(self, work: Callable[[], object], program: Program) -> object:
        if self._threads is None:
            raise RuntimeError("use the provider inside `async with provider:`")
        return await self._threads.run(work, f"{self.name} {program.name}")

    def _reply(self, answer: Answer, models: Models, program: Program, seconds: float) -> Reply:
        cost = answer.cost(models.metered)
        self._options.check(cost, f"program {program.name}")
        error = answer.failed(program.hidden)
        if error is not None:
            raise BilledError(_own(error, program), cost)
        priced = self._options.usd_per_call is not None
        return answer.reply(models.metered, seconds=seconds, priced=priced)

    def _failed_spend(self, models: Models) -> Spend:
        if not self._options.models:
            return self._options.bound()
        return models.metered.spend

    def _program(self, model: str) -> Program:
        if model not in self._programs:
            self._programs[model] = load_program(model, self._base_dir, self._options.sources)
        return self._programs[model]


def _own(error: ProviderError, program: Program) -> ProviderError:
    """An error as the candidate's: what is fatal for a model it calls is so for this one alone."""
    said = program.said(error)
    if error.fatal:
        return failure(FailureKind.MODEL_NOT_FOUND, f"program {program.name}: {said}")
    return ProviderError(
        said,
        kind=error.kind,
        blame=error.blame,
        transient=error.transient,
        retry_after=error.retry_after,
    )


def _place(error: BaseException) -> str:
    """File and line where an exception was raised; the bare name, since paths are nobody's."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return ""
    return f" ({Path(traceback.tb_frame.f_code.co_filename).name}:{traceback.tb_lineno})"


def create(name: str, options: Mapping[str, Json], base_dir: Path) -> PythonProvider:
    """Build the provider; raises ConfigError if an option is wrong."""
    parsed = parse_options(PythonOptions, options, subject=f"provider `{name}`")
    return PythonProvider(name, parsed, base_dir)
