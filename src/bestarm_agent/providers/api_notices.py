"""What a response shows that a request was not honoured, and which token counts to believe."""

from __future__ import annotations

import json
from collections.abc import Iterator

from bestarm_agent.domain.exchange import Finish, Request
from bestarm_agent.domain.spend import Usage
from bestarm_agent.providers.api_bounds import MAX_TOKENS
from bestarm_agent.providers.api_reading import Answer
from bestarm_agent.providers.entry import ModelFacts

_LONGEST_OUTPUT = 2_000_000  # longer than any model generates; a larger count is a mistake


def believed(told: Usage | None, bound: Usage, facts: ModelFacts) -> Usage:
    """Token counts to be booked: what was told if it can be, else the upper bound.

    Args:
        told: the response's counts, or None if it gives none.
        bound: more tokens than the prompt has, and the longest answer asked for. A server may
            ignore the latter, so longer answers are believed as far as the model's context.
        facts: of the model.
    """
    if told is None or not _possible(told, bound, facts):
        return bound
    return told


def _possible(told: Usage, bound: Usage, facts: ModelFacts) -> bool:
    longest = facts.context or _LONGEST_OUTPUT
    return told.input <= bound.input and told.output <= max(bound.output, longest)


def notices(request: Request, answer: Answer, bound: Usage, booked: Usage) -> tuple[str, ...]:
    """Say what users should know about one answer; equal remarks are counted over the run."""
    return tuple(_notices(request, answer, bound, booked))


def _notices(request: Request, answer: Answer, bound: Usage, booked: Usage) -> Iterator[str]:
    if answer.usage is None:
        yield "does not say how many tokens it used; the upper bound is booked"
    elif answer.usage != booked:
        yield "names token counts that cannot be; the upper bound is booked"
    if booked.output > bound.output:
        yield "generated more than max_tokens"
    if request.top_logprobs is not None and not answer.logprobs:
        yield "gave no log probabilities although they were asked for"
    if request.response_schema is not None and _ended(answer) and not _is_json(answer.text):
        yield "answered without regard to the JSON schema"
    if answer.finish is Finish.LENGTH and not any(name in request.params for name in MAX_TOKENS):
        yield "was cut off at default_max_tokens; raise it, or set max_tokens"


def _ended(answer: Answer) -> bool:
    return answer.finish is Finish.STOP


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
