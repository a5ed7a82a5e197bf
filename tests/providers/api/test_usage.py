"""Counts of tokens are checked against each other, and no true bill passes a hard cap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.domain.spend import Usage
from bestarm_agent.domain.values import Json, Message, Request
from bestarm_agent.providers.api.anthropic import MESSAGES
from bestarm_agent.providers.api.protocol import Counts, PromptCounts, openai_usage
from tests.support.api_cases import VENDORS, asked, provider_of
from tests.support.fake_api import Call, FakeApi, Said, in_thread
from tests.support.provider_calls import replies
from tests.support.studies import run_all, study_file

CHAT = ("prompt", "completion")


def usage(
    asked: int, answered: int, total: int | None, thought: int = 0, cached: int = 0
) -> Counts:
    counts: dict[str, Json] = {
        "prompt_tokens": asked,
        "completion_tokens": answered,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": thought},
    }
    return openai_usage(counts if total is None else {**counts, "total_tokens": total})


@pytest.mark.parametrize(
    ("given", "output", "prompt", "contradict"),
    [
        (usage(10, 20, 30, 5), 20, 10, False),
        (usage(10, 20, None, 5), 20, 10, False),
        (usage(10120, 1499, 14428, 2809, 128), 4308, 10120, True),  # xAI: thoughts beside them
        (usage(10, 20, None, 50), 70, 10, True),  # the same, without a total
        (usage(10, 20, 95), 85, 10, True),  # Google: only the total has the thoughts
        (usage(10, 20, 5), 20, 10, True),  # a total less than its parts says nothing
        (usage(10, 20, 30, 0, 90), 20, 100, True),  # cached tokens beside those of the prompt
    ],
)
def test_an_answer_has_the_most_tokens_that_its_counts_allow(
    given: Counts, output: int, prompt: int, contradict: bool
) -> None:
    assert given.usage is not None
    assert (given.usage.output, given.usage.input) == (output, prompt)
    assert given.contradict == contradict


TIME: dict[str, Json] = {"prompt_tokens": 1_764_442_800_000_000_000, "completion_tokens": 5}


@pytest.mark.parametrize("broken", [{}, {"prompt_tokens": 5}, {"prompt_tokens": "5"}, TIME])
def test_counts_that_are_none_are_none(broken: dict[str, Json]) -> None:
    assert openai_usage(broken) == Counts()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"prompt_tokens": "10", "completion_tokens": 5.0}, Usage(10, 0, 0, 5, 0)),
        ({"completion_tokens_details": {"reasoning_tokens": 7.0}}, Usage(10, 0, 0, 12, 7)),
        ({"reasoning_tokens": 7}, Usage(10, 0, 0, 12, 7)),  # Perplexity
        ({"input_tokens": 9, "output_tokens": 4}, Usage(10, 0, 0, 5, 0)),  # said in both ways
        ({"completion_tokens_details": {"thinking_tokens": 7}}, Usage(10, 0, 0, 12, 7)),
        ({"cached_tokens": 8}, Usage(10, 8, 0, 5, 0)),  # Moonshot
        ({"cache_creation_input_tokens": 4, "cache_read_input_tokens": 5}, Usage(10, 5, 4, 5, 0)),
        ({"prompt_tokens_details": None, "completion_tokens_details": None}, Usage(10, 0, 0, 5, 0)),
    ],
)
def test_counts_are_read_however_they_are_written(given: dict[str, Json], expected: Usage) -> None:
    counts: dict[str, Json] = {"prompt_tokens": 10, "completion_tokens": 5}
    assert openai_usage({**counts, **given}).usage == expected


def test_chat_completions_may_be_counted_as_responses_are() -> None:
    counts: dict[str, Json] = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    assert openai_usage(counts) == Counts(Usage(10, 0, 0, 5, 0))


def test_a_prompt_that_the_server_made_longer_is_charged_as_counted() -> None:
    """A prompt of the server's own: also later calls are reserved with it."""

    def reshape(call: Call, body: dict[str, Any]) -> dict[str, Any]:
        body["usage"] = {"prompt_tokens": 5000, "completion_tokens": 1, "total_tokens": 5001}
        return body

    with in_thread(FakeApi(answer=lambda call: Said("x"), reshape=reshape, key=None)) as api:
        provider = provider_of("openai", api, key="none")
        before = provider.bound(asked("1+1")).tokens
        found = replies(provider, asked("1+1"))[0]
        assert found.usage.input == 5000
        assert any("overhead_tokens" in notice for notice in found.notices)
        assert provider.bound(asked("1+1")).tokens - before > 4000


def test_anthropics_counts_are_checked_too() -> None:
    counts: dict[str, Json] = {
        "input_tokens": 10,
        "output_tokens": 20,
        "cache_creation_input_tokens": 3,
        "cache_creation": {"ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 5},
        "output_tokens_details": {"thinking_tokens": 50},
    }
    found = MESSAGES.decode({"content": [], "usage": counts}, {}).counts
    assert found == Counts(Usage(19, 0, 9, 70, 50), contradict=True)


def beside(body: dict[str, Any], prompt: str, answer: str) -> None:
    """Count the thoughts beside the answer, as xAI does."""
    counts = body["usage"]
    details = counts[f"{answer}_tokens_details"]
    counts[f"{answer}_tokens"] -= details["reasoning_tokens"]


def untold(body: dict[str, Any], prompt: str, answer: str) -> None:
    """Count them in the total alone, as Google does."""
    beside(body, prompt, answer)
    body["usage"].pop(f"{answer}_tokens_details")


def without_total(body: dict[str, Any], prompt: str, answer: str) -> None:
    beside(body, prompt, answer)
    body["usage"].pop("total_tokens")


def longer(body: dict[str, Any], prompt: str, answer: str) -> None:
    """Put a prompt of the server's own before ours, longer than any template's tokens."""
    body["usage"][f"{prompt}_tokens"] += 400
    body["usage"]["total_tokens"] += 400


def failing(body: dict[str, Any], prompt: str, answer: str) -> None:
    """Bill what is no answer."""
    if "choices" in body:
        body["choices"][0] |= {"finish_reason": "error", "error": {"message": "broken"}}
    else:
        body["status"] = "failed"


@pytest.mark.parametrize("form", ["chat", "responses"])
@pytest.mark.parametrize("odd", [beside, untold, without_total, failing, longer])
def test_the_true_bill_stays_within_a_hard_cap(
    tmp_path: Path, form: str, odd: Callable[[dict[str, Any], str, str], None]
) -> None:
    """Of every way to count; the server knows what it bills."""
    billed: list[int] = []
    names = ("input", "output") if form == "responses" else CHAT

    def reshape(_call: Call, body: dict[str, Any]) -> dict[str, Any]:
        prompt, answer = (body["usage"][f"{name}_tokens"] for name in names)
        prompt += 400 * (odd is longer)
        billed.append(prompt * 1 + answer * 5)  # millionths of a dollar
        if odd is not failing or len(billed) % 3 == 0:
            odd(body, *names)
        return body

    api = FakeApi(answer=lambda call: Said(call.question, reasoning=40), reshape=reshape, key=None)
    with in_thread(api) as server:
        study = {
            "models": ["openai/a", "openai/b"],
            "prompts": [{"chat": [{"role": "user", "content": "{{ q }}"}]}],
            "params": {"max_tokens": 60},
            "dataset": {"path": "rows.jsonl", "target": "answer"},
            "scorer": "numeric",
            "budget": {"usd": 0.005},
            "providers": {
                "openai": {
                    "base_url": server.openai_url,
                    "key": "none",
                    "price": {"input": 1, "output": 5},
                    "api": form,
                }
            },
            "selector": {"name": "uniform", "stop_when_separated": False},
        }
        rows = [{"q": f"{k}", "answer": str(k)} for k in range(60)]
        standing = run_all(study_file(tmp_path, {"rows": rows}, **study))
    assert billed
    true, booked = sum(billed) * 1000, standing.spent.usd_nanos
    assert 0.5 * 5_000_000 < true <= booked <= 5_000_000


def test_a_contradiction_is_told_once_for_a_model_and_a_stated_cost_is_kept() -> None:
    def reshape(_call: Call, body: dict[str, Any]) -> dict[str, Any]:
        beside(body, *CHAT)
        return body

    api = FakeApi(answer=lambda _: Said("x", reasoning=90), reshape=reshape)
    api.more_headers = {"x-litellm-response-cost": "0.000415"}
    with in_thread(api) as server:
        ours = provider_of("openai", server)
        theirs = provider_of("openai", server, cost_header="x-litellm-response-cost")
        for provider in (ours, theirs):
            found = replies(provider, asked("a"), asked("b"))
            told = {notice for one in found for notice in one.notices}
            assert told == {
                "names token counts that contradict each other; the largest reading is charged"
            }
            assert {one.usage.output for one in found} == {91}
            if provider is theirs:
                assert {one.usd_nanos for one in found} == {415_000}


# what a server says that it bills


@pytest.mark.parametrize(
    ("usage", "nanos"),
    [
        (
            {"cost": 0.00014, "is_byok": False, "cost_details": {"upstream_inference_cost": 9}},
            140_000,
        ),
        (
            {"cost": 0.00001, "is_byok": True, "cost_details": {"upstream_inference_cost": 2e-4}},
            210_000,
        ),
        (
            {"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.02}},
            20_000_000,
        ),
        ({"is_byok": True, "cost_details": {"upstream_inference_cost": 2e-4}}, 200_000),
        ({"cost": "0.00014"}, 140_000),
        (
            {"cost": {"input_tokens_cost": 1e-6, "request_cost": 0.006, "total_cost": 0.006034}},
            6_034_000,
        ),
        ({"cost_in_usd_ticks": 37_756_000}, 3_775_600),
        ({"cost_in_usd_ticks": 37_756_000, "cost": 5}, 3_775_600),
        ({"estimated_cost": 0.0000268}, 26_800),
        ({"cost": 1e-12}, 1),
        # none of these is a bill, and the price counts
        ({"cost": 0}, None),
        ({"cost": -1}, None),
        ({"cost": True}, None),
        ({"cost": None}, None),
        ({"cost": "free"}, None),
        ({"cost": {}}, None),
        ({"cost": [0.1]}, None),
        ({"cost": float("nan")}, None),
        ({"cost": 1e300}, None),
        ({"cost": 0.00001, "is_byok": True}, None),
        ({"cost": 0, "is_byok": True}, None),
        ({"cost": "?", "is_byok": True, "cost_details": {"upstream_inference_cost": 2e-4}}, None),
        ({"cost_in_usd_ticks": "many"}, None),
    ],
)
@pytest.mark.parametrize("vendor", VENDORS)
def test_a_bill_in_the_reply_is_charged_in_place_of_the_price(
    vendor: str, usage: dict[str, Any], nanos: int | None
) -> None:
    def reshape(_call: Call, body: dict[str, Any]) -> dict[str, Any]:
        body["usage"] |= usage
        return body

    with (
        in_thread(FakeApi(answer=lambda _: "x")) as plain,
        in_thread(FakeApi(answer=lambda _: "x", reshape=reshape)) as billing,
    ):
        (priced,) = replies(provider_of(vendor, plain), asked("a"))
        (billed,) = replies(provider_of(vendor, billing), asked("a"))
        (unpriced,) = replies(provider_of(vendor, billing, price=None), asked("a"))
    assert billed.usd_nanos == (priced.usd_nanos if nanos is None else nanos)
    assert unpriced.usd_nanos == nanos
    is_far = nanos is not None and not 0.5 <= nanos / (priced.usd_nanos or 1) <= 2
    assert [notice for notice in billed.notices if "`price`" in notice] == is_far * [
        "bills more than twice, or less than half, what its price says; correct `price`"
    ]
    assert not unpriced.notices


@pytest.mark.parametrize("in_message", [True, False])
def test_a_bill_of_a_gateway_stands_beside_the_usage(*, in_message: bool) -> None:
    """As Vercel's: dollars as a text, in the message of a chat, or beside it."""

    def reshape(_call: Call, body: dict[str, Any]) -> dict[str, Any]:
        place = body["choices"][0]["message"] if in_message else body
        place["provider_metadata"] = {"gateway": {"cost": "0.0006615", "marketCost": "1"}}
        return body

    with in_thread(FakeApi(answer=lambda _: "x", reshape=reshape)) as billing:
        (billed,) = replies(provider_of("openai", billing), asked("a"))
    assert billed.usd_nanos == 661_500


@pytest.mark.parametrize("form", ["chat", "responses"])
@pytest.mark.parametrize("where", ["body", "header"])
def test_bills_above_all_prices_stay_within_a_hard_cap(
    tmp_path: Path, form: str, where: str
) -> None:
    """A fee for each request, which no price of tokens knows: later calls are reserved with it."""
    billed: list[int] = []

    def reshape(_call: Call, body: dict[str, Any]) -> dict[str, Any]:
        billed.append(6_000_000)
        if where == "body":
            body["usage"]["cost"] = {"total_cost": 0.006, "request_cost": 0.0059}
        return body

    api = FakeApi(answer=lambda call: call.question, reshape=reshape, key=None)
    if where == "header":
        api.more_headers = {"x-cost": "0.006"}
    with in_thread(api) as server:
        options = {"base_url": server.openai_url, "key": "none", "cost_header": "X-Cost"}
        study = {
            "models": ["openai/a"],
            "prompts": [{"chat": [{"role": "user", "content": "{{ q }}"}]}],
            "params": {"max_tokens": 10},
            "dataset": {"path": "rows.jsonl", "target": "answer"},
            "scorer": "exact",
            "budget": {"usd": 0.05},
            "limits": {"in_flight": 1},
            "providers": {"openai": {**options, "price": {"input": 1, "output": 5}, "api": form}},
            "selector": {"name": "uniform", "stop_when_separated": False},
        }
        rows = [{"q": f"{k}", "answer": f"{k}"} for k in range(30)]
        standing = run_all(study_file(tmp_path, {"rows": rows}, **study))
    assert standing.spent.usd_nanos == sum(billed)
    assert 0.8 * 50_000_000 < sum(billed) <= 50_000_000


# prompts that are cut off without a word, and calls that are texts


def cut(lengths: Mapping[int, int]) -> list[bool]:
    counts = PromptCounts()
    return [counts.shows_cut(Request("m", text="word " * n), m) for n, m in lengths.items()]


def test_prompts_that_are_cut_off_are_seen_by_their_counts() -> None:
    assert cut({4000: 1000}) == [True], "twenty bytes a token"
    assert cut({4000: 4000, 4100: 4100}) == [False, False]
    assert cut({900: 900, 4000: 2048, 4500: 2048, 5000: 2048}) == [False, False, False, True]
    assert cut({2000: 2048, 2001: 2048, 2002: 2048, 2003: 2048}) == [False] * 4, "as long"
    assert cut({2000: 2048, 2300: 2048, 2400: 2040, 2500: 2048, 2501: 2048}) == [False] * 5
    assert cut({10: 1, 20: 1, 30: 1}) == [False] * 3, "short ones tell nothing"


def test_a_server_that_cuts_prompts_off_is_told() -> None:
    def reshape(_call: Call, body: dict[str, Any]) -> dict[str, Any]:
        body["usage"]["prompt_tokens"] = 1024
        body["usage"]["total_tokens"] = 1024 + body["usage"]["completion_tokens"]
        return body

    with in_thread(FakeApi(answer=lambda _: "x", reshape=reshape)) as server:
        (found,) = replies(provider_of("openai", server), asked("word " * 3_000))
    assert any("probably cuts them off without a word" in one for one in found.notices)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>',
        '[TOOL_CALLS][{"name": "weather", "arguments": {}}]',
        '<function=weather>{"city": "Rome"}</function>',
        '{"name": "weather", "parameters": {"city": "Rome"}}',
        "<|python_tag|>weather.call(city='Rome')",
    ],
)
def test_a_call_that_comes_as_text_is_told(text: str) -> None:
    tool: Any = {"name": "weather", "description": "", "parameters": {"type": "object"}}
    with in_thread(
        FakeApi(answer=lambda call: text if "Rome" in call.question else "sunny")
    ) as api:
        requests = [
            Request("m", messages=(Message("user", words),), tools=(tool,))
            for words in ("Rome?", "how is the weather")
        ]
        told, quiet = replies(provider_of("openai", api), *requests)
    assert any("wrote a call of a tool as text" in one for one in told.notices)
    assert not quiet.notices
