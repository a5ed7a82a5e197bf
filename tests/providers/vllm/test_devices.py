"""Devices of started servers: assigned, replicated; by fakes of nvidia-smi and vLLM."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from bestarm_agent.config.yaml import OptionsError
from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.vllm.provider import VllmProvider
from bestarm_agent.testing.provider_suite import answer_all
from tests.providers.vllm.test_provider import API, ask, base, build, run
from tests.support import fake_nvidia_smi

__all__ = ["base"]


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the machine have four devices."""
    fake_nvidia_smi.install(monkeypatch, tmp_path, 4)


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
    provider = build(base, models=models(gpus=2), devices=[1, 3])
    run(provider, ask("small"), ask("large"))
    given = ["--dtype", "float32"]
    assert started(base, "small") == ("1, PCI_BUS_ID", given)
    assert started(base, "large") == ("1,3, PCI_BUS_ID", ["--tensor-parallel-size", "2", *given])


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize(
    "argument", ["--pipeline-parallel-size=2", "--tensor_parallel_size", "-tp"]
)
def test_what_the_arguments_say_is_not_said_twice(base: Path, argument: str) -> None:
    provider = build(base, gpus=2, args=[argument])
    arguments = provider.options.arguments("small", base, 1, (0, 1))
    assert arguments[arguments.index("--port") + 2 :] == [argument]


def test_without_a_device_servers_see_what_we_see(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    run(build(base, gpus=2), ask("small"))
    assert started(base, "small") == ("5, None", ["--dtype", "float32"])


@pytest.mark.usefixtures("four")
def test_variables_of_the_servers_limit_their_devices(base: Path) -> None:
    run(build(base, env={"CUDA_VISIBLE_DEVICES": "3,1"}, gpus=2), ask("small"))
    assert started(base, "small")[0] == "3,1, PCI_BUS_ID"


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
@pytest.mark.usefixtures("four")
def test_all_devices_of_a_model_are_paid(base: Path) -> None:
    def charged(**options: Json) -> float:
        ticks = iter(range(1000))
        provider = build(base, usd_per_gpu_hour=3600, max_gpu_seconds=500, **options)
        provider._clock = lambda: float(next(ticks))
        (reply,) = run(provider, ask("small"))
        assert reply.usd_nanos == pytest.approx(reply.gpu_seconds * 1e9)
        return reply.gpu_seconds

    alone = charged(models=models())
    assert charged(models=models(), replicas=2) == 2 * alone
    assert charged(models=models(), replicas=2, gpus=2) == 4 * alone


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize(
    ("serve", "path", "message"),
    [
        ({"gpus": 5}, ("gpus",), "`small` wants 5 devices, and there are only 4"),
        ({"models": models(gpus=5)}, ("models", "large", "gpus"), "`large` wants 5 devices"),
        ({"devices": [0, 9]}, ("devices",), "device 9 does not exist"),
        ({"devices": [1], "gpus": 2}, ("gpus",), "there are only 1 (1)"),
        (
            {"models": models(replicas=5)},
            ("models", "large", "replicas"),
            "wants 5 servers of 1",
        ),
    ],
)
def test_what_cannot_be_assigned_names_the_key(
    base: Path, serve: dict[str, Json], path: Sequence[str], message: str
) -> None:
    with pytest.raises(OptionsError) as caught:
        build(base, **serve).check_machine("large" if "models" in serve else "small")
    (problem,) = caught.value.problems
    assert problem.path == ("serve", *path)
    assert message in problem.text


@pytest.mark.parametrize(
    ("serve", "message"),
    [
        ({"devices": "all"}, "must be `auto`, or a list of device numbers such as [0, 1]"),
        ({"devices": []}, "must be `auto`, or a list"),
        ({"devices": [-1]}, "must be `auto`, or a list"),
        ({"replicas": 0}, "`replicas` must be at least 1"),
    ],
)
def test_keys_are_checked(base: Path, serve: dict[str, Json], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(base, **serve)
    assert message in str(caught.value)


@pytest.mark.parametrize("options", [{"devices": [0]}, {"replicas": 2}])
def test_where_no_device_is_found_nothing_can_be_assigned(
    base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: dict[str, Json]
) -> None:
    fake_nvidia_smi.install_broken(monkeypatch, tmp_path)
    with pytest.raises(OptionsError, match="nvidia-smi shows none here") as caught:
        build(base, **options).check_machine("small")
    assert caught.value.problems[0].path == ("serve", *options)


@pytest.mark.parametrize("option", ["devices", "gpus", "replicas"])
def test_a_server_that_runs_already_gets_no_devices(base: Path, option: str) -> None:
    with pytest.raises(OptionsError, match="move it into `serve`") as caught:
        VllmProvider.create("vllm", {**API, option: 1}, base)
    assert caught.value.problems[0].path == (option,)


def test_the_fingerprint_does_not_depend_on_devices(
    base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = build(base).fingerprint("small")
    fake_nvidia_smi.install(monkeypatch, tmp_path, 2)
    assert build(base, replicas=2).fingerprint("small") == first
