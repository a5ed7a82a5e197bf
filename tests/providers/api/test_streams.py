"""Answers that come as streams: the same as whole ones, with the time of their first text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.api.stream import IDLE_SECONDS
from bestarm_agent.providers.failures import failed_spend
from bestarm_agent.testing.virtual_time import VirtualTimeLoop
from tests.support.api_cases import VENDORS, asked, provider_of, reply
from tests.support.fake_api import FakeApi, Fault, Said, in_thread

SAID = {
    "plain": Said("one two\nthree\r\n– four"),
    "cached": Said("one two", cached=3, cache_write=2),
    "thought": Said("one two", reasoning=40),
    "refused": Said("I cannot help.", refused=True),
    "empty": Said(""),
    "long": Said("word " * 2_000),
}
PROTOCOLS: dict[str, tuple[str, dict[str, Json]]] = {
    "chat": ("openai", {}),
    "completions": ("openai", {"text": "completions"}),
    "responses": ("openai", {"api": "responses"}),
    "messages": ("anthropic", {}),
}


@pytest.fixture(scope="module")
def api() -> Iterator[FakeApi]:
    with in_thread(FakeApi(lambda call: SAID[call.question])) as server:
        yield server


def in_virtual_time(
    vendor: str, server: FakeApi, request: Request, seconds: float = 1e6
) -> Reply | ProviderError:
    """The answer of a streaming provider that shares a loop of virtual time with the server."""

    async def main() -> Reply | ProviderError:
        async with server, provider_of(vendor, server, stream=True) as provider:
            try:
                async with asyncio.timeout(seconds):
                    return await provider.generate(request)
            except ProviderError as error:
                return error

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main())


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("said", SAID)
def test_a_streamed_answer_is_the_whole_one(api: FakeApi, protocol: str, said: str) -> None:
    vendor, options = PROTOCOLS[protocol]
    request = Request("good", text=said, params={"max_tokens": 4000})
    if vendor.startswith("openai"):
        request = replace(request, top_logprobs=2)
    whole = reply(provider_of(vendor, api, **options), request)
    streamed = reply(provider_of(vendor, api, **options, stream=True), request)
    assert (streamed.first_token_seconds is None) == (not whole.text)
    assert whole.first_token_seconds is None
    assert {**streamed.sent, **whole.sent} == streamed.sent
    same = {"sent": {}, "seconds": 0.0, "first_token_seconds": None, "request_id": None}
    assert replace(streamed, **same) == replace(whole, **same)  # type: ignore[arg-type]
    assert whole.usd_nanos


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_server_that_knows_no_streams_answers_as_ever(vendor: str) -> None:
    with in_thread(FakeApi(streams=False)) as server:
        found = reply(provider_of(vendor, server, stream=True), asked("go on"))
    assert (found.text, found.first_token_seconds) == ("go on", None)


def test_vectors_are_not_streamed() -> None:
    with in_thread(FakeApi(lambda _call: "[0.5, 1.0]")) as server:
        provider = provider_of("openai", server, stream=True, api="embeddings")
        found = reply(provider, Request("good", text="a text"))
    assert found.text == "[0.5,1.0]"
    assert "stream" not in found.sent


@pytest.mark.parametrize(("vendor", "events_before"), [("openai", 1), ("anthropic", 3)])
def test_the_first_token_is_the_first_text(vendor: str, events_before: int) -> None:
    """However long the model thinks before, beyond what may pass in the middle."""
    server = FakeApi(latency=lambda _call: 2 * IDLE_SECONDS, pace=0.5)
    found = in_virtual_time(vendor, server, asked("one two three four"))
    assert isinstance(found, Reply)
    assert found.first_token_seconds is not None
    assert found.first_token_seconds == pytest.approx(2 * IDLE_SECONDS + 0.5 * events_before)
    assert found.seconds > found.first_token_seconds + 1.5


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_stream_that_stops_in_the_middle_is_ended_and_booked_whole(vendor: str) -> None:
    server, request = FakeApi(script=lambda _call: Fault.STALLED), asked("one two three four")
    found = in_virtual_time(vendor, server, request, IDLE_SECONDS + 5)
    assert isinstance(found, ProviderError)
    assert (found.kind, found.transient) == (FailureKind.TIMEOUT, True)
    assert "sent nothing for 60 s in the middle of an answer" in str(found)
    bound = provider_of(vendor, server, stream=True).bound(request)
    assert failed_spend(found, bound) == bound


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_slow_stream_is_not_ended(vendor: str) -> None:
    server = FakeApi(pace=IDLE_SECONDS - 1)
    found = in_virtual_time(vendor, server, asked("one two three four"))
    assert isinstance(found, Reply)
    assert found.text == "one two three four"


def test_a_cut_stream_names_what_the_server_said() -> None:
    with in_thread(FakeApi(script=lambda _call: Fault.ERROR_IN_STREAM)) as server:
        for vendor in VENDORS:
            with pytest.raises(AssertionError, match="it broke off: Overloaded"):
                reply(provider_of(vendor, server, stream=True), asked("one two three four"))
