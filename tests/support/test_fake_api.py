"""The fake server against the real SDKs: what the other tests build on is itself checked."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import anthropic
import openai
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.support.fake_api import (
    Call,
    FakeApi,
    FakeModel,
    Rates,
    Said,
    in_thread,
    quality,
    storm,
)
from tests.support.fake_api.caching import PromptCache
from tests.support.fake_api.calls import Api
from tests.support.virtual_time import run_virtual

NAMES = ("limit", "remaining")
ASKED: list[Any] = [{"role": "user", "content": "2+3"}]


def openai_client(api: FakeApi, *, timeout: float = 30.0) -> AsyncOpenAI:
    return AsyncOpenAI(
        base_url=api.openai_url,
        api_key=api.key,
        max_retries=0,
        timeout=timeout,
        http_client=openai.DefaultAioHttpClient(timeout=timeout),
    )


def anthropic_client(api: FakeApi) -> AsyncAnthropic:
    return AsyncAnthropic(base_url=api.url, api_key=api.key, max_retries=0)


def with_clients(
    api: FakeApi, use: Callable[[AsyncOpenAI, AsyncAnthropic], Coroutine[Any, Any, None]]
) -> None:
    async def main() -> None:
        async with api, openai_client(api) as one, anthropic_client(api) as other:
            await use(one, other)

    asyncio.run(main())


def test_both_sdks_read_answers_and_usage() -> None:
    said = Said("4 5", {"4": 0.75, "5": 0.25}, cached=2, cache_write=1, reasoning=3)

    async def use(one: AsyncOpenAI, other: AsyncAnthropic) -> None:
        chat = await one.chat.completions.create(
            model="m", messages=ASKED, logprobs=True, top_logprobs=2
        )
        assert chat.choices[0].message.content == "4 5"
        assert chat.usage is not None
        assert (chat.usage.prompt_tokens, chat.usage.completion_tokens) == (5, 4)
        assert chat.usage.prompt_tokens_details is not None
        assert chat.usage.prompt_tokens_details.cached_tokens == 2
        logprobs = chat.choices[0].logprobs
        assert logprobs is not None
        assert logprobs.content is not None
        top = {token.token: token.logprob for token in logprobs.content[0].top_logprobs}
        assert top == {"4": pytest.approx(-0.2876821), "5": pytest.approx(-1.3862944)}
        text = await one.completions.create(model="m", prompt="2+3")
        assert text.choices[0].text == "4 5"
        response = await one.responses.create(model="m", input="2+3")
        assert response.output_text == "4 5"
        assert response.usage is not None
        assert response.usage.output_tokens_details.reasoning_tokens == 3
        message = await other.messages.create(model="m", max_tokens=9, messages=ASKED)
        assert [block.type for block in message.content] == ["thinking", "text"]
        assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (2, 2)

    with_clients(FakeApi(answer=lambda _: said), use)


def test_a_parameter_that_a_model_does_not_take_is_refused() -> None:
    models = {"m": FakeModel(max_tokens_fields=frozenset({"max_completion_tokens"}))}

    async def use(one: AsyncOpenAI, other: AsyncAnthropic) -> None:
        with pytest.raises(openai.BadRequestError, match="max_tokens"):
            await one.chat.completions.create(model="m", messages=ASKED, max_tokens=5)
        warm: Any = {"temperature": 1}
        with pytest.raises(anthropic.BadRequestError, match="temperature"):
            await other.messages.create(model="m", max_tokens=9, messages=ASKED, extra_body=warm)
        old = {"anthropic-version": "2023-06-01"}
        await other.messages.create(
            model="m", max_tokens=9, messages=ASKED, extra_body=warm, extra_headers=old
        )

    with_clients(FakeApi(models=models), use)


@pytest.mark.parametrize("told", [True, False])
def test_rates_are_enforced_counted_and_told_unless_they_are_hidden(told: bool) -> None:
    rates = Rates(rpm=60, tpm=6000, burst_seconds=2, headers=told, retry_after=told)

    async def main() -> None:
        async with (
            FakeApi(models={"m": FakeModel(rates=rates)}) as api,
            openai_client(api) as client,
        ):
            create = client.chat.completions.with_raw_response.create
            first = await create(model="m", messages=ASKED)
            await create(model="m", messages=ASKED)
            with pytest.raises(openai.RateLimitError) as caught:
                await create(model="m", messages=ASKED)
            refused = caught.value.response.headers
            if told:
                named = {name: first.headers[f"x-ratelimit-{name}-requests"] for name in NAMES}
                assert named == {"limit": "60", "remaining": "1"}
                assert float(refused["retry-after"]) == pytest.approx(1.0)
            else:
                names = [*first.headers, *refused]
                assert not [name for name in names if "ratelimit" in name or "retry" in name]
            await asyncio.sleep(1.0)
            await create(model="m", messages=ASKED)
            assert api.violations == {"requests": 1}
            assert api.limiter("m").granted == 3

    run_virtual(main())


def test_more_than_the_hidden_capacity_is_turned_away() -> None:
    async def main() -> None:
        model = FakeModel(rates=Rates(capacity=2))
        async with (
            FakeApi(models={"m": model}, latency=lambda _: 1.0) as api,
            openai_client(api) as client,
        ):
            create = client.chat.completions.create
            async with asyncio.TaskGroup() as group:
                for _ in range(2):
                    group.create_task(create(model="m", messages=ASKED))
                await asyncio.sleep(0.5)
                with pytest.raises(openai.RateLimitError) as caught:
                    await create(model="m", messages=ASKED)
            assert "retry-after" not in caught.value.response.headers
            assert api.violations == {"capacity": 1}
            assert api.limiter("m").peak == 2

    run_virtual(main())


def test_a_storm_depends_on_what_is_asked_and_spares_late_attempts() -> None:
    script = storm(0.5, seed=1)
    calls = [Call(Api.CHAT, {"model": "m", "prompt": str(i)}) for i in range(2000)]
    hit = [script(call) for call in calls]
    # 2,000 draws at 1/2: the count is within 5 standard deviations (112) of 1,000
    assert abs(sum(fault is not None for fault in hit) - 1000) < 112
    assert hit == [script(call) for call in calls]
    assert script(Call(Api.CHAT, calls[0].body, attempt=3)) is None


def test_models_are_right_as_often_as_they_should_be() -> None:
    answer = quality({"good": 0.9, "poor": 0.2})
    shares = {}
    for model in ("good", "poor"):
        calls = [Call(Api.CHAT, {"model": model, "prompt": f"{i}+{i}"}) for i in range(1000)]
        shares[model] = sum(answer(call) == str(2 * i) for i, call in enumerate(calls)) / 1000
    # 1,000 draws: 4 standard deviations are at most .051
    assert shares["good"] == pytest.approx(0.9, abs=0.04)
    assert shares["poor"] == pytest.approx(0.2, abs=0.051)


@pytest.mark.slow
def test_connections_made_while_it_ends_are_closed() -> None:
    left: list[BaseException] = []
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("error", ResourceWarning)
        patch.setattr(sys, "unraisablehook", lambda found: left.append(found.exc_value))
        for _ in range(5):
            with in_thread(FakeApi()) as api:
                clients = [socket.create_connection(("127.0.0.1", api.port)) for _ in range(4)]
            for client in clients:
                client.close()
        gc.collect()
    assert left == []


def test_it_runs_as_a_process() -> None:
    command = [sys.executable, "-m", "tests.support.fake_api", "good=1.0", "--key", "k"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()

        async def main() -> str | None:
            async with AsyncOpenAI(base_url=f"{url}/v1", api_key="k") as client:
                chat = await client.chat.completions.create(model="good", messages=ASKED)
                received = await client.get("../fake/received", cast_to=object)
                assert json.dumps(received).count("good") == 1
                return chat.choices[0].message.content

        assert asyncio.run(main()) == "5"
        process.terminate()
        assert process.wait(10) == 0


@pytest.mark.parametrize(
    ("api", "content", "kept"),
    [
        (Api.CHAT, "x" * 4 * 1023, 1024),  # the role and a line break are part of it
        (Api.CHAT, "x" * 4 * 1000, 0),
        (Api.CHAT, "x" * 4 * 1300, 1280),  # 1,024 and two steps of 128
        (Api.MESSAGES, "x" * 4 * 1300, 0),  # nothing is marked
        (Api.MESSAGES, [{"text": "x" * 4 * 1300, "cache_control": {}}, {"text": "y"}], 1301),
        (Api.MESSAGES, [{"text": "x" * 4 * 1000, "cache_control": {}}], 0),
    ],
)
def test_what_a_prompt_cache_keeps_for_five_minutes(api: Api, content: object, kept: int) -> None:
    now = [0.0]
    cache = PromptCache(1024, lambda: now[0])
    call = Call(api, {"model": "m", "messages": [{"role": "user", "content": content}]})
    assert cache.read(call) == 0
    assert cache.write(call) == kept
    now[0] = 299.0
    assert cache.read(call) == kept, "which keeps it for another five minutes"
    now[0] = 598.0
    assert cache.read(call) == kept
    now[0] = 898.0
    assert cache.read(call) == 0
