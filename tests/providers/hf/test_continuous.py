"""Continuous batching, on processors: the contract, and the same greedy replies."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from bestarm_agent.domain.candidate import Message
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.request_reply import Finish, Reply, Request
from bestarm_agent.errors import ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.hf.continuous_engine import ContinuousEngine
from bestarm_agent.providers.hf.continuous_worker import ContinuousWorker
from bestarm_agent.providers.hf.device_workers import SpreadModel
from bestarm_agent.providers.hf.loading import find_device
from bestarm_agent.providers.hf.options import HfOptions, PageSettings
from bestarm_agent.providers.hf.provider import HfProvider
from bestarm_agent.testing.provider_suite import ProviderCase, ProviderSuite, answer_all

GREEDY: Mapping[str, Json] = {"temperature": 0, "max_tokens": 8}
OPTIONS: Mapping[str, Json] = {
    "batching": "continuous",
    "device": "cpu",
    "threads": 1,
    "page_size": 16,
    "pages": 64,
    "max_batch_tokens": 256,
}


def plain(model: str, text: str, **params: Json) -> Request:
    return Request(model=model, text=text, params={**GREEDY, **params})


def provider_of(base: Path, **options: Json) -> HfProvider:
    return HfProvider.create("hf", {**OPTIONS, **options}, base)


def answer(base: Path, *requests: Request, **options: Json) -> list[Reply]:
    async def main() -> Sequence[Reply]:
        async with provider_of(base, **options) as provider:
            return await answer_all(provider, requests)

    return list(asyncio.run(main()))


@pytest.mark.slow
class TestConformance(ProviderSuite):
    adapters = ("hf",)

    @pytest.fixture
    def case(self, models: Path) -> ProviderCase:
        return ProviderCase(
            build=lambda: provider_of(models, usd_per_gpu_hour=2, max_gpu_seconds=60),
            requests=[
                plain("counting", "a"),
                plain("counting", "123"),
                plain("llama", "12+34="),
                Request("llama", messages=(Message("user", "1+2"),), params=GREEDY),
            ],
            failing=[
                plain("llama", "x" * 100),
                plain("llama", "x", temperature=-1),
                Request("no-template", messages=(Message("user", "1"),), params=GREEDY),
                plain("absent", "x"),
            ],
            nonsense=["absent"],
        )


@pytest.mark.slow
def test_greedy_replies_are_those_of_static_batches(models: Path) -> None:
    requests = [plain("llama", f"{i}+{7 * i}=") for i in range(12)]
    requests += [plain("counting", "a", max_tokens=3), plain("counting", "7")]
    requests += [plain("counting", "a", stop=stop, max_tokens=30) for stop in ("d", "fg", "zz")]
    static = answer(models, *requests, batching="static")
    continuous = answer(models, *requests)
    for one, other in zip(static, continuous, strict=True):
        assert (one.text, one.finish, one.usage) == (other.text, other.finish, other.usage)


@pytest.mark.slow
def test_every_call_is_drawn_in_its_own_way(models: Path) -> None:
    requests = [plain("llama", "12+34=", temperature=5.0) for _ in range(20)]
    requests += [plain("llama", "12+34=") for _ in range(5)]
    requests += [plain("llama", "12+34=", temperature=5.0, top_k=1) for _ in range(5)]
    texts = [reply.text for reply in answer(models, *requests)]
    assert len(set(texts[:20])) > 10
    assert len(set(texts[20:])) == 1


@pytest.mark.slow
def test_replies_end_at_stop_texts_and_at_the_end_of_the_context(models: Path) -> None:
    stopped, full = answer(
        models,
        plain("counting", "a", stop="d", max_tokens=20),
        plain("counting", "a" * 60, max_tokens=20),
    )
    assert (stopped.text, stopped.finish) == ("bc", Finish.STOP)
    assert (full.text, full.finish, full.usage.output) == ("bcde", Finish.LENGTH, 4)


def test_a_seed_is_no_parameter_where_it_changes_nothing(models: Path) -> None:
    continuous, static = provider_of(models), provider_of(models, batching="static")
    assert "seed" not in continuous.capabilities("llama").params
    assert not continuous.capabilities("llama").seed
    assert "seed" in static.capabilities("llama").params
    assert continuous.fingerprint("llama") != static.fingerprint("llama")


@pytest.mark.slow
def test_a_call_that_takes_too_long_leaves_the_others_alone(models: Path) -> None:
    async def main() -> tuple[ProviderError, Reply]:
        async with provider_of(models, max_gpu_seconds=0.002) as provider:
            with pytest.raises(ProviderError) as caught:
                await provider.generate(plain("counting", "a", max_tokens=60))
            worker = provider._models["counting"]
            assert not isinstance(worker, SpreadModel)
            object.__setattr__(worker._settings, "max_gpu_seconds", 60.0)
            return caught.value, await provider.generate(plain("counting", "7"))

    error, reply = asyncio.run(main())
    assert error.kind is FailureKind.TIMEOUT
    assert reply.text == "89"


@pytest.mark.slow
def test_models_make_room_for_each_other_and_loading_is_charged(models: Path) -> None:
    folders = ("llama", "gpt2")

    async def main() -> tuple[list[Reply], int]:
        sizes = provider_of(models)._folders
        most = max(sizes.n_bytes(sizes.fetch(model)) for model in folders)
        async with provider_of(models, memory_gb=(most + 1) / 1e9) as provider:
            requests = [plain(model, "1+2=") for model in (*folders, *folders)]
            replies = [await provider.generate(request) for request in requests]
            again = await provider.generate(requests[-1])
            return [*replies, again], provider.n_loads

    replies, n_loads = asyncio.run(main())
    assert n_loads == 4
    assert replies[0].text == replies[2].text
    assert replies[3].gpu_seconds > replies[4].gpu_seconds, "it paid for loading"


@pytest.mark.slow
def test_nothing_is_kept_of_calls_that_are_over(models: Path) -> None:
    async def main() -> int:
        async with provider_of(models) as provider:
            stopped = [plain("counting", "a", stop="d", max_tokens=30) for _ in range(5)]
            await answer_all(provider, [*stopped, plain("counting", "7")])
            cancelled = asyncio.create_task(provider.generate(plain("counting", "b")))
            await asyncio.sleep(0.001)
            cancelled.cancel()
            await asyncio.wait([cancelled])
            worker = provider._models["counting"]
            assert not isinstance(worker, SpreadModel)
            assert isinstance(worker, ContinuousWorker)
            assert worker.is_idle
            assert isinstance(worker._engine, ContinuousEngine)
            return len(worker._engine._manager.output_router.result_handlers)

    assert asyncio.run(main()) == 0


@pytest.mark.slow
def test_leaving_ends_the_thread(models: Path) -> None:
    before = Counter(thread.name for thread in threading.enumerate())

    async def main() -> None:
        async with provider_of(models) as provider:
            call = asyncio.create_task(provider.generate(plain("counting", "a", max_tokens=60)))
            await provider.generate(plain("counting", "1"))
            call.cancel()

    asyncio.run(main())
    assert Counter(thread.name for thread in threading.enumerate()) - before == Counter()


@pytest.mark.parametrize(
    ("device", "batching", "expected"),
    [
        ("cpu", "auto", False),
        ("cuda", "auto", True),
        ("cpu", "continuous", True),
        ("cuda", "static", False),
    ],
)
def test_accelerators_batch_continuously(device: str, batching: str, expected: bool) -> None:
    options = HfOptions.model_validate({"batching": batching})
    assert options.is_continuous(device) is expected
    assert options.page_settings("cuda") == PageSettings(256, None, None)
    assert options.page_settings("cpu") == PageSettings(256, 64, 2048)


def test_a_device_that_is_not_there_is_refused(models: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    assert find_device("auto") == "cpu"
    with pytest.raises(ConfigError, match="finds no CUDA device"):
        HfProvider.create("hf", {"device": "cuda"}, models).check("llama")
