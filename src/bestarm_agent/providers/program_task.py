"""What a program is given: the example, and models whose calls are accounted for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from bestarm_agent.domain.candidate import Message
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.errors import CandidateError, FailureKind, ProviderError, nearest
from bestarm_agent.providers.base import Provider
from bestarm_agent.providers.failures import failed_spend, failure
from bestarm_agent.providers.program_answers import Metered, ProgramOptions

Lookup = Callable[[str, str], Provider]
Send = Callable[[Provider, Request], Awaitable[Reply]]


@runtime_checkable
class CallsModels(Protocol):
    """A provider whose programs call models of other providers."""

    def connect(self, lookup: Lookup) -> None:
        """Take the providers of the declared models, by (provider, model); raises ConfigError."""
        ...

    def send_by(self, send: Send) -> None:
        """Send all model calls this way from now on: within their gates and rate limits."""
        ...


@dataclass(frozen=True, slots=True)
class Task:
    """One example to be answered by a program.

    Attributes:
        prompt: the rendered prompt; the contents of chat messages, one after the other.
        messages: the rendered chat messages; a plain prompt is one message of the user.
        inputs: the example's fields; the target is not among them.
        params: the candidate's parameters.
        example: the example's id.
        models: the models that the program declared.
    """

    prompt: str
    messages: tuple[Message, ...]
    inputs: Mapping[str, Json]
    params: Mapping[str, Json]
    example: str
    models: Models


def task_of(request: Request, models: Models) -> Task:
    """What a program is given for a request."""
    messages = request.messages or (Message("user", request.text or ""),)
    return Task(
        prompt=request.text or "\n\n".join(message.content for message in messages),
        messages=messages,
        inputs=request.inputs,
        params=request.params,
        example=request.example,
        models=models,
    )


class Models:
    """The models that a program may call while it answers one example.

    Every call is counted, and none is sent that could take the answer beyond its declared bounds:
    the call raises ``CandidateError`` then, and the program, which asked for too much, has failed
    unless it catches the error and answers with what it has. Failed calls raise ``ProviderError``.
    They are not repeated here: a transient failure that leaves the program is repeated with the
    whole program.

    Used as ``async with Models(...) as models:``; leaving the block ends the calls that the program
    left under way, with their bounds counted, and lets it make no more.

    Args:
        providers: by ``provider/model``.
        options: the bounds of one answer.
        asked: what the program is to answer.
        send: sends a request to a provider.
    """

    def __init__(
        self,
        providers: Mapping[str, Provider],
        options: ProgramOptions,
        asked: Request,
        send: Send,
    ) -> None:
        self._providers = providers
        self._send = send
        self._options = options
        self._candidate = asked.candidate or asked.model
        self._example = asked.example
        self._metered = Metered()
        self._reserved = Spend()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._under_way: set[asyncio.Task[Reply]] = set()
        self._closed = False

    @property
    def names(self) -> tuple[str, ...]:
        """What may be called."""
        return tuple(self._providers)

    @property
    def metered(self) -> Metered:
        """What the calls so far took."""
        return self._metered

    async def ask(
        self,
        model: str,
        prompt: str | Sequence[Message | Mapping[str, str]],
        **params: Json,
    ) -> Reply:
        """Call a model.

        Args:
            model: ``provider/model``, one of those declared.
            prompt: a plain prompt, or chat messages (``Message``, or ``role`` and ``content``).
            **params: sampling parameters.

        Raises:
            CandidateError: the call could take the answer beyond its declared bounds.
            ProviderError: the call failed.
        """
        provider, request = self._request(model, prompt, params)
        bound = provider.bound(request)
        self._reserve(bound, model)
        call = asyncio.create_task(self._metered_call(provider, request, bound))
        self._under_way.add(call)
        call.add_done_callback(self._under_way.discard)
        return await call

    def ask_blocking(
        self,
        model: str,
        prompt: str | Sequence[Message | Mapping[str, str]],
        **params: Json,
    ) -> Reply:
        """``ask`` for functions that are no coroutines.

        Raises:
            RuntimeError: it was called on the event loop, which it would block for ever.
        """
        if threading.get_ident() == self._thread:
            raise RuntimeError("on the event loop, write `await task.models.ask(...)`")
        call = self.ask(model, prompt, **params)
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    async def __aenter__(self) -> Self:
        """Nothing needs to be started."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End what is under way."""
        self._closed = True
        calls = list(self._under_way)
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls)

    async def _metered_call(self, provider: Provider, request: Request, bound: Spend) -> Reply:
        cost, usage = bound, Usage()
        try:
            reply = await self._send(provider, request)
            cost, usage = _cost_of(reply), reply.usage
        except ProviderError as error:
            cost = failed_spend(error, bound)
            raise
        finally:  # cancelled: it may have been billed, so the bound counts
            self._reserved -= bound
            self._metered = self._metered.plus(cost, usage)
        return reply

    def _request(
        self,
        model: str,
        prompt: str | Sequence[Message | Mapping[str, str]],
        params: Mapping[str, Json],
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
        broken = self._options.broken_bound(self._metered.spend + self._reserved + bound)
        if broken is not None:
            raise CandidateError(
                f"{self._candidate} asks for more than it declared: with another call of {model} "
                f"it could pass {broken}"
            )
        self._reserved += bound


async def send_directly(provider: Provider, request: Request) -> Reply:
    """Send a request without waiting for anything."""
    return await provider.generate(request)


def _cost_of(reply: Reply) -> Spend:
    return Spend(
        calls=reply.calls,
        tokens=reply.usage.total,
        usd_nanos=reply.usd_nanos or 0,
        gpu_seconds=reply.gpu_seconds,
    )


def _message(message: Message | Mapping[str, str]) -> Message:
    if isinstance(message, Message):
        return message
    return Message(message["role"], message["content"])
