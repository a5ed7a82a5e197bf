from __future__ import annotations

from dataclasses import replace

import pytest

from bestarm_agent.domain.values import DataUrl, Message, Request, digest, part_of

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


def test_what_a_message_carries_counts_by_its_content_alone() -> None:
    def asked(name: str, digest: str) -> Request:
        photo = DataUrl("data:image/png;base64,AAAA", name=name, digest=digest)
        parts = part_of("text", "What is it?"), part_of("image_url", photo)
        return Request("m", messages=(Message("user", parts),))

    one, moved, other = asked("a.png", "12ab"), asked("b.png", "12ab"), asked("a.png", "34cd")
    assert digest(one.as_json()) == digest(moved.as_json()) != digest(other.as_json())
    assert "base64" not in str(one.as_json())
    assert one.messages[0].text == "What is it?\n[image a.png]"
    assert hash(one.messages[0]) != hash(moved.messages[0])
