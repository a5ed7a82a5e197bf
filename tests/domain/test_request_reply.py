from __future__ import annotations

from dataclasses import replace

import pytest

from bestarm_agent.domain.values import Message, Request, digest

REQUEST = Request("m", messages=(Message("user", "q"),), params={"temperature": 0})


def test_keys_of_plain_requests_are_those_of_stored_replies() -> None:
    """A change here makes every stored reply unfindable: it would be bought again."""
    assert REQUEST.as_json() == {
        "model": "m",
        "text": None,
        "messages": [{"role": "user", "content": "q"}],
        "params": {"temperature": 0},
    }


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, response_schema={"type": "object"}),
        replace(REQUEST, top_logprobs=5),
        replace(REQUEST, attempt=1),
        replace(REQUEST, attempt=2),
    ],
)
def test_what_can_change_the_reply_changes_the_key(other: Request) -> None:
    assert digest(other.as_json()) != digest(REQUEST.as_json())


def test_who_asks_does_not_change_the_key() -> None:
    assert replace(REQUEST, candidate="c", example="e").as_json() == REQUEST.as_json()
