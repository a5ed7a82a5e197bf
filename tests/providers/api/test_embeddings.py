"""Vectors of prompts, by OpenAI's embeddings API."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from bestarm_agent.domain.candidate import Message
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.request_reply import Request
from bestarm_agent.domain.spend import Usage
from bestarm_agent.errors import ConfigError, FailureKind
from tests.support.api_cases import error, provider_of, reply
from tests.support.fake_api import Call, FakeApi, in_thread

FACTS: dict[str, Json] = {
    "api": "embeddings",
    "default_max_tokens": 1,
    "price": {"input": 20, "output": 0},
}


def vector(call: Call) -> str:
    return "[]" if call.question == "nothing" else json.dumps([0.5, -1, len(call.question)])


@pytest.fixture(scope="module")
def api() -> Iterator[FakeApi]:
    with in_thread(FakeApi(vector)) as server:
        yield server


def test_the_answer_is_the_vector(api: FakeApi) -> None:
    request = Request("vectors", text="hello", params={"dimensions": 3})
    found = reply(provider_of("openai", api, **FACTS), request)
    assert json.loads(found.text) == [0.5, -1, 5]
    assert api.received[-1].path == "/v1/embeddings"
    assert api.received[-1].body == {
        "model": "vectors",
        "input": "hello",
        "encoding_format": "float",
        "dimensions": 3,
    }
    assert found.usage == Usage(input=6)
    assert found.usd_nanos == 6 * 20_000
    assert found.notices == ()


def test_the_bound_holds(api: FakeApi) -> None:
    provider, request = provider_of("openai", api, **FACTS), Request("vectors", text="hello")
    found, bound = reply(provider, request), provider.bound(request)
    assert found.usage.total <= bound.tokens
    assert found.usd_nanos is not None
    assert found.usd_nanos <= bound.usd_nanos


def test_a_response_without_a_vector_is_malformed(api: FakeApi) -> None:
    failed = error(provider_of("openai", api, **FACTS), Request("vectors", text="nothing"))
    assert failed.kind is FailureKind.MALFORMED_REPLY


def test_chat_messages_have_no_vector(api: FakeApi) -> None:
    request = Request("vectors", messages=(Message("user", "hello"),))
    with pytest.raises(ConfigError, match="makes vectors of plain texts"):
        provider_of("openai", api, **FACTS).bound(request)
