"""Candidates that are Python functions: a chain, an agent, or anything else that answers."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pydantic import Field, model_validator

from bestarm_agent.config.study.models_and_prompts import check_model_name
from bestarm_agent.config.user_functions import Program, load_program
from bestarm_agent.domain.digest import digest
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import CandidateError, ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.base import Capabilities, Provider, Send
from bestarm_agent.providers.failures import BilledError, failure
from bestarm_agent.providers.program.answers import Answer, ProgramOptions, read_answer
from bestarm_agent.providers.program.task import (
    Models,
    Task,
    send_directly,
    task_of,
)
from bestarm_agent.providers.program.threads import DaemonThreads

_CLOSE_SECONDS = 5.0


class PythonOptions(ProgramOptions):
    """Options of the ``python`` provider, in addition to ``ProgramOptions``.

    Attributes:
        models: models that the functions may call through ``task.models``, as ``provider/model``.
            Our clients count what failed answers cost. Without any, the function is assumed to call
            models by itself, and a failed answer is charged all declared bounds.
    """

    models: tuple[str, ...] = ()
    threads: int = Field(default=8, ge=1, le=256)  # calls at once of ordinary functions
    in_flight: int = Field(default=64, ge=1)  # calls at once of coroutines
    timeout_seconds: float = Field(default=120.0, gt=0, allow_inf_nan=False)  # for one answer

    @model_validator(mode="after")
    def _check_models(self) -> PythonOptions:
        for name in self.models:
            check_model_name(name)
        if self.models and "max_calls" not in self.model_fields_set:
            raise ValueError("`models` need `max_calls`, the most model calls of one answer")
        return self


class PythonProvider(Provider[PythonOptions]):
    """Answers by calling functions; ``request.model`` is ``module:function``.

    The function is called with a ``Task``. It returns a text, or a mapping or an object with the
    fields of ``Answer``. Failures are classified so:

    - ``CandidateError``: the candidate failed, and the pair has the floor score.
    - ``ProviderError``, of a model that it called: as if the candidate had made the call.
    - no answer in time: a time-out, retried.
    - any other exception: a mistake in the program; the pair is void.

    Coroutines run on the event loop and must not block it. Other functions run in threads; when
    such a call is cancelled or times out, its thread runs on to its end and its result is dropped,
    but it can call no more models.
    """

    options_type = PythonOptions
    calls_models = True

    def __init__(
        self,
        name: str,
        options: PythonOptions,
        base_dir: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name, options, base_dir)
        self._clock = clock
        self._programs: dict[str, Program] = {}
        self._providers: dict[str, Provider] = {}
        self._send: Send = send_directly
        self._threads: DaemonThreads | None = None

    def set_providers(self, lookup: Callable[[str, str], Provider]) -> None:
        """Look up the providers of the declared models; raises ConfigError."""
        for full_name in self.options.models:
            provider, _, model = full_name.partition("/")
            self._providers[full_name] = lookup(provider, model)

    def set_sender(self, send: Send) -> None:
        """Set the function that sends all calls of ``task.models`` from now on."""
        self._send = send

    async def start(self) -> None:
        """Create the threads' limiter."""
        self._threads = DaemonThreads(self.options.threads)

    async def close(self) -> None:
        """Wait some seconds for threads; one that hangs is left behind."""
        threads, self._threads = self._threads, None
        if threads is not None:
            await threads.close(_CLOSE_SECONDS)

    def check(self, model: str) -> None:
        """Import the function, and check the models that it declares; raises ConfigError."""
        self._program(model)
        for full_name in self.options.models:
            if full_name not in self._providers:
                raise ConfigError(
                    f"provider `{self.name}`: the models it declares have no providers; use it in "
                    "a study, or call set_providers()"
                )
            self._providers[full_name].check(full_name.partition("/")[2])

    def capabilities(self, model: str) -> Capabilities:
        """Return the declared capabilities; raises ConfigError if the import fails."""
        is_async = self._program(model).is_async
        inner = (p.capabilities(name.partition("/")[2]) for name, p in self._providers.items())
        in_flight = self.options.in_flight if is_async else self.options.threads
        return self.options.capabilities(in_flight, priced=all(able.priced for able in inner))

    def fingerprint(self, model: str) -> str:
        """Return a digest of the source files, the option ``version``, and the called models."""
        return digest(
            {
                "files": self._program(model).digest,
                "version": self.options.version,
                "models": {
                    name: provider.fingerprint(name.partition("/")[2])
                    for name, provider in self._providers.items()
                },
            }
        )

    def bound(self, request: Request) -> Spend:
        """Return the declared bounds."""
        return self.options.bound()

    async def generate(self, request: Request) -> Reply:
        """Call the function; raises ProviderError, fatal if it exceeded its declared bounds."""
        try:
            program = self._program(request.model)
        except ConfigError as error:
            raise failure(FailureKind.MODEL_NOT_FOUND, str(error)) from None
        start = self._clock()
        async with Models(self._providers, self.options, request, self._send) as models:
            answer = await self._answer(program, task_of(request, models))
        if isinstance(answer, ProviderError):
            failed = _as_candidate_error(answer, program)
            raise BilledError(failed, self._failed_spend(models)) from answer
        return self._reply(answer, models, program, self._clock() - start)

    async def _answer(self, program: Program, task: Task) -> Answer | ProviderError:
        limit = self.options.timeout_seconds
        try:
            async with asyncio.timeout(limit) as timer:
                value = await self._call(program, task)
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
                f"program {program.name} raised {type(error).__name__}{_location(error)}: "
                f"{program.said(error)}",
            )

    async def _call(self, program: Program, task: Task) -> object:
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
        self.options.check(cost, f"program {program.name}")
        error = answer.failed(program.hidden)
        if error is not None:
            raise BilledError(_as_candidate_error(error, program), cost)
        priced = self.options.usd_per_call is not None
        return answer.reply(models.metered, seconds=seconds, priced=priced, hidden=program.hidden)

    def _failed_spend(self, models: Models) -> Spend:
        if not self.options.models:
            return self.options.bound()
        return models.metered.spend

    def _program(self, model: str) -> Program:
        if model not in self._programs:
            self._programs[model] = load_program(model, self.base_dir, self.options.sources)
        return self._programs[model]


def _as_candidate_error(error: ProviderError, program: Program) -> ProviderError:
    """Return the error as the candidate's: fatal for this candidate alone, not for the model."""
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


def _location(error: BaseException) -> str:
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return ""
    return f" ({Path(traceback.tb_frame.f_code.co_filename).name}:{traceback.tb_lineno})"
