"""A provider for actors: answers with the prompt, and may kill its process or node once."""

from __future__ import annotations

import asyncio
import os
import signal
from decimal import Decimal
from typing import Literal

from pydantic import Field

from bestarm_agent.domain.spend import Usage, nanos
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers import (
    Capabilities,
    FailureKind,
    Provider,
    ProviderOptions,
    Reply,
    Request,
    Spend,
    failure,
)

_USD_PER_SECOND = Decimal("0.001")


class MortalOptions(ProviderOptions):
    """Options of ``mortal``.

    Attributes:
        kills: what dies when an actor has answered ten calls; the file ``killed`` in the study's
            folder says that it has happened.
        variable: a variable of the environment to answer with, instead of the prompt.
    """

    kills: Literal["nothing", "process", "node"] = "nothing"
    variable: str | None = None
    fails: bool = Field(False, description="cannot be started")


class Mortal(Provider[MortalOptions]):
    """Answers in capitals; every call takes .01 worker seconds of .001 dollars."""

    options_type = MortalOptions
    n_answered = 0

    async def start(self) -> None:
        if self.options.fails:
            raise ConfigError("this node has no accelerator")

    def check(self, model: str) -> None:
        if "/" in model:
            raise ConfigError(f"{self.name}/{model}: a model's name has no slash")

    def capabilities(self, model: str) -> Capabilities:
        return Capabilities(
            params=frozenset({"temperature"}), price_source="tests", in_flight=32, queued=True
        )

    def bound(self, request: Request) -> Spend:
        n_tokens = 2 * len(_text(request))
        return Spend(calls=1, tokens=n_tokens, usd_nanos=_price("0.5"), gpu_seconds=0.5)

    async def generate(self, request: Request) -> Reply:
        text = _text(request)
        await asyncio.sleep(0.002)
        if "fail" in text:
            raise failure(FailureKind.REFUSED, "I would rather not")
        if "crash" in text:
            raise ZeroDivisionError("a mistake")
        self.n_answered += 1
        if self.n_answered > 10:
            self._die()
        if self.options.variable is not None:
            text = os.environ.get(self.options.variable, "")
        usage = Usage(input=len(text), output=len(text))
        return Reply(text.upper(), usage=usage, usd_nanos=_price("0.01"), gpu_seconds=0.01)

    def _die(self) -> None:
        if self.options.kills == "nothing":
            return
        try:
            (self.base_dir / "killed").touch(exist_ok=False)
        except FileExistsError:
            return
        if self.options.kills == "node":
            os.kill(os.getppid(), signal.SIGKILL)  # its raylet
        os.kill(os.getpid(), signal.SIGKILL)


def _text(request: Request) -> str:
    return request.text or "".join(message.text for message in request.messages)


def _price(seconds: str) -> int:
    return nanos(Decimal(seconds) * _USD_PER_SECOND)
