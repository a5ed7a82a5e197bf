"""One worker process for each device: two on the processor answer as this process does."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import Process
from pathlib import Path

import pytest

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.errors import ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.devices import Device
from bestarm_agent.providers.hf import device_choice
from bestarm_agent.providers.hf.device_workers import DeviceWorker, spread
from bestarm_agent.providers.hf.provider import HfProvider
from bestarm_agent.testing.provider_suite import answer_all
from tests.providers.hf.test_provider import DRAWN, GREEDY, PROMPTS, answer, plain, provider_of
from tests.support import fake_nvidia_smi
from tests.support.processes import dies

TWO: Json = ["cpu", "cpu"]
MODELS = ("llama", "gpt2")


def requests() -> list[Request]:
    pairs = [(model, params) for model in MODELS for params in (GREEDY, DRAWN)]
    return [plain(model, text, params) for model, params in pairs for text in PROMPTS]


@pytest.mark.slow
def test_two_processes_answer_as_one_does(models: Path) -> None:
    """Also with draws, which are keyed by prompt and seed; and both have work.

    One test, since a process takes seconds to import its libraries.
    """
    alone = answer(models, *requests())

    async def main() -> list[int]:
        async with provider_of(models, devices=TWO, max_batch=4) as provider:
            assert provider.placement is None, "no accelerator is assigned"
            assert provider.fingerprint("llama") == provider_of(models).fingerprint("llama")
            replies = await answer_all(provider, requests())
            assert [reply.text for reply in replies] == [reply.text for reply in alone]
            assert [reply.usage for reply in replies] == [reply.usage for reply in alone]
            assert [reply.finish for reply in replies] == [reply.finish for reply in alone]
            assert all(reply.gpu_seconds > 0 for reply in replies)
            assert provider.n_loads == 4, "each model in each process"
            assert provider.footprint("llama").load_seconds is not None
            assert provider.footprint("llama").call_seconds is not None
            assert provider.loading == ()
            await errors_cross_over(provider)
            await a_cancelled_call_leaves_nothing(provider)
            await a_dead_worker_is_replaced(provider, alone[-5])
            return [process_of(worker).pid for worker in provider._workers.of("llama")]

    assert all(map(dies, asyncio.run(main()))), "no worker outlives its provider"


def process_of(worker: DeviceWorker) -> Process:
    assert worker._process
    return worker._process


async def errors_cross_over(provider: HfProvider) -> None:
    with pytest.raises(ProviderError) as caught:
        await provider.generate(plain("gpt2", "x" * 64))
    assert (caught.value.kind, caught.value.transient) == (FailureKind.TOO_LONG, False)


async def a_cancelled_call_leaves_nothing(provider: HfProvider) -> None:
    call = asyncio.create_task(provider.generate(plain("gpt2", "a")))
    await asyncio.sleep(0)
    assert sum(worker.n_calls for worker in provider._workers.of("gpt2")) == 1
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not any(worker.n_calls for worker in provider._workers.of("gpt2"))


async def a_dead_worker_is_replaced(provider: HfProvider, before: Reply) -> None:
    first, _ = provider._workers.of("gpt2")
    coming = asyncio.create_task(provider.generate(plain("gpt2", "1+2=")))
    await asyncio.sleep(0)
    assert first.n_calls == 1
    os.kill(process_of(first).pid, signal.SIGKILL)
    with pytest.raises(ProviderError, match="device 0 ended with exit code -9") as died:
        await coming
    assert (died.value.kind, died.value.transient) == (FailureKind.SERVER, True)
    reply = await provider.generate(plain("gpt2", PROMPTS[0], DRAWN))
    assert reply.text == before.text
    assert process_of(first).pid


def test_models_are_spread_over_as_many_devices_as_all_have_room_for() -> None:
    def numbers(sizes: dict[str, int], *room: int) -> dict[str, list[int]]:
        placement = spread(sizes, [Device(i, n_bytes) for i, n_bytes in enumerate(room)])
        return {m: [device.number for (device,) in s] for m, s in placement.servers.items()}

    assert numbers({"a": 4, "b": 4}, 10, 10) == {"a": [0, 1], "b": [0, 1]}
    assert numbers({"a": 8, "b": 7}, 10, 10) == {"a": [0], "b": [1]}
    assert numbers({"a": 8, "b": 2}, 10, 4) == {"a": [0], "b": [1]}
    assert numbers({"a": 4, "b": 4, "c": 4}, 8, 8, 8) == {"a": [0, 1], "b": [0, 2], "c": [1, 2]}
    turns = spread({"a": 8, "b": 8, "c": 8}, [Device(0, 10), Device(1, 10)])
    assert turns.turns == (("a", "c"),)


def test_accelerators_are_given_to_processes_and_shown(
    models: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Up to the start of the processes, which would need CUDA."""
    fake_nvidia_smi.install(monkeypatch, tmp_path, 1000, 1000, 1000)
    monkeypatch.setattr(device_choice, "find_device", lambda device: "cuda")
    provider = provider_of(models)
    provider.check("llama")
    assert provider.placement
    assert [d.number for (d,) in provider.placement.servers["llama"]] == [0, 1, 2]
    first, second, third = provider._workers.of("llama")
    assert first._variables["CUDA_VISIBLE_DEVICES"] == "0"
    assert third._variables["CUDA_VISIBLE_DEVICES"] == "2"
    assert second._variables["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert second._setup.options["device"] == "cuda"
    assert second._setup.options["memory_gb"] == pytest.approx(0.6 * 1000 * (1 << 20) / 1e9)
    assert [d.number for d in provider_of(models, devices=[2, 1])._workers.devices] == [1, 2]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert provider_of(models)._workers.devices == (), "one device needs no process of its own"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": []}, "`devices`: must be `auto`, a list of device numbers"),
        ({"devices": ["cpu", 0]}, "must be `auto`, a list of device numbers"),
        ({"devices": [0, 0]}, "must be `auto`, a list of device numbers"),
        ({"devices": [7]}, "device 7 does not exist or is not visible; visible devices: 0, 1"),
        ({"devices": [0], "device": "cpu"}, "does not agree with `device: cpu`"),
    ],
)
def test_devices_are_checked(
    models: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    options: dict[str, Json],
    message: str,
) -> None:
    fake_nvidia_smi.install(monkeypatch, tmp_path, 1000, 1000)
    monkeypatch.setattr(device_choice, "find_device", lambda device: "cuda")
    with pytest.raises(ConfigError) as caught:
        provider_of(models, **options).check("llama")
    assert message in str(caught.value)
