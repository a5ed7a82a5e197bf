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
    Fault,
    Rates,
    Said,
    in_thread,
    once,
    quality,
    storm,
)
from tests.support.fake_api.calls import Api
from tests.support.fake_api.limits import go_duration
from tests.support.virtual_time import run_virtual

SCHEMA = {"type": "object"}
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
    said = Said("five", cached=2, cache_write=1, reasoning=3)

    async def use(one: AsyncOpenAI, other: AsyncAnthropic) -> None:
        chat = await one.chat.completions.create(model="m", messages=ASKED)
        assert chat.choices[0].message.content == "five"
        assert chat.usage is not None
        assert (chat.usage.prompt_tokens, chat.usage.completion_tokens) == (5, 4)
        assert chat.usage.prompt_tokens_details is not None
        assert chat.usage.prompt_tokens_details.cached_tokens == 2
        text = await one.completions.create(model="m", prompt="2+3")
        assert text.choices[0].text == "five"
        response = await one.responses.create(model="m", input="2+3")
        assert response.output_text == "five"
        assert response.usage is not None
        assert response.usage.output_tokens_details.reasoning_tokens == 3
        message = await other.messages.create(model="m", max_tokens=9, messages=ASKED)
        assert [block.type for block in message.content] == ["thinking", "text"]
        assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (2, 2)

    with_clients(FakeApi(answer=lambda _: said), use)


def test_logprobs_and_several_choices_are_given_where_asked() -> None:
    said = Said("4", alternatives={"4": 0.75, "5": 0.25})

    async def use(one: AsyncOpenAI, _: AsyncAnthropic) -> None:
        chat = await one.chat.completions.create(
            model="m", messages=ASKED, logprobs=True, top_logprobs=2, n=3
        )
        assert len(chat.choices) == 3
        logprobs = chat.choices[0].logprobs
        assert logprobs is not None
        assert logprobs.content is not None
        top = {token.token: token.logprob for token in logprobs.content[0].top_logprobs}
        assert top == {"4": pytest.approx(-0.2876821), "5": pytest.approx(-1.3862944)}

    with_clients(FakeApi(answer=lambda _: said), use)


@pytest.mark.parametrize(
    ("api", "body"),
    [
        (
            Api.CHAT,
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
        ),
        (Api.RESPONSES, {"text": {"format": {"type": "json_schema", "schema": SCHEMA}}}),
        (Api.MESSAGES, {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}),
        (Api.CHAT, {}),
    ],
)
def test_the_schema_asked_for_is_found(api: Api, body: dict[str, Any]) -> None:
    assert Call(api, {"model": "m", **body}).schema == (SCHEMA if body else None)


STATUS_FAULTS = {
    Fault.RATE_LIMITED: openai.RateLimitError,
    Fault.QUOTA: openai.RateLimitError,
    Fault.SERVER_ERROR: openai.InternalServerError,
    Fault.UNAVAILABLE: openai.InternalServerError,
    Fault.OVERLOADED: openai.InternalServerError,
    Fault.BAD_KEY: openai.AuthenticationError,
    Fault.FORBIDDEN: openai.PermissionDeniedError,
    Fault.UNKNOWN_MODEL: openai.NotFoundError,
    Fault.TOO_LONG: openai.BadRequestError,
    Fault.RESET: openai.APIConnectionError,
    Fault.DROPPED: openai.APIConnectionError,
    Fault.SILENT: openai.APITimeoutError,
    Fault.SLOW_DRIP: openai.APITimeoutError,
}


@pytest.mark.parametrize(("fault", "error"), STATUS_FAULTS.items())
def test_faults_look_to_the_sdk_as_the_real_ones_do(
    fault: Fault, error: type[openai.APIError]
) -> None:
    async def main() -> None:
        async with FakeApi(script=once(fault)) as api, openai_client(api, timeout=5.0) as client:
            # a read time-out counts from byte to byte: a drip never meets it
            async with asyncio.timeout(60):
                with pytest.raises(error):
                    await asyncio.wait_for(_ask(client, fault), 50)
            answered = await client.chat.completions.create(model="m", messages=ASKED)
            assert answered.choices[0].message.content == "2+3"
            assert [one.fault for one in api.received] == [fault, None]

    run_virtual(main())


async def _ask(client: AsyncOpenAI, fault: Fault) -> None:
    try:
        async with asyncio.timeout(30 if fault is Fault.SLOW_DRIP else None):
            await client.chat.completions.create(model="m", messages=ASKED)
    except TimeoutError as error:
        raise openai.APITimeoutError(request=None) from error  # type: ignore[arg-type]


def test_the_wrong_key_model_length_or_parameter_is_refused() -> None:
    models = {"m": FakeModel(context=20, max_tokens_fields=frozenset({"max_completion_tokens"}))}

    async def use(one: AsyncOpenAI, other: AsyncAnthropic) -> None:
        with pytest.raises(openai.AuthenticationError, match="wrong"):
            await one.with_options(api_key="wrong").chat.completions.create(
                model="m", messages=ASKED
            )
        with pytest.raises(openai.NotFoundError):
            await one.chat.completions.create(model="n", messages=ASKED)
        with pytest.raises(openai.BadRequestError, match="context length"):
            await one.chat.completions.create(model="m", messages=ASKED, max_completion_tokens=16)
        with pytest.raises(openai.BadRequestError, match="max_tokens"):
            await one.chat.completions.create(model="m", messages=ASKED, max_tokens=5)
        with pytest.raises(anthropic.BadRequestError, match="temperature"):
            await other.messages.create(
                model="m", max_tokens=9, messages=ASKED, extra_body={"temperature": 1}
            )
        old = await other.messages.create(
            model="m",
            max_tokens=9,
            messages=ASKED,
            extra_body={"temperature": 1},
            extra_headers={"anthropic-version": "2023-06-01"},
        )
        assert old.stop_reason == "end_turn"

    with_clients(FakeApi(models=models), use)


def test_rates_are_enforced_counted_and_told() -> None:
    rates = Rates(rpm=60, tpm=6000, burst_seconds=2)

    async def main() -> None:
        async with (
            FakeApi(models={"m": FakeModel(rates=rates)}) as api,
            openai_client(api) as client,
        ):
            create = client.chat.completions.with_raw_response.create
            first = await create(model="m", messages=ASKED)
            assert first.headers["x-ratelimit-limit-requests"] == "60"
            assert first.headers["x-ratelimit-remaining-requests"] == "1"
            assert first.headers["x-ratelimit-reset-requests"] == "1s"
            await create(model="m", messages=ASKED)
            with pytest.raises(openai.RateLimitError) as caught:
                await create(model="m", messages=ASKED)
            assert float(caught.value.response.headers["retry-after"]) == pytest.approx(1.0)
            await asyncio.sleep(1.0)
            await create(model="m", messages=ASKED)
            assert api.violations == {"requests": 1}
            assert api.limiter("m").granted == 3

    run_virtual(main())


def test_a_server_may_hide_its_rate_altogether() -> None:
    async def main() -> None:
        rates = Rates(rpm=60, burst_seconds=1, headers=False, retry_after=False)
        async with (
            FakeApi(models={"m": FakeModel(rates=rates)}) as api,
            openai_client(api) as client,
        ):
            create = client.chat.completions.with_raw_response.create
            first = await create(model="m", messages=ASKED)
            with pytest.raises(openai.RateLimitError) as caught:
                await create(model="m", messages=ASKED)
            for headers in (first.headers, caught.value.response.headers):
                assert not [name for name in headers if "ratelimit" in name or "retry" in name]

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


def test_durations_are_written_as_go_does() -> None:
    assert [go_duration(s) for s in (0.0, 0.006, 1, 59.5, 360)] == [
        "0ms",
        "6ms",
        "1s",
        "59.5s",
        "6m0s",
    ]


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
    command = [
        sys.executable,
        "-m",
        "tests.support.fake_api",
        "good=1.0",
        "--key",
        "k",
        "--rpm",
        "600",
    ]
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
