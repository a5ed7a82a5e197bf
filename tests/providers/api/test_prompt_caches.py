"""What providers' prompt caches keep: where it is marked, and what it costs, by a fake server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from bestarm_agent.domain.values import Json, Message, Request, tool_call
from bestarm_agent.errors import ConfigError
from tests.support.api_cases import VENDORS, provider_of
from tests.support.fake_api import FakeApi, FakeModel, in_thread
from tests.support.provider_calls import replies

SYSTEM, HEAD = "Be exact. " * 500, "Read this first. " * 500  # 1,250 and 2,125 tokens
MARK: Json = {"type": "ephemeral"}


@pytest.fixture(scope="module")
def api() -> Iterator[FakeApi]:
    model = FakeModel(cache_from=1024, context=100_000)
    with in_thread(FakeApi(lambda _call: "5", models={"m": model})) as server:
        yield server


def block(text: str, *, marked: bool = False) -> Json:
    return {"type": "text", "text": text, **({"cache_control": MARK} if marked else {})}


def request_of(*turns: tuple[str, str], prefix: tuple[str, ...]) -> Request:
    messages = tuple(Message(*turn) for turn in turns)
    return Request("m", messages=messages, params={"max_tokens": 8}, prefix=prefix)


S = ("system", SYSTEM)


@pytest.mark.parametrize(
    ("turns", "prefix", "system", "contents"),
    [
        ([S, ("user", "2+3")], (SYSTEM, ""), [block(SYSTEM, marked=True)], ["2+3"]),
        # tokens rather begin than end with white space
        (
            [S, ("user", f"{HEAD}2+3")],
            (SYSTEM, HEAD),
            [block(SYSTEM, marked=True)],
            [[block(HEAD.strip(), marked=True), block(" 2+3")]],
        ),
        # the last beginning alone is marked, besides that of the system's part
        (
            [("user", "2+2"), ("assistant", "4"), ("user", HEAD), ("user", "2+3")],
            ("2+2", "4", HEAD, ""),
            None,
            ["2+2", "4", [block(HEAD, marked=True)], "2+3"],
        ),
        (
            [("system", "a"), ("system", f"{SYSTEM}b"), ("user", "c")],
            ("a", SYSTEM),
            [block(f"a\n\n{SYSTEM.strip()}", marked=True), block(" b")],
            ["c"],
        ),
        # a block of white space would be refused
        ([("user", f"{HEAD}\n\n")], (HEAD,), None, [[block(f"{HEAD}\n\n", marked=True)]]),
        ([S, ("user", " 2+3")], (SYSTEM, " "), [block(SYSTEM, marked=True)], [" 2+3"]),
        ([S, ("user", "2+3")], (), SYSTEM, ["2+3"]),
    ],
)
def test_what_all_examples_begin_with_is_marked_for_anthropic(
    api: FakeApi,
    turns: list[tuple[str, str]],
    prefix: tuple[str, ...],
    system: Json,
    contents: list[Json],
) -> None:
    replies(provider_of("anthropic", api), request_of(*turns, prefix=prefix))
    body = api.received[-1].body
    assert body.get("system") == system
    assert [turn["content"] for turn in body["messages"]] == contents


def test_results_of_tools_in_a_row_are_one_turn_and_move_no_mark(api: FakeApi) -> None:
    calls = (tool_call("add", {"a": 1}, "1"), tool_call("add", {"a": 2}, "2"))
    messages = (
        Message("user", "Add both."),
        Message("assistant", "", calls),
        Message("tool", "3", tool_call_id="1"),
        Message("tool", "4", tool_call_id="2"),
        Message("user", f"{HEAD}2+3"),
    )
    request = Request(
        "m",
        messages=messages,
        params={"max_tokens": 8},
        prefix=("Add both.", "", "3", "4", HEAD),
        tools=({"name": "add", "parameters": {"type": "object"}},),
    )
    replies(provider_of("anthropic", api), request)
    sent = api.received[-1].body["messages"]
    assert len(sent) == 4
    assert sent[-1]["content"] == [block(HEAD.strip(), marked=True), block(" 2+3")]
    assert "cache_control" not in str(sent[:-1])
    # where all begin alike only up to a result, the last text before it is marked
    first = replace(
        request, messages=(Message("user", HEAD), *messages[1:]), prefix=(HEAD, "", "3")
    )
    replies(provider_of("anthropic", api), first)
    assert api.received[-1].body["messages"][0]["content"] == [block(HEAD, marked=True)]


def test_a_plain_prompt_is_marked_too_and_openai_is_sent_no_marks_for_nothing(api: FakeApi) -> None:
    request = Request("m", text=f"{HEAD}2+3", params={"max_tokens": 8}, prefix=(HEAD,))
    replies(provider_of("anthropic", api), request)
    marked = api.received[-1].body["messages"][0]["content"]
    assert marked == [block(HEAD.strip(), marked=True), block(" 2+3")]
    replies(provider_of("openai", api, price={"input": 1, "output": 2}), request)
    assert api.received[-1].body["messages"] == [{"role": "user", "content": f"{HEAD}2+3"}]


@pytest.mark.parametrize("vendor", VENDORS)
def test_what_a_cache_saves_is_billed_and_a_write_stays_below_the_bound(
    api: FakeApi, vendor: str
) -> None:
    api.caches.clear()
    provider = provider_of(vendor, api)
    requests = [request_of(("user", f"{HEAD}2+{i}"), prefix=(HEAD,)) for i in range(2)]
    first, second = replies(provider, *requests)
    kept = first.usage.cache_write if vendor == "anthropic" else second.usage.cached
    assert 1900 < kept <= 2130
    assert (first.usage.cached, second.usage.cached) == (0, kept)
    # $1 for a million tokens, $1.25 where they are written, $.10 where they are read
    saved = (-kept * 250 if vendor == "anthropic" else 0), kept * 900
    for request, reply, less in zip(requests, (first, second), saved, strict=True):
        plain = reply.usage.input * 1000 + reply.usage.output * 5000
        assert reply.usd_nanos == plain - less
        assert (reply.usd_nanos or 0) <= provider.bound(request).usd_nanos
    # the bound of a prompt whose bytes are all tokens, all of them written
    tokens = provider.bound(requests[0]).tokens - 8
    assert provider.bound(requests[0]).usd_nanos == tokens * 1250 + 8 * 5000


CHEAP = {"input": 1, "output": 5, "cached": 0.1}


@pytest.mark.parametrize(
    ("vendor", "options", "found"),
    [
        ("anthropic", {"cache_from": 1024}, 1024),
        ("openai", {"cache_from": 1024}, 1024),
        ("openai", {"cache_from": 1024, "price": CHEAP}, 1024),
        # what a write costs is not stated: a mark could break a bound
        ("anthropic", {"cache_from": 1024, "price": CHEAP}, 0),
        ("openai", {"cache_from": 1024, "price": {"input": 1, "output": 5}}, 0),
        ("openai", {}, 0),
        ("anthropic", {"cache_from": 0}, 0),
        ("anthropic", {"cache_from": 9, "models": {"m": {"cache_from": 0}}}, 0),
    ],
)
def test_a_cache_is_used_where_reading_is_known_to_be_cheap(
    api: FakeApi, vendor: str, options: dict[str, Json], found: int
) -> None:
    able = provider_of(vendor, api, **options).capabilities("m")
    assert able.cache_from == found
    assert able.keeps(1024) == (found > 0)
    assert not able.keeps(1023)


@pytest.mark.parametrize("value", [-1, "long", 1.5])
def test_a_length_that_is_none_is_refused(api: FakeApi, value: Json) -> None:
    with pytest.raises(ConfigError, match="cache_from"):
        provider_of("openai", api, cache_from=value)


def test_what_is_marked_is_no_part_of_the_key() -> None:
    assert request_of(S, prefix=(SYSTEM,)).as_json() == request_of(S, prefix=()).as_json()


def test_where_openai_bills_what_is_cached_the_end_of_the_beginning_is_marked(
    api: FakeApi,
) -> None:
    """Chat completions and responses: parts have types of their own, calls of tools no parts."""
    point = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    rates: dict[str, Json] = {"input": 1, "output": 2, "cached": 0.1, "cache_write": 1.25}
    billed: dict[str, Json] = {"price": rates}
    request = request_of(S, ("user", f"{HEAD}2+3"), prefix=(SYSTEM, HEAD))
    plain = Request("m", text=f"{HEAD}2+3", params={"max_tokens": 8}, prefix=(HEAD,))
    forms = (("chat", "messages", "text"), ("responses", "input", "input_text"))
    for form, field, kind in forms:
        options: dict[str, Json] = {**billed, "api": form}
        for asked in (request, plain):
            replies(provider_of("openai", api, **options), asked)
            *before, last = api.received[-1].body[field]
            assert last["content"] == [
                {"type": kind, "text": HEAD.strip(), **point},
                {"type": kind, "text": " 2+3"},
            ]
            assert [one["content"] for one in before] == ([SYSTEM] if asked is request else [])
    replies(provider_of("openai", api, price={**rates, "cache_write": 1}), request)
    assert "breakpoint" not in str(api.received[-1].body)


def test_a_mark_is_placed_beside_calls_of_tools(api: FakeApi) -> None:
    billed: Json = {"input": 1, "output": 2, "cached": 0.1, "cache_write": 1.25}
    messages = (
        Message("user", HEAD),
        Message("assistant", "", tool_calls=(tool_call("f", {}, "c1"),)),
        Message("tool", "5", tool_call_id="c1"),
        Message("user", "2+3"),
    )
    tools: tuple[dict[str, Json], ...] = ({"name": "f", "parameters": {"type": "object"}},)
    params: dict[str, Json] = {"max_tokens": 8}
    asked = Request("m", messages=messages, params=params, tools=tools, prefix=(HEAD, "", "5", ""))
    for form, field in (("chat", "messages"), ("responses", "input")):
        replies(provider_of("openai", api, price=billed, api=form), asked)
        first, *others = api.received[-1].body[field]
        assert "prompt_cache_breakpoint" in first["content"][0]
        assert "breakpoint" not in str(others)
