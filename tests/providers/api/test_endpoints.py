"""Calls over several servers: balance, affinity, servers that fail and return, nothing lost."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import NoReturn, ParamSpec

import pytest

from bestarm_agent import Study
from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.load import study_from
from bestarm_agent.domain.events import Event, Told
from bestarm_agent.domain.values import Json
from bestarm_agent.engine.limits.waits import provider_wait
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.options import Options
from bestarm_agent.engine.setup.providers import ProviderSet
from bestarm_agent.errors import ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.api.anthropic import AnthropicProvider
from bestarm_agent.providers.api.endpoints import (
    Endpoint,
    EndpointPool,
    Vendor,
    find_endpoints,
    prompt_prefix,
)
from bestarm_agent.providers.api.openai import OpenAIProvider
from bestarm_agent.providers.api.options import ApiOptions
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.registry import create_provider
from bestarm_agent.store.store import Store
from tests.support.api_cases import PRICE, VENDORS, asked
from tests.support.api_studies import OPENAI_MODELS, write_api_study
from tests.support.fake_api import Call, FakeApi, quality
from tests.support.fake_api.calls import Said, chance
from tests.support.provider_calls import attempt
from tests.support.virtual_time import LoopClock, run_virtual

_P = ParamSpec("_P")
ADDRESSES = tuple(f"http://127.0.0.1:{port}/v1" for port in (1, 2, 3, 4))


def no_client(_endpoint: Endpoint) -> NoReturn:
    raise AssertionError("the pool alone opens nothing")


def pool_of(endpoints: Sequence[str]) -> EndpointPool:
    options = ApiOptions.model_validate({"endpoints": endpoints})
    return EndpointPool(find_endpoints(options, OpenAIProvider.vendor), no_client)


def chosen(pool: EndpointPool, prefix: str = "") -> str:
    with pool.hold(prefix.encode()) as one:
        return one.endpoint.url


def lose(pool: EndpointPool, kind: FailureKind, prefix: str = "") -> str:
    """Let a call fail; return where it went."""
    with pytest.raises(ProviderError), pool.hold(prefix.encode()) as one:
        raise ProviderError("lost", kind=kind, transient=True)
    return one.endpoint.url


def virtual(scene: Callable[_P, Coroutine[None, None, None]]) -> Callable[_P, None]:
    """Run a test inside a loop of virtual time."""
    return wraps(scene)(lambda *args, **kwargs: run_virtual(scene(*args, **kwargs)))


async def hang(pool: EndpointPool) -> None:
    with pool.hold(b"p"):
        await asyncio.sleep(1000)


@virtual
async def test_equal_beginnings_go_to_the_same_endpoint_and_stay_when_another_leaves() -> None:
    prefixes = [f"instruction {i}" for i in range(200)]
    pool = pool_of(ADDRESSES)
    homes = {prefix: chosen(pool, prefix) for prefix in prefixes}
    assert homes == {prefix: chosen(pool, prefix) for prefix in prefixes}
    assert min(Counter(homes.values()).values()) > 200 / 4 / 2
    fewer = pool_of(ADDRESSES[:3])
    moved = {p for p in prefixes if chosen(fewer, p) != homes[p]}
    assert moved == {p for p in prefixes if homes[p] == ADDRESSES[3]}


@pytest.mark.parametrize("n_prefixes", [1, 3, 1000])
@virtual
async def test_no_endpoint_has_many_more_calls_in_flight_than_another(n_prefixes: int) -> None:
    pool = pool_of(ADDRESSES)
    with ExitStack() as calls:
        for i in range(100):
            calls.enter_context(pool.hold(f"{i % n_prefixes}".encode()))
            loads = [one.in_flight for one in pool.statuses]
            assert max(loads) <= min(loads) + 1 + max(2, min(loads) // 4)
        assert sum(loads) == 100
    assert [one.in_flight for one in pool.statuses] == [0] * 4


def test_the_prefix_is_the_model_and_the_beginning_of_the_prompt() -> None:
    long = "x" * 600
    assert prompt_prefix(asked(f"{long}1")) == prompt_prefix(asked(f"{long}2"))
    assert prompt_prefix(asked("1")) != prompt_prefix(asked("2"))
    assert prompt_prefix(asked("1", "a")) != prompt_prefix(asked("1", "b"))


@virtual
async def test_an_endpoint_that_fails_leaves_and_is_tried_after_growing_pauses() -> None:
    pool = pool_of(ADDRESSES[:2])
    lost = lose(pool, FailureKind.UNREACHABLE)
    (other,) = set(ADDRESSES[:2]) - {lost}
    for pause in (2.0, 4.0, 8.0):
        await asyncio.sleep(pause - 0.01)
        assert {chosen(pool, f"{i}") for i in range(9)} == {other}
        await asyncio.sleep(0.02)
        assert lose(pool, FailureKind.UNREACHABLE) == lost, "one call tries it"
    await asyncio.sleep(17)
    with pool.hold(b"") as one:
        assert one.endpoint.url == lost
        assert {chosen(pool, f"{i}") for i in range(9)} == {other}, "and no more than one"
    assert {chosen(pool, f"{i}") for i in range(99)} == {lost, other}, "it is back"


@virtual
async def test_a_prompt_that_is_too_long_says_nothing_about_its_endpoint() -> None:
    pool = pool_of(ADDRESSES[:2])
    assert lose(pool, FailureKind.TOO_LONG, "p") == chosen(pool, "p")


@virtual
async def test_a_rate_limit_rests_its_endpoint_and_pauses_all_where_all_have_met_theirs() -> None:
    pool = pool_of(ADDRESSES[:2])

    def refused(wait: float) -> tuple[str, FailureKind]:
        with pytest.raises(ProviderError) as caught, pool.hold(b"") as one:
            raise failure(FailureKind.RATE_LIMITED, "429", retry_after=wait)
        return one.endpoint.url, caught.value.kind

    first, kind = refused(20.0)
    assert kind is FailureKind.OVERLOADED, "the others go on"
    (other,) = set(ADDRESSES[:2]) - {first}
    await asyncio.sleep(19)
    assert {chosen(pool, f"{i}") for i in range(9)} == {other}
    assert refused(5.0) == (other, FailureKind.RATE_LIMITED)
    await asyncio.sleep(1.1)
    assert chosen(pool) == first


@virtual
async def test_a_call_cut_off_counts_against_its_endpoint_and_one_given_up_does_not() -> None:
    pool = pool_of(ADDRESSES[:2])
    call = asyncio.create_task(hang(pool))
    await asyncio.sleep(9)
    call.cancel()
    await asyncio.wait([call])
    assert [(one.in_flight, one.failure) for one in pool.statuses] == [(0, None)] * 2
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await hang(pool)
    assert [one.failure for one in pool.statuses].count(FailureKind.TIMEOUT) == 1


def test_an_answer_to_a_call_under_way_brings_it_back_unless_it_refuses_connections() -> None:
    async def scene(kind: FailureKind) -> bool:
        pool = pool_of(ADDRESSES[:2])
        with pool.hold(b"p") as one:
            await asyncio.sleep(0.1)
            assert lose(pool, kind, "p") == one.endpoint.url
        return chosen(pool, "p") == one.endpoint.url

    assert run_virtual(scene(FailureKind.SERVER))
    assert not run_virtual(scene(FailureKind.UNREACHABLE))


@virtual
async def test_the_one_that_returns_first_is_asked_if_all_fail() -> None:
    pool = pool_of(ADDRESSES[:2])
    first = lose(pool, FailureKind.SERVER)
    await asyncio.sleep(1)
    second = lose(pool, FailureKind.SERVER)
    assert {first, second} == {*ADDRESSES[:2]}
    assert chosen(pool) == first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endpoints": "endpoints.txt"}, "endpoints"),
        ({"endpoints": []}, "endpoints"),
        ({"endpoints": ["gpu:8000"]}, "endpoints"),
        ({"endpoints": [*ADDRESSES], "base_url": ADDRESSES[0]}, "both `base_url` and `endpoints`"),
        ({"endpoints": [*ADDRESSES], "serve": {"models": {"m": "m"}}}, "both `serve`"),
    ],
)
def test_what_is_no_list_of_addresses_is_refused(
    tmp_path: Path, options: dict[str, Json], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        create_provider("vllm" if "serve" in options else "openai", options, tmp_path)


def test_an_address_overrides_those_of_the_layers_before_and_no_more(tmp_path: Path) -> None:
    models: list[Json] = ["vllm/many", {"model": "vllm/one", "options": {"base_url": ADDRESSES[3]}}]
    config: dict[str, Json] = {
        "models": models,
        "prompts": [{"p": "{{ q }}"}],
        "dataset": "none.jsonl",
        "scorer": "exact",
        "providers": {"vllm": {"endpoints": [*ADDRESSES[:2]]}},
    }
    made = ProviderSet(study_from(config, tmp_path), Catalog())
    many, one = (made.of("vllm", name).options for name in ("many", "one"))
    assert many.base_url is None
    assert (one.base_url, one.endpoints) == (ADDRESSES[3], None)


# Keys and identity.


@pytest.mark.parametrize("vendor", [OpenAIProvider.vendor, AnthropicProvider.vendor])
def test_the_vendors_key_goes_to_no_endpoint_unless_it_is_named(
    vendor: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(vendor.key_variable, "key-5d81c2")
    given = {"endpoints": ["https://one.example/v1", "http://127.0.0.1:1/v1"]}
    options = ApiOptions.model_validate(given)
    assert [one.key for one in find_endpoints(options, vendor)] == [None, "none"]
    named = ApiOptions.model_validate({**given, "key": vendor.key_variable})
    assert {one.key for one in find_endpoints(named, vendor)} == {"key-5d81c2"}


def test_replies_do_not_depend_on_the_endpoint(tmp_path: Path) -> None:
    def fingerprint(**options: Json) -> str:
        return OpenAIProvider.create("openai", options, tmp_path).fingerprint("m")

    one = fingerprint(endpoints=[*ADDRESSES])
    assert one == fingerprint(endpoints=[ADDRESSES[2]]) != fingerprint(base_url=ADDRESSES[0])


# Studies over real sockets, in virtual time.


@dataclass
class Cluster:
    """Servers that give the same answers, of which some die and come back."""

    n: int
    servers: list[FakeApi] = field(default_factory=list)
    then: dict[int, Callable[[], None]] = field(default_factory=dict)  # by number of calls, all
    _n_answered: int = 0

    async def start(self, stack: AsyncExitStack) -> None:
        for _ in range(self.n):
            server = FakeApi(self.say, key=None, latency=lambda c: 0.5 + chance("wait", c.digest))
            self.servers.append(await stack.enter_async_context(server))

    def say(self, call: Call) -> str | Said:
        self._n_answered += 1
        if (act := self.then.get(self._n_answered)) is not None:
            act()
        return _ANSWER(call)

    def received(self) -> list[int]:
        return [len(server.received) for server in self.servers]


_ANSWER = quality(OPENAI_MODELS)
N_EXAMPLES = 40
PAIRS = N_EXAMPLES * len(OPENAI_MODELS)


def run_over(
    cluster: Cluster, folder: Path, *, prompt: str = "{{ a }}+{{ b }}", in_flight: int = 12
) -> tuple[Standing, Sequence[Event]]:
    async def scene() -> tuple[Standing, Sequence[Event]]:
        async with AsyncExitStack() as stack:
            await cluster.start(stack)
            endpoints = [server.openai_url for server in cluster.servers]
            changes: Mapping[str, Json] = {
                "models": [f"openai/{name}" for name in OPENAI_MODELS],
                "prompts": [{"chat": [{"role": "user", "content": prompt}]}],
                "providers": {"openai": {"endpoints": endpoints, "price": PRICE}},
                "limits": {"in_flight": in_flight, "max_attempts": 8},
            }
            path = write_api_study(folder, "", "", n_examples=N_EXAMPLES, changes=changes)
            store = Store.in_memory()
            options = Options(store=store, clock=LoopClock())
            async with Study.open(path, options=options) as study:
                standing = await study.run()
            return standing, await store.events_of("latest")

    return run_virtual(scene())


def test_few_calls_with_the_same_long_beginning_stay_together(tmp_path: Path) -> None:
    cluster = Cluster(4)
    run_over(cluster, tmp_path, prompt=f"{'Add. ' * 200}{{{{ a }}}}+{{{{ b }}}}", in_flight=2)
    homes = {
        (note.body["model"], number)
        for number, server in enumerate(cluster.servers)
        for note in server.received
    }
    assert len(homes) == len(OPENAI_MODELS), "one server for each model"


def test_a_server_that_dies_and_returns_loses_nothing(tmp_path: Path) -> None:
    cluster = Cluster(3)
    marks: list[list[int]] = []
    tasks: list[asyncio.Task[object]] = []

    def spawn(act: Callable[[FakeApi], Coroutine[None, None, object]]) -> None:
        marks.append(cluster.received())
        tasks.append(asyncio.create_task(act(cluster.servers[1])))

    cluster.then = {30: lambda: spawn(FakeApi.die), 70: lambda: spawn(FakeApi.__aenter__)}
    standing, events = run_over(cluster, tmp_path)
    told = [event for event in events if isinstance(event, Told)]
    assert len({event.seq for event in told}) == len(told) == PAIRS
    assert all(event.outcome.score for event in told)
    notes = [note for server in cluster.servers for note in server.received]
    paid = [json.dumps(note.body, sort_keys=True) for note in notes if note.status == 200]
    assert len(set(paid)) == len(paid) == PAIRS, "no answer was paid twice"
    assert all(task.exception() is None for task in tasks)
    unfinished = sum(note.status is None for note in notes)
    assert unfinished > 0, "it died with calls under way"
    assert sum(cluster.received()) == PAIRS + unfinished
    assert cluster.received()[1] > marks[1][1], "it was asked again"
    unreachable = standing.spent.calls - sum(cluster.received())
    assert 0 <= unreachable <= 8, "every request is booked, and few found nobody"


@pytest.mark.parametrize("vendor", VENDORS)
def test_both_vendors_name_the_endpoint_that_fails(vendor: str) -> None:
    async def scene() -> None:
        async with FakeApi(key=None) as api:
            good = api.openai_url if vendor == "openai" else api.url
            options: dict[str, Json] = {"endpoints": ["http://127.0.0.1:1", good]}
            async with create_provider(vendor, options, Path()) as provider:
                assert provider_wait(provider) is None
                asks = [asked(f"{i}", max_tokens=9) for i in range(20)]
                found = [await attempt(provider, ask) for ask in asks]
                wait = provider_wait(provider)
        (failed,) = [one for one in found if isinstance(one, ProviderError)]
        assert failed.kind is FailureKind.UNREACHABLE
        assert wait is not None
        assert wait.reason == "uses 1 of 2 endpoints: http://127.0.0.1:1 fails (unreachable)"

    run_virtual(scene())
