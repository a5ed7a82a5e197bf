"""Estimates of what a call takes from each limit, and the count of what it took."""

from __future__ import annotations

import math

from bestarm_agent.domain.spend import Resource, Usage
from bestarm_agent.domain.values import Request

_TOKENS_PER_CHARACTER = 0.3  # of English prose, before anything was seen
_FIRST_OUTPUT = 500.0  # before anything was seen, where the bound is no lower
_MEMORY = 0.1
_PER_CHARACTER = "tokens of a prompt by its characters"
SEARCHED = "searched"  # calls, under the rate that nobody states
ONE_REQUEST = {Resource.REQUESTS: 1.0, SEARCHED: 1.0}


class TokenEstimate:
    """The tokens of calls to one model.

    Prompts are measured in characters, since all candidates of a model share its tokenizer; replies
    are averaged by candidate, since a prompt that asks for reasoning gets longer ones.
    """

    def __init__(self) -> None:
        # Means that move: of all values at first, later of about the last ten; with their number.
        self._means: dict[str | None, tuple[float, int]] = {}

    def need(self, request: Request, bound: int) -> dict[str, float]:
        """Return the amounts to reserve for one attempt.

        ``bound`` is the most tokens that it can take, prompt included; 0 if unknown.
        """
        # The prompt first, and the output out of what is left: a bound holds for both together.
        at_most = bound or math.inf
        share = self._mean(_PER_CHARACTER, _TOKENS_PER_CHARACTER)
        prompt = min(max(1.0, sum(map(len, request.texts)) * share), at_most)
        output = self._mean(request.candidate, self._mean(None, _FIRST_OUTPUT))
        return _amounts(prompt, min(output, at_most - prompt))

    def observe(self, request: Request, usage: Usage) -> None:
        """Learn from an answered call."""
        self._add(_PER_CHARACTER, usage.input / max(1, sum(map(len, request.texts))))
        for candidate in (None, request.candidate):
            self._add(candidate, usage.output)

    def _mean(self, key: str | None, default: float) -> float:
        return self._means.get(key, (default, 0))[0]

    def _add(self, key: str | None, value: float) -> None:
        mean, n = self._means.get(key, (0.0, 0))
        self._means[key] = mean + (value - mean) * max(1 / (n + 1), _MEMORY), n + 1


def amounts_used(usage: Usage) -> dict[str, float]:
    """Return what an answered call counts with; tokens read from a cache are no input tokens."""
    return _amounts(usage.input, usage.output) | {Resource.INPUT_TOKENS: usage.input - usage.cached}


def _amounts(prompt: float, output: float) -> dict[str, float]:
    return {
        **ONE_REQUEST,
        Resource.TOKENS: prompt + output,
        Resource.INPUT_TOKENS: prompt,
        Resource.OUTPUT_TOKENS: output,
    }
