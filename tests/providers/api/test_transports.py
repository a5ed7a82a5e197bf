"""The SDKs and the lean transport send the same and read the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.providers.api.openai import OpenAIProvider
from tests.support.api_cases import SENDERS, VENDORS, asked, provider_of, reply
from tests.support.fake_api import FakeApi, FakeModel, in_thread
from tests.support.fake_api.server import Received

SHOWN = ("authorization", "anthropic-version", "content-type", "accept", "x-team")


@pytest.fixture(scope="module")
def api() -> Iterator[FakeApi]:
    with in_thread(FakeApi(lambda _: "[0.25, 1]", models={"good": FakeModel()})) as server:
        yield server


@pytest.mark.parametrize(
    ("vendor", "options"),
    [
        ("openai", {}),
        ("openai", {"api": "responses"}),
        ("openai", {"api": "embeddings"}),
        ("openai", {"text": "completions"}),
        ("anthropic", {}),
        ("anthropic", {"legacy_sampling": True}),
    ],
    ids=["chat", "responses", "embeddings", "completions", "messages", "legacy-messages"],
)
def test_both_transports_send_and_read_the_same(
    api: FakeApi, vendor: str, options: dict[str, Json]
) -> None:
    request = Request("good", text="Grüße 🙂\n")

    def exchange(sender: str) -> tuple[Reply, Received]:
        own: dict[str, Json] = {**options, "headers": {"X-Team": "a"}, "extra_body": {"user": "u"}}
        if vendor == "anthropic":
            own["extra_body"] = {"metadata": {"user_id": "u"}}
        found = reply(provider_of(sender, api, **own), request)
        return replace(found, seconds=0.0, request_id=None), api.received[-1]

    (one, sent), (other, sent_lean) = exchange(vendor), exchange(f"{vendor}-lean")
    assert one == other
    assert (sent.path, sent.body) == (sent_lean.path, sent_lean.body)
    for name in SHOWN:
        assert sent.headers.get(name) == sent_lean.headers.get(name), name


@pytest.mark.parametrize("vendor", VENDORS)
def test_replies_in_the_cache_are_the_same_for_both(api: FakeApi, vendor: str) -> None:
    options: dict[str, Json] = {"price": None}
    one, other = (
        provider_of(vendor, api, transport=transport, **options) for transport in ("sdk", "lean")
    )
    assert one.fingerprint("good") == other.fingerprint("good")


@pytest.mark.parametrize("sender", SENDERS)
def test_the_models_are_listed(api: FakeApi, sender: str) -> None:
    async def main() -> tuple[str, ...]:
        async with provider_of(sender, api) as provider:
            return await provider.list_models()

    assert asyncio.run(main()) == ("good",)


@pytest.mark.parametrize("sender", ["openai", "openai-lean"])
def test_requests_take_the_proxy_that_the_environment_names(
    api: FakeApi, sender: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", api.url)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    provider = provider_of(sender, api, base_url="http://models.invalid/v1")
    assert reply(provider, asked("2+3")).text == "[0.25, 1]"
    assert api.received[-1].headers["host"] == "models.invalid"


@pytest.mark.parametrize("sender", SENDERS)
def test_the_query_of_an_address_stays_behind_the_path(api: FakeApi, sender: str) -> None:
    base = api.openai_url if sender.startswith("openai") else api.url
    provider = provider_of(sender, api, base_url=f"{base}?api-version=2026-11-01")
    assert reply(provider, asked("2+3")).text == "[0.25, 1]"


def test_a_header_of_the_study_replaces_one_of_the_lean_transport(api: FakeApi) -> None:
    key = f"Bearer {api.key}"
    options: dict[str, Json] = {"api_key": "another", "headers": {"AUTHORIZATION": key}}
    assert reply(provider_of("openai-lean", api, **options), asked("2+3")).text == "[0.25, 1]"


def test_the_sdk_is_the_default() -> None:
    assert OpenAIProvider.create("openai", {"key": "none"}, Path()).options.transport == "sdk"
