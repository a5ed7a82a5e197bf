"""Ready-made functions that decide what models say."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.support.fake_api.calls import Answer, Call, chance

_SUM = re.compile(r"(\d+)\s*\+\s*(\d+)")


def echo(call: Call) -> str:
    """Say what was asked last."""
    return call.question


def add(question: str) -> str:
    """The sum that the last addition of a text comes to; empty if there is none."""
    found = _SUM.findall(question)
    return str(int(found[-1][0]) + int(found[-1][1])) if found else ""


def quality(shares: Mapping[str, float], *, seed: int = 0) -> Answer:
    """Models that are right about a known share of additions.

    Whether a model is right depends on (seed, model, question) alone, so a repeated request gets
    the same answer.

    Args:
        shares: share in [0, 1] of right answers by model.
        seed: draws another world.

    Example:
        >>> from tests.support.fake_api.calls import Api
        >>> body = {"model": "m", "messages": [{"role": "user", "content": "2+3"}]}
        >>> quality({"m": 1.0})(Call(Api.CHAT, body))
        '5'
    """

    def answer(call: Call) -> str:
        right = add(call.question)
        if chance(seed, call.model, call.question) < shares[call.model]:
            return right
        return f"{right}1"

    return answer
