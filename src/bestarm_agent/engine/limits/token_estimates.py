"""Estimate the tokens of a call from those before it, to reserve them before it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bestarm_agent.domain.rate_limits import Resource
from bestarm_agent.domain.request_reply import Request
from bestarm_agent.domain.spend import Usage

_MOST_TOKENS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens")
_TOKENS_PER_CHARACTER = 0.3  # of English prose, before anything was seen
_FIRST_OUTPUT = 500.0  # before anything was seen, where the request sets no maximum
_MEMORY = 0.1


@dataclass(slots=True)
class Average:
    """A moving mean: of all values at first, later of about the last ``1 / _MEMORY``.

    Example:
        >>> mean = Average()
        >>> mean.add(2.0); mean.add(4.0)
        >>> mean.value
        3.0
    """

    value: float = 0.0
    n: int = 0

    def add(self, value: float) -> None:
        """Add a value."""
        self.n += 1
        self.value += (value - self.value) * max(1 / self.n, _MEMORY)


@dataclass(slots=True)
class TokenEstimate:
    """The tokens of calls to one model.

    Prompts are measured in characters, since all candidates of a model share its tokenizer; replies
    are averaged by candidate, since a prompt that asks for reasoning gets longer ones.
    """

    reserve_maximum: bool = False  # count a reply with the most tokens that it may have
    _per_character: Average = field(default_factory=Average)
    _output: Average = field(default_factory=Average)
    _output_of: dict[str, Average] = field(default_factory=dict)
    _asked_input: Average = field(default_factory=Average)
    _asked_output: Average = field(default_factory=Average)

    def need(self, request: Request, bound: int) -> dict[Resource, float]:
        """Return the amounts to reserve for one attempt.

        ``bound`` is the most tokens that it can take, prompt included; 0 if unknown.
        """
        prompt = self._prompt(request)
        if bound:
            prompt = min(prompt, float(bound))
        output = self._reply(request, bound - prompt if bound else None)
        self._asked_input.add(prompt)
        self._asked_output.add(output)
        return _amounts(prompt, output)

    def typical(self) -> dict[Resource, float] | None:
        """Return the amounts of an average call; None before the first."""
        if not self._asked_input.n:
            return None
        return _amounts(self._asked_input.value, self._asked_output.value)

    def observe(self, request: Request, usage: Usage) -> None:
        """Learn from an answered call."""
        self._per_character.add(usage.input / max(1, _characters(request)))
        self._output.add(usage.output)
        self._output_of.setdefault(request.candidate, Average()).add(usage.output)

    def used(self, usage: Usage, reserved: Mapping[Resource, float]) -> dict[Resource, float]:
        """Return the amounts that an answered call counts with, given those ``reserved`` for it.

        Tokens read from the provider's cache do not count as input. Where replies count with their
        maximum, none of it is returned.
        """
        used = _amounts(usage.input, usage.output)
        used[Resource.INPUT_TOKENS] = usage.input - usage.cached
        if self.reserve_maximum:
            used = {resource: max(used[resource], reserved.get(resource, 0.0)) for resource in used}
        return used

    def _prompt(self, request: Request) -> float:
        share = self._per_character.value if self._per_character.n else _TOKENS_PER_CHARACTER
        return max(1.0, _characters(request) * share)

    def _reply(self, request: Request, at_most: float | None) -> float:
        asked = next((request.params[p] for p in _MOST_TOKENS if p in request.params), None)
        if isinstance(asked, int | float):
            at_most = float(asked) if at_most is None else min(float(asked), at_most)
        if self.reserve_maximum and at_most is not None:
            return at_most
        seen = self._output_of.get(request.candidate, self._output)
        expected = seen.value if seen.n else _FIRST_OUTPUT
        return expected if at_most is None else min(expected, at_most)


def _amounts(prompt: float, output: float) -> dict[Resource, float]:
    return {
        Resource.REQUESTS: 1.0,
        Resource.TOKENS: prompt + output,
        Resource.INPUT_TOKENS: prompt,
        Resource.OUTPUT_TOKENS: output,
    }


def _characters(request: Request) -> int:
    if request.text is not None:
        return len(request.text)
    return sum(len(message.content) for message in request.messages)
