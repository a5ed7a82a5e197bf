"""The input of a program: the example, and models whose calls are counted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from bestarm_agent.domain.candidate import Message
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.errors import CandidateError, FailureKind, ProviderError, nearest
from bestarm_agent.providers.base import Provider, Send
from bestarm_agent.providers.failures import failed_spend, failure
from bestarm_agent.providers.program.answers import Metered, ProgramOptions


@dataclass(frozen=True, slots=True)
class Task:
    """One example for a program."""

    prompt: str  # the rendered prompt; the contents of chat messages, one after the other
    messages: tuple[Message, ...]  # the rendered messages; a plain prompt is one of the user
    inputs: Mapping[str, Json]  # the example's fields, without the target
    params: Mapping[str, Json]  # the candidate's parameters
    example: str  # the example's id
    models: Models  # the models that the program declared


def task_of(request: Request, models: Models) -> Task:
    """Return the input of a program for a request."""
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

    Every call is counted. A call that could exceed the answer's declared bounds raises
    ``CandidateError`` instead of being sent; the program has failed unless it catches the error and
    answers. Failed calls raise ``ProviderError`` and are not repeated here: a transient failure
    that leaves the program is repeated with the whole program.

    Used as ``async with Models(...) as models:``. Leaving the block cancels the calls that still
    run, charges their bounds, and refuses further ones.
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
        self._running: set[asyncio.Task[Reply]] = set()
        self._closed = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the models that may be called."""
        return tuple(self._providers)

    @property
    def metered(self) -> Metered:
        """Cost of the calls so far."""
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
            CandidateError: the call could exceed the answer's declared bounds.
            ProviderError: the call failed.
        """
        provider, request = self._request(model, prompt, params)
        bound = provider.bound(request)
        self._reserve(bound, model)
        call = asyncio.create_task(self._metered_call(provider, request, bound))
        self._running.add(call)
        call.add_done_callback(self._running.discard)
        return await call

    def ask_blocking(
        self,
        model: str,
        prompt: str | Sequence[Message | Mapping[str, str]],
        **params: Json,
    ) -> Reply:
        """Call a model, as ``ask``, from a thread; raises RuntimeError on the event loop."""
        if threading.get_ident() == self._thread:
            raise RuntimeError("on the event loop, write `await task.models.ask(...)`")
        call = self.ask(model, prompt, **params)
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._closed = True
        calls = list(self._running)
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
    """Send a request without waiting for a rate limit."""
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
