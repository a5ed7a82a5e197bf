"""Requests of the SDKs' clients: proxies, queries, lists of models."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.support.api_cases import VENDORS, asked, provider_of, reply
from tests.support.fake_api import FakeApi, FakeModel, in_thread


@pytest.fixture(scope="module")
def api() -> Iterator[FakeApi]:
    with in_thread(FakeApi(lambda _: "[0.25, 1]", models={"good": FakeModel()})) as server:
        yield server


@pytest.mark.parametrize("vendor", VENDORS)
def test_the_models_are_listed(api: FakeApi, vendor: str) -> None:
    async def main() -> tuple[str, ...]:
        async with provider_of(vendor, api) as provider:
            return await provider.list_models()

    assert asyncio.run(main()) == ("good",)


@pytest.mark.parametrize("vendor", VENDORS)
def test_requests_take_the_proxy_that_the_environment_names(
    api: FakeApi, vendor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", api.url)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    base = f"http://models.invalid{'/v1' if vendor == 'openai' else ''}"
    provider = provider_of(vendor, api, base_url=base)
    assert reply(provider, asked("2+3")).text == "[0.25, 1]"
    assert api.received[-1].headers["host"] == "models.invalid"


@pytest.mark.parametrize("vendor", VENDORS)
def test_the_query_of_an_address_stays_behind_the_path(api: FakeApi, vendor: str) -> None:
    base = api.openai_url if vendor == "openai" else api.url
    provider = provider_of(vendor, api, base_url=f"{base}?api-version=2026-11-01")
    assert reply(provider, asked("2+3")).text == "[0.25, 1]"
