"""A provider: adds the numbers in the prompt; the model's name is by how much it is wrong."""

from __future__ import annotations

import asyncio
import re

from pydantic import Field

from bestarm_agent import ConfigError
from bestarm_agent.providers import (
    FailureKind,
    Provider,
    ProviderOptions,
    Reply,
    Request,
    failure,
)


class CalculatorOptions(ProviderOptions):
    """Options of ``calculator``.

    Attributes:
        seconds: how long an answer takes.
    """

    seconds: float = Field(0.0, ge=0, le=60)


class Calculator(Provider[CalculatorOptions]):
    """Answers ``19+27`` with 46, as ``calculator/0``; ``calculator/1`` says 47."""

    options_type = CalculatorOptions

    def check(self, model: str) -> None:
        """Check that the model's name is a whole number; raises ConfigError."""
        if not re.fullmatch(r"-?\d+", model):
            raise ConfigError(f"{self.name}/{model}: a model is a whole number, such as 0")

    async def generate(self, request: Request) -> Reply:
        """Add all numbers of the prompt; raises ProviderError if there are none."""
        await asyncio.sleep(self.options.seconds)
        text = request.text or "".join(message.text for message in request.messages)
        numbers = [int(number) for number in re.findall(r"\d+", text)]
        if not numbers:
            raise failure(FailureKind.BAD_REQUEST, "there is no number in the prompt")
        return Reply(str(sum(numbers) + int(request.model)))
