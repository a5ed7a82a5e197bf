"""Candidates that are Python functions: a chain, an agent, or anything else that answers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeAlias

from pydantic import Field, model_validator

from bestarm_agent.config.functions import Program, load_program, place_of
from bestarm_agent.config.value_types import check_model_name
from bestarm_agent.domain.redaction import own_error, raised
from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.domain.threads import DaemonThreads
from bestarm_agent.domain.values import Json, Message, Reply, Request, digest
from bestarm_agent.errors import CandidateError, ConfigError, FailureKind, ProviderError, nearest
from bestarm_agent.providers.base import Capabilities, Provider, Send
from bestarm_agent.providers.failures import BilledError, failed_spend, failure
from bestarm_agent.providers.programs import (
    ProgramAnswer,
    ProgramOptions,
    ProgramProvider,
    add_usage,
    as_candidate_error,
    meant_by,
    read_answer,
)

_CLOSE_SECONDS = 5.0

Prompt: TypeAlias = str | Sequence[Message | Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Task:
    """One example for a program."""

    prompt: str  # the rendered prompt; the contents of chat messages, one after the other
    messages: tuple[Message, ...]  # the rendered messages; a plain prompt is one of the user
    inputs: Mapping[str, Json]  # the example's fields, without the target
    params: Mapping[str, Json]  # the candidate's parameters
    example: str  # the example's id
    models: Models  # the models that the program declared


class Models:
    """The models that a program may call while it answers one example.

    Every call is counted. A call that could exceed the answer's declared bounds raises
    ``CandidateError`` instead of being sent; the program has failed unless it catches the error and
    answers. Failed calls raise ``ProviderError`` and are not repeated here: a transient failure
    that leaves the program is repeated with the whole program.

    Used as ``async with Models(...) as models:``. Leaving the block cancels the calls that still
    run, charges their bounds, and refuses further ones.
    """

    def __init__(
        self, providers: Mapping[str, Provider], options: ProgramOptions, asked: Request, send: Send
    ) -> None:
        self._providers = providers
        self._send = send
        self._options = options
        self._candidate = asked.candidate or asked.model
        self._example = asked.example
        self.spend = Spend()  # of all calls so far
        self.usage = Usage()  # of those that were answered
        self._reserved = Spend()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._running: set[asyncio.Task[Reply]] = set()
        self._closed = False

    async def ask(self, model: str, prompt: Prompt, **params: Json) -> Reply:
        """Call a model.

        Args:
            model: ``provider/model``, one of those declared.
            prompt: a plain prompt, or chat messages (``Message``, or ``role`` and ``content``).
            **params: sampling parameters.

        Raises:
            CandidateError: the call could exceed the answer's declared bounds.
            ProviderError: the call failed.
        """
        provider, request = self._request(model, prompt, params)
        bound = provider.bound(request)
        # Reserved before the first await: calls that a program makes at the same time see each
        # other's bounds, and together cannot pass what was declared.
        self._reserve(bound, model)
        call = asyncio.create_task(self._call(provider, request, bound))
        self._running.add(call)
        call.add_done_callback(self._running.discard)
        return await call

    def ask_blocking(self, model: str, prompt: Prompt, **params: Json) -> Reply:
        """Call a model, as ``ask``, from a thread; raises RuntimeError on the event loop."""
        if threading.get_ident() == self._thread:
            raise RuntimeError("on the event loop, write `await task.models.ask(...)`")
        call = self.ask(model, prompt, **params)
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        # Closed first: a program that catches the cancellation of a call, or runs in a thread,
        # could otherwise start another one while these are awaited.
        self._closed = True
        calls = list(self._running)
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls)

    async def _call(self, provider: Provider, request: Request, bound: Spend) -> Reply:
        cost = bound  # where it is cancelled, too: it may have been billed
        try:
            reply = await self._send(provider, request)
        except ProviderError as error:
            cost = failed_spend(error, bound)
            raise
        else:
            usage, usd_nanos = reply.usage, reply.usd_nanos or 0
            cost = Spend(0, reply.calls, usage.total, usd_nanos, reply.gpu_seconds)
            self.usage = add_usage(self.usage, usage)
        finally:
            # Both at once, with no await between: the sum of what was spent and what is reserved
            # never falls short.
            self._reserved -= bound
            self.spend += cost
        return reply

    def _request(
        self, model: str, prompt: Prompt, params: Mapping[str, Json]
    ) -> tuple[Provider, Request]:
        if model not in self._providers:
            raise failure(
                FailureKind.BAD_REQUEST,
                f"{self._candidate} calls the model {model}, which it did not declare; add it to "
                f"the provider's option `models`: {nearest(model, self._providers)}",
            )
        provider, name = self._providers[model], model.partition("/")[2]
        unknown = params.keys() - provider.capabilities(name).params
        if unknown:
            raise failure(
                FailureKind.BAD_REQUEST,
                f"{model} does not honour {', '.join(sorted(unknown))}, which {self._candidate} "
                "sends; leave it out",
            )
        return provider, Request(
            model=name,
            text=prompt if isinstance(prompt, str) else None,
            messages=() if isinstance(prompt, str) else tuple(map(_message, prompt)),
            params=params,
            candidate=self._candidate,
            example=self._example,
        )

    def _reserve(self, bound: Spend, model: str) -> None:
        if self._closed:
            raise CandidateError(f"{self._candidate} calls {model} after its answer was due")
        broken = self._options.broken_bound(self.spend + self._reserved + bound)
        if broken is not None:
            raise CandidateError(
                f"{self._candidate} asks for more than it declared: with another call of {model} "
                f"it could pass {broken}"
            )
        self._reserved += bound


def _message(message: Message | Mapping[str, str]) -> Message:
    if isinstance(message, Message):
        return message
    return Message(message["role"], message["content"])


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


class PythonProvider(ProgramProvider[PythonOptions]):
    """Answers by calling functions; ``request.model`` is ``module:function``.

    The function is called with a ``Task``. It returns a text, or a mapping or an object with the
    fields of ``ProgramAnswer``. Failures are classified so:

    - ``CandidateError``: the candidate failed, and its answer has the floor score.
    - ``ProviderError``, of a model that it called: as if the candidate had made the call.
    - no answer in time: a time-out, retried.
    - any other exception: a mistake in the program; the example has no answer.

    Coroutines run on the event loop and must not block it. Other functions run in threads; when
    such a call is cancelled or times out, its thread runs on to its end and its result is dropped,
    but it can call no more models.
    """

    options_type = PythonOptions
    calls_models = True

    def __init__(self, name: str, options: PythonOptions, base_dir: Path) -> None:
        super().__init__(name, options, base_dir)
        self._programs: dict[str, Program] = {}
        self._providers: dict[str, Provider] = {}
        self._send: Send = lambda provider, request: provider.generate(request)
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
        return self.options.capabilities(in_flight, priced=all(called.priced for called in inner))

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

    async def generate(self, request: Request) -> Reply:
        """Call the function; raises ProviderError, fatal if it exceeded its declared bounds."""
        try:
            program = self._program(request.model)
        except ConfigError as error:
            raise failure(FailureKind.MODEL_NOT_FOUND, str(error)) from None
        start = time.monotonic()
        messages = request.messages or (Message("user", request.text or ""),)
        prompt = "\n\n".join(request.texts)
        async with Models(self._providers, self.options, request, self._send) as models:
            task = Task(prompt, messages, request.inputs, request.params, request.example, models)
            answer = await self._answer(program, task)
        label, hidden = f"program {program.name}", program.hidden
        if isinstance(answer, ProviderError):
            cost = models.spend if self.options.models else self.options.bound()
            raise BilledError(as_candidate_error(answer, label, hidden), cost) from answer
        seconds = time.monotonic() - start
        return self._settled(answer, label, seconds, hidden, models.spend, models.usage)

    async def _answer(self, program: Program, task: Task) -> ProgramAnswer | ProviderError:
        limit = self.options.timeout_seconds
        try:
            async with asyncio.timeout(limit) as timer:
                value = await self._call(program, task)
            return read_answer(value, f"the answer of {program.name}")
        except (Exception, SystemExit) as caught:
            error, name = own_error(caught), f"program {program.name}"
            way_out = "raise the option `timeout_seconds` if it is slow"
            late = f"{name} did not answer within {limit:g} s; {way_out}" if timer.expired() else ""
            said = raised(name, error, program.hidden, place_of(error, program, " ({}:{})"))
            return meant_by(error, program, late) or failure(FailureKind.INTERNAL, said)

    async def _call(self, program: Program, task: Task) -> object:
        if self._threads is None:
            raise RuntimeError("use the provider inside `async with provider:`")
        return await program.called(self._threads, task)

    def _program(self, model: str) -> Program:
        if model not in self._programs:
            self._programs[model] = load_program(model, self.base_dir, self.options.sources)
        return self._programs[model]
