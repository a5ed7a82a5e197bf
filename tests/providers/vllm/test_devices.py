"""Devices of started servers: assigned, shared, replicated, in turns; by fakes of both programs."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from bestarm_agent.config.yaml.documents import OptionsError
from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.api.provider import ApiProvider
from bestarm_agent.providers.gpu_time import SharedTime
from bestarm_agent.providers.vllm.adapter import Vllm
from bestarm_agent.providers.vllm.server import Replica, VllmServers
from bestarm_agent.providers.vllm.server_process import ServerProcess
from bestarm_agent.testing.provider_suite import answer_all
from tests.providers.vllm.test_provider import API, ask, base, build, run
from tests.support import fake_nvidia_smi

__all__ = ["base"]

MIB_OF_80_GIB = 81_920
GB_OF_80_GIB = MIB_OF_80_GIB * (1 << 20) / 1e9


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the machine have four devices of 80 GiB."""
    fake_nvidia_smi.install(monkeypatch, tmp_path, *[MIB_OF_80_GIB] * 4)


def started(base: Path, log: str) -> tuple[str, list[str]]:
    """Return the devices that a server was shown, and the arguments after --port."""
    text = (base / "runs" / "vllm" / f"{log}.log").read_text()
    devices, argv = re.search(r"devices (.*)", text), re.search(r"started with (.*)", text)
    assert devices
    assert argv
    arguments: list[str] = json.loads(argv[1])
    return devices[1], arguments[arguments.index("--port") + 2 :]


def models(**options: Json) -> Json:
    """Two models; ``options`` are those of the large one."""
    return {"small": {"path": "models/small"}, "large": {"path": "models/large", **options}}


@pytest.mark.usefixtures("four")
def test_every_server_is_shown_its_own_devices(base: Path) -> None:
    provider = build(base, models=models(gpus=2), memory_gb=20)
    run(provider, ask("small"), ask("large"))
    share = f"{20 / GB_OF_80_GIB:.4f}"
    given = ["--gpu-memory-utilization", share, "--dtype", "float32"]
    assert started(base, "small") == ("2, PCI_BUS_ID", given)
    assert started(base, "large") == ("0,1, PCI_BUS_ID", ["--tensor-parallel-size", "2", *given])


@pytest.mark.usefixtures("four")
def test_what_the_arguments_say_is_not_said_twice(base: Path) -> None:
    args = ["--pipeline-parallel-size=2", "--tensor_parallel_size", "1"]
    args += ["--gpu-memory-utilization", "0.4"]
    provider = build(base, models=models(), args=[*args], devices=[2, 3])
    assert provider.placement
    assert provider.placement.turns == (), "two servers of .4 each share devices 2 and 3"
    for (devices,) in provider.placement.servers.values():
        assert [device.number for device in devices] == [2, 3]
        arguments = provider.options.arguments("small", base, 1, devices)
        assert arguments[arguments.index("--port") + 2 :] == args


def test_without_a_device_servers_see_what_we_see(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    provider = build(base, gpus=2)
    assert provider.placement is None
    run(provider, ask("small"))
    assert started(base, "small") == ("5, None", ["--dtype", "float32"])
    assert provider.fits({"small", "large"})


@pytest.mark.usefixtures("four")
def test_who_counts_resident_servers_assigns_devices_by_hand(base: Path) -> None:
    provider = build(base, resident=1, env={"CUDA_VISIBLE_DEVICES": "3"})
    assert provider.placement is None
    run(provider, ask("small"))
    assert started(base, "small")[0] == "3, None"


@pytest.mark.usefixtures("four")
def test_variables_of_the_servers_limit_their_devices(base: Path) -> None:
    provider = build(base, env={"CUDA_VISIBLE_DEVICES": "3,1"})
    assert provider.placement
    servers = provider.placement.servers
    assert [servers[name][0][0].number for name in ("small", "large")] == [1, 3]


@pytest.mark.usefixtures("four")
def test_replicas_are_endpoints_and_all_answer(base: Path) -> None:
    provider = build(base, models=models(replicas=3))
    assert provider.capabilities("large").in_flight == 3 * provider.capabilities("small").in_flight
    assert not provider.capabilities("large").rate_limited, "else `serve.in_flight` is ignored"

    async def main() -> list[str]:
        async with provider:
            replies = await answer_all(provider, [ask("large", f"p{i}") for i in range(30)])
            assert len(provider.endpoints) == 3
            assert not any(one.in_flight or one.failure for one in provider.endpoints)
            return [reply.text for reply in replies]

    assert asyncio.run(main()) == [f"large|p{i}" for i in range(30)]
    logs = [(base / "runs/vllm" / f"large{n}.log").read_text() for n in ("", "-2", "-3")]
    counts = [log.count("answers p") for log in logs]
    assert sum(counts) == 30
    assert min(counts) > 0
    shown = [started(base, f"large{number}")[0] for number in ("", "-2", "-3")]
    assert shown == ["0, PCI_BUS_ID", "1, PCI_BUS_ID", "2, PCI_BUS_ID"]


@pytest.mark.slow
@pytest.mark.usefixtures("four")
def test_a_replica_that_dies_comes_back_while_the_other_answers(base: Path) -> None:
    provider = build(base, models=models(replicas=2))

    async def main() -> None:
        async with provider:
            await provider.generate(ask("large"))
            servers = provider._models["large"]
            with pytest.raises(ProviderError, match="exit code 7") as caught:
                await provider.generate(ask("large", "die"))
            assert (caught.value.kind, caught.value.transient) == (FailureKind.SERVER, True)
            addresses = {process.url for process in servers._processes}
            assert (await provider.generate(ask("large"))).text == "large|hello"
            assert len(servers._reviving) == 1
            await asyncio.wait(servers._reviving.values())
            assert {process.url for process in servers._processes} == addresses
            assert all(process.is_running for process in servers._processes)
            assert provider.n_loads == 1, "the model was never away"

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.usefixtures("four")
def test_when_the_last_replica_dies_all_are_started_again(base: Path) -> None:
    provider = build(base, models=models(replicas=2))

    async def die_until_none_is_left() -> None:
        servers = provider._models["large"]
        servers._n_exits = 3  # none is started again alone
        for _ in range(2):
            with pytest.raises(ProviderError, match="exit code 7"):
                await provider.generate(ask("large", "die"))
        assert not servers.is_loaded
        with pytest.raises(ProviderError, match=r"it died 5 times"):
            await provider.generate(ask("large"))

    async def main() -> None:
        async with provider:
            await provider.generate(ask("large"))
            await die_until_none_is_left()

    asyncio.run(main())


@pytest.mark.slow
def test_only_who_is_in_the_way_makes_room(
    base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_nvidia_smi.install(monkeypatch, tmp_path, MIB_OF_80_GIB, MIB_OF_80_GIB)
    three: Json = dict.fromkeys(("a", "b", "c"), "models/small")
    provider = build(base, models=three, sleep=True)
    assert provider.placement
    assert provider.placement.turns == (("a", "c"),)
    assert provider.footprint("a").part == provider.footprint("c").part
    assert provider.footprint("b").part != provider.footprint("a").part

    async def main() -> list[bool]:
        async with provider:
            for name in "abc":
                await provider.generate(ask(name))
            return [servers.is_loaded for servers in provider._models.values()]

    assert asyncio.run(main()) == [False, True, True]


class StartCounter:
    """Stands for a process, and notes how many start at once."""

    now = most = 0
    is_running = False
    url = "http://127.0.0.1:1"

    async def start(self, *, again: bool = False) -> None:
        StartCounter.now += 1
        StartCounter.most = max(StartCounter.most, StartCounter.now)
        await asyncio.sleep(0)
        StartCounter.now -= 1
        self.is_running = True

    async def stop(self) -> None:
        self.is_running = False


@pytest.mark.parametrize(("n_devices", "most"), [(1, 1), (3, 3)])
def test_servers_on_one_device_start_one_after_the_other(n_devices: int, most: int) -> None:
    """Each measures the free memory of its device, which the other is about to take."""

    async def main() -> None:
        StartCounter.now = StartCounter.most = 0
        locks = [asyncio.Lock() for _ in range(n_devices)]
        replicas = [
            Replica(cast(ServerProcess, StartCounter()), [locks[number % n_devices]])
            for number in range(3)
        ]
        servers = VllmServers(
            "m",
            replicas,
            lambda urls: cast(
                ApiProvider, Vllm.create("v", {**API, "base_url": urls[0] + "/v1"}, Path())
            ),
            adapters={},
            held=1.0,
            time=SharedTime(lambda: 0.0, 1.0),
            clock=lambda: 0.0,
            sleep_seconds=None,
        )
        await servers.load()
        await servers.close()

    asyncio.run(main())
    assert StartCounter.most == most


@pytest.mark.slow
@pytest.mark.usefixtures("four")
def test_a_shared_device_is_paid_by_memory_and_replicas_together(base: Path) -> None:
    def charged(**options: Json) -> float:
        ticks = iter(range(1000))
        provider = build(base, usd_per_gpu_hour=3600, max_gpu_seconds=500, **options)
        provider._clock = lambda: float(next(ticks))
        (reply,) = run(provider, ask("small"))
        assert reply.usd_nanos == pytest.approx(reply.gpu_seconds * 1e9)
        return reply.gpu_seconds

    alone = charged(models=models())
    assert charged(models=models(), devices=[0], memory_gb=30) == alone / 2
    assert charged(models=models(), replicas=2) == 2 * alone


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize(
    ("serve", "path", "message"),
    [
        ({"gpus": 5}, ("gpus",), "`small`: wants 5 devices, and only 4"),
        ({"models": models(gpus=5)}, ("models", "large", "gpus"), "`large`: wants 5 devices"),
        ({"devices": [0, 9]}, ("devices",), "device 9 does not exist"),
        ({"memory_gb": 100}, ("memory_gb",), "takes 100 GB of each device"),
        (
            {"models": models(replicas=5)},
            ("models", "large", "replicas"),
            "wants 5 servers of 1",
        ),
    ],
)
def test_what_cannot_be_placed_names_the_key(
    base: Path, serve: dict[str, Json], path: Sequence[str], message: str
) -> None:
    with pytest.raises(OptionsError) as caught:
        build(base, **serve).check("small")
    (problem,) = caught.value.problems
    assert problem.path == ("serve", *path)
    assert message in problem.text


@pytest.mark.parametrize(
    ("serve", "message"),
    [
        ({"devices": "all"}, "must be `auto`, or a list of device numbers such as [0, 1]"),
        ({"devices": []}, "must be `auto`, or a list"),
        ({"models": models(devices=[-1])}, "must be `auto`, or a list"),
        ({"replicas": 0}, "`replicas` must be at least 1"),
        ({"models": models(memory_gb=0)}, "must be greater than 0"),
        ({"resident": 1, "devices": [0]}, "`resident` leaves devices to you, and `devices`"),
        ({"resident": 1, "models": models(memory_gb=1)}, "`memory_gb` has them assigned"),
        ({"memory_gb": 9, "args": ["--gpu-memory-utilization", ".4"]}, "has both `memory_gb`"),
        ({"args": ["--gpu-memory-utilization=40"]}, "must be in (0, 1], got 40"),
    ],
)
def test_keys_are_checked(base: Path, serve: dict[str, Json], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(base, **serve)
    assert message in str(caught.value)


@pytest.mark.parametrize("options", [{"devices": [0]}, {"memory_gb": 1}, {"replicas": 2}])
def test_where_no_device_is_found_nothing_can_be_assigned(
    base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: dict[str, Json]
) -> None:
    fake_nvidia_smi.install_broken(monkeypatch, tmp_path)
    with pytest.raises(OptionsError, match="nvidia-smi shows none here") as caught:
        build(base, **options).check("small")
    assert caught.value.problems[0].path == ("serve", *options)


@pytest.mark.parametrize("option", ["devices", "gpus", "replicas", "memory_gb"])
def test_a_server_that_runs_already_gets_no_devices(base: Path, option: str) -> None:
    with pytest.raises(OptionsError, match="move it into `serve`") as caught:
        Vllm.create("vllm", {**API, option: 1}, base)
    assert caught.value.problems[0].path == (option,)


def test_the_fingerprint_does_not_depend_on_devices(
    base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = build(base).fingerprint("small")
    fake_nvidia_smi.install(monkeypatch, tmp_path, MIB_OF_80_GIB, MIB_OF_80_GIB)
    assert build(base, replicas=2, memory_gb=4).fingerprint("small") == first
