"""Both API providers keep the contract of providers, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bestarm_agent.domain.values import Json, Request
from bestarm_agent.testing.provider_suite import ProviderCase, ProviderSuite
from tests.support.api_cases import asked, provider_of
from tests.support.fake_api import Call, FakeApi, FakeModel, Fault, in_thread, quality

FAILING = {
    "no-answer-at-all": Fault.SERVER_ERROR,
    "too-long": Fault.TOO_LONG,
    "bad": Fault.BAD_REQUEST,
    "limited": Fault.RATE_LIMITED_SECONDS,
    "cut": Fault.DROPPED,
}


def script(call: Call) -> Fault | None:
    return FAILING.get(call.question)


@pytest.fixture(scope="module")
def api() -> Iterator[FakeApi]:
    models = {"good": FakeModel(), "poor": FakeModel()}
    answer = quality({"good": 0.9, "poor": 0.3})
    with in_thread(FakeApi(answer, script, models, latency=lambda _: 0.005)) as server:
        yield server


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("openai", {}),
        ("openai", {"api": "responses"}),
        ("openai", {"completion": True}),
        ("anthropic", {}),
        ("anthropic", {"legacy_sampling": True}),
    ],
    ids=[
        *("chat", "responses", "completions", "messages", "legacy-messages"),
    ],
)
class TestApiProviders(ProviderSuite):
    adapters = ("anthropic", "openai")

    @pytest.fixture
    def case(self, api: FakeApi, name: str, options: dict[str, Json]) -> ProviderCase:
        questions = [asked(f"{i}+{i}", model) for i in range(3) for model in ("good", "poor")]
        return ProviderCase(
            build=lambda: provider_of(name, api, **options),
            requests=[*questions, Request("good", text="7+5"), asked("1+1", max_tokens=3)],
            failing=[*(asked(word) for word in FAILING), asked("1+1", "missing")],
            nonsense=("no such model", "a//b", ""),
        )
