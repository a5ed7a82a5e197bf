"""Weigh the verdicts that a judge could have given by the probabilities of their tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping

from bestarm_agent.domain.request_reply import Finish, Reply
from bestarm_agent.judges.models.verdicts import UnreadableError

TOP_LOGPROBS = 20  # the most that OpenAI's API gives


def weighted_worth(reply: Reply, worth: Mapping[str, float]) -> tuple[float, str]:
    """Return the mean worth of the tokens, weighted by their probabilities at the verdict.

    Without log probabilities the written token counts. ``worth`` is in [0, 1], by token without
    white space. Raises UnreadableError if no position of the reply holds one of the tokens.

    Example:
        >>> from bestarm_agent.domain.request_reply import Position, Token
        >>> both = (Token("m", math.log(0.6)), Token("M", math.log(0.2)))
        >>> value, said = weighted_worth(
        ...     Reply("m", logprobs=(Position(both[0], both),)), {"m": 1.0, "M": 0.0}
        ... )
        >>> round(value, 6), said
        (0.75, 'm')
    """
    if reply.finish in (Finish.REFUSAL, Finish.CONTENT_FILTER):
        raise UnreadableError("the judge refused to answer")
    for position in reply.logprobs:
        said = position.chosen.text.strip()
        if said in worth:
            mass = dict.fromkeys(worth, 0.0)
            for token in position.alternatives or (position.chosen,):
                if token.text.strip() in mass:
                    mass[token.text.strip()] += math.exp(token.logprob)
            total = sum(mass.values())
            if total <= 0:
                return worth[said], said
            return sum(worth[token] * share for token, share in mass.items()) / total, said
    said = reply.text.strip(" \t\r\n*_`\"'.")
    if reply.logprobs or said not in worth:
        raise UnreadableError(f"{reply.text[:60]!r} is none of the tokens asked for")
    return worth[said], said
