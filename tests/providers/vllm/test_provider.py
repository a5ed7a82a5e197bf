"""Servers of our own: started, put to sleep, woken, stopped, and paid for."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.values import Json, Message, Reply, Request
from bestarm_agent.errors import ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.api.openai import OpenAIProvider
from bestarm_agent.providers.vllm.provider import VllmProvider
from bestarm_agent.testing.provider_suite import ProviderCase, ProviderSuite, answer_all
from tests.support.processes import dies
from tests.support.provider_calls import answers, attempt, error, replies

FAKE = str(Path(__file__).parents[2] / "support" / "fake_vllm.py")
API: Mapping[str, Json] = {
    "base_url": "http://localhost:8000/v1",
    "max_tokens_field": "max_tokens",
    "default_max_tokens": 16,
    "without": ["top_k"],
}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    for name in ("small", "large"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "config.json").write_text(f'{{"name": "{name}"}}')
    python = tmp_path / "python"  # is asked to run the module of vLLM's server
    python.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} {FAKE} "$@"\n')
    python.chmod(0o755)
    return tmp_path


def build(base: Path, **serve: Json) -> VllmProvider:
    options: Mapping[str, Json] = {
        "models": {"small": "models/small", "large": {"path": "models/large", "args": []}},
        "python": str(base / "python"),
        "args": ["--dtype", "float32"],
        "start_seconds": 30,
        **serve,
    }
    provider = VllmProvider.create("vllm", {**API, "serve": options}, base)
    assert isinstance(provider, VllmProvider)
    return provider


def ask(model: str, prompt: str = "hello") -> Request:
    return Request(model, text=prompt, params={"max_tokens": 5})


def started(base: Path, model: str) -> tuple[int, str, list[str]]:
    """Return the engine's process, the devices that a server sees, its arguments after --port."""
    text = (base / "runs" / "vllm" / f"{model}.log").read_text()
    (engine,) = re.findall(r"engine pid=(\d+)", text)[-1:]
    (devices,) = re.findall(r"devices (.*)", text)[-1:]
    (argv,) = map(json.loads, re.findall(r"started with (.*)", text)[-1:])
    return int(engine), devices, argv[argv.index("--port") + 2 :]


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class TestConformance(ProviderSuite):
    adapters = ("vllm",)

    @pytest.fixture
    def case(self, base: Path) -> ProviderCase:
        return ProviderCase(
            build=lambda: build(base),
            requests=[ask("small", "a"), ask("small", "b"), ask("large", "c")],
            failing=[ask("unknown"), Request("small", text="x", params={"top_k": 3})],
            nonsense=["unknown", "models/small"],
        )


def test_an_address_is_spoken_to_as_it_is(base: Path) -> None:
    assert type(VllmProvider.create("vllm", API, base)) is OpenAIProvider


def test_models_have_servers_of_their_own_with_logs_and_arguments(base: Path) -> None:
    chat = Request("small", messages=(Message("user", "hi"),))
    found = replies(build(base), ask("small"), chat, ask("large", "hi"))
    assert [one.text for one in found] == ["small|hello", "small|hi", "large|hi"]
    log = (base / "runs" / "vllm" / "small.log").read_text()
    assert f"loading {base / 'models' / 'small'} in vllm" in log, "nothing lies beside the log"
    assert dies(started(base, "small")[0])


def test_a_plain_prompt_is_completed_only_where_the_model_has_no_chat_template(base: Path) -> None:
    message = Request("small", messages=(Message("user", "hi"),), params={"max_tokens": 5})
    (chatted,) = replies(build(base), ask("small"))
    assert chatted.sent == {"max_tokens": 5}
    bare = build(base, env={"FAKE_NO_TEMPLATE": "1"})
    before = bare.fingerprint("small")
    first, second, refused = answers(bare, ask("small"), ask("small", "again"), message)
    assert isinstance(first, Reply)
    assert isinstance(second, Reply)
    assert (first.text, second.text) == ("small|hello", "small|again")
    assert isinstance(refused, ProviderError)
    assert refused.kind is FailureKind.BAD_REQUEST
    assert bare.fingerprint("small") == before, "what was learned moves no reply in the cache"
    log = (base / "runs" / "vllm" / "small.log").read_text()
    assert log.count("answers hello") == 1


def ticking(base: Path, **serve: Json) -> VllmProvider:
    """A provider whose clock moves on by a second at every look."""
    ticks = iter(range(1000))
    provider = build(base, usd_per_gpu_hour=3600, max_gpu_seconds=500, **serve)
    provider._clock = lambda: float(next(ticks))
    return provider


def test_every_second_of_every_device_is_charged_starting_included(base: Path) -> None:
    provider = ticking(base, gpus=2)
    first, second = replies(provider, ask("small", "a"), ask("small", "b"))
    assert first.gpu_seconds > second.gpu_seconds > 0, "the first pays for the start"
    for one in (first, second):
        assert one.usd_nanos == one.gpu_seconds * 1_000_000_000
    bound = provider.bound(ask("small"))
    assert (bound.gpu_seconds, bound.usd_nanos) == (500, 500_000_000_000)
    assert provider.capabilities("small").priced
    (alone,) = replies(ticking(base), ask("small", "a"))
    assert first.gpu_seconds == 2 * alone.gpu_seconds


TURNS = [ask(model) for model in ("small", "large", "small")]
SAID = ["small|hello", "large|hello", "small|hello"]


@pytest.mark.slow
def test_where_one_fits_the_other_sleeps(base: Path) -> None:
    provider = build(base, sleep=True)

    async def main() -> None:
        async with provider:
            assert [(await provider.generate(turn)).text for turn in TURNS] == SAID
            servers = provider._models.values()
            assert [server.is_loaded for server in servers] == [True, False]
            assert all(server.is_running for server in servers)

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("sleep", [False, True], ids=["stops", "sleep-hangs"])
def test_what_cannot_sleep_is_stopped_and_started_again(
    base: Path, sleep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bestarm_agent.providers.vllm.server._SLEEP_SECONDS", 0.3)
    provider = build(base, sleep=sleep, env={"FAKE_SLEEP_HANGS": "1"})
    assert [one.text for one in replies(provider, *TURNS)] == SAID
    assert provider.asks_per_load("small") is None, "all is stopped and forgotten"


def test_a_server_that_does_not_start_shows_the_end_of_its_log(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijkl")
    provider = build(base, env={"FAKE_BROKEN": "no such dtype"}, pass_env=["HF_TOKEN"])
    failed = error(provider, ask("small"))
    assert (failed.kind, failed.fatal) == (FailureKind.MODEL_NOT_FOUND, True)
    assert "ended with exit code 1; its log small.log ends with:" in str(failed)
    assert "ValueError: no such dtype" in str(failed)
    assert "hf_abcdefghijkl" not in str(failed)
    assert str(base) not in str(failed)
    assert dies(started(base, "small")[0]), "nor does its engine stay"


def test_a_server_that_does_not_start_is_started_once(base: Path) -> None:
    """However many calls wait for it."""
    (base / "count.py").write_text(
        "import sys\nopen('starts', 'a').write('x')\nsys.exit('broken')\n"
    )
    (base / "python").write_text(f"#!/bin/sh\nexec {sys.executable} {base}/count.py\n")
    provider = build(base)

    async def main() -> list[Reply | ProviderError]:
        async with provider:
            asks = [ask("small", f"p{i}") for i in range(20)]
            return await together(attempt(provider, one) for one in asks)

    for failed in asyncio.run(main()):
        assert re.search(r"exit code 1; .* ends with: broken", str(failed))
    assert (base / "runs" / "vllm" / "starts").read_text() == "x"


@pytest.mark.slow
def test_a_server_that_is_never_ready_is_given_up(base: Path) -> None:
    provider = build(base, env={"FAKE_STUCK": "1"}, start_seconds=1.0)
    assert "was not ready after 1 s" in str(error(provider, ask("small")))
    assert dies(started(base, "small")[0])


def test_one_that_dies_is_started_again_a_few_times(base: Path) -> None:
    dying = ask("small", "die")
    first, answered, *more, last = answers(build(base), dying, ask("small"), *[dying] * 3)
    assert isinstance(answered, Reply)
    for failed in (first, *more):
        assert isinstance(failed, ProviderError)
        assert (failed.kind, failed.transient) == (FailureKind.SERVER, True)
        assert "ended with exit code 7" in str(failed)
        assert "hush-hush" not in str(failed)
    assert isinstance(last, ProviderError)
    assert (last.kind, last.fatal) == (FailureKind.MODEL_NOT_FOUND, True)
    assert "it died 3 times" in str(last)


def test_a_call_that_hangs_runs_out_of_time(base: Path) -> None:
    failed = error(build(base, call_seconds=0.3), ask("small", "hang"))
    assert (failed.kind, failed.transient) == (FailureKind.TIMEOUT, True)


@pytest.mark.slow
def test_no_server_outlives_us(base: Path) -> None:
    """Killed with -9, between two calls."""
    program = textwrap.dedent(
        """
        import asyncio, os, signal, sys
        from pathlib import Path
        from tests.providers.vllm.test_provider import ask, build

        async def main():
            async with build(Path(sys.argv[1])) as provider:
                await provider.generate(ask("small"))
                os.kill(os.getpid(), signal.SIGKILL)

        asyncio.run(main())
        """
    )
    argv = [sys.executable, "-c", program, str(base)]
    done = subprocess.run(argv, cwd=Path(__file__).parents[3], timeout=60, check=False)
    assert done.returncode == -9
    assert dies(started(base, "small")[0])


@pytest.mark.slow
def test_no_server_outlives_a_killed_guard(base: Path) -> None:
    provider = build(base)

    async def main() -> str:
        async with provider:
            await provider.generate(ask("small"))
            engine = started(base, "small")[0]
            server = parent(engine)
            guard = parent(server)
            os.kill(guard, signal.SIGKILL)
            assert dies(server)
            with pytest.raises(ProviderError, match="exit code -9"):
                await provider.generate(ask("small"))
            assert dies(engine), "it goes with what is left of the group"
            return (await provider.generate(ask("small"))).text

    text = asyncio.run(main())
    assert text == "small|hello"


def test_many_calls_at_once_share_one_start(base: Path) -> None:
    provider = build(base, in_flight=50)
    assert provider.capabilities("small").in_flight == 50
    assert not provider.capabilities("small").rate_limited, "else `serve.in_flight` is ignored"

    async def main() -> list[Reply]:
        async with provider:
            return await answer_all(provider, [ask("small", f"p{i}") for i in range(50)])

    replies = asyncio.run(main())
    assert [reply.text for reply in replies] == [f"small|p{i}" for i in range(50)]


def test_the_interpreter_must_be_there(base: Path) -> None:
    provider = build(base, python="/no/such/python")
    with pytest.raises(ConfigError, match="vllm/small: the program /no/such/python does not exist"):
        provider.check_machine("small")


def test_the_fingerprint_is_of_weights_and_arguments_not_of_places(base: Path) -> None:
    first = build(base).fingerprint("small")
    assert build(base, start_seconds=1, log_dir="logs", gpus=2).fingerprint("small") == first
    assert build(base, args=["--quantization", "fp8"]).fingerprint("small") != first
    (base / "models" / "small" / "config.json").write_text("{}")
    assert build(base).fingerprint("small") != first


def models(**options: Json) -> Json:
    """Two models; ``options`` are those of the large one."""
    return {"small": {"path": "models/small"}, "large": {"path": "models/large", **options}}


def test_servers_see_the_devices_that_the_study_names(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    given = ["--dtype", "float32"]
    replies(build(base), ask("small"))
    assert started(base, "small")[1:] == ("5", given)
    set_here = {"CUDA_VISIBLE_DEVICES": "3,1"}
    replies(build(base, models=models(gpus=2), env=set_here), ask("small"), ask("large"))
    assert started(base, "small")[1:] == ("3", given), "as many as it is to have"
    assert started(base, "large")[1:] == ("3,1", ["--tensor-parallel-size", "2", *given])


@pytest.mark.parametrize(
    ("devices", "args", "seen"),
    [
        ("4,7", [], ("4", "7")),
        ("4", ["--gpu-memory-utilization", "0.45"], ("4", "4")),
        ("4,7", ["--gpu_memory_utilization=.4"], ("4", "4")),
    ],
)
def test_as_many_servers_are_awake_as_the_devices_have_room_for(
    base: Path, devices: str, args: list[Json], seen: tuple[str, str]
) -> None:
    provider = build(base, args=args, env={"CUDA_VISIBLE_DEVICES": devices})
    assert not provider.loads_one_at_a_time

    async def main() -> None:
        async with provider:
            assert [(await provider.generate(turn)).text for turn in TURNS] == SAID
            assert all(server.is_loaded for server in provider._models.values())

    asyncio.run(main())
    assert (started(base, "small")[1], started(base, "large")[1]) == seen
    log = (base / "runs" / "vllm" / "small.log").read_text()
    assert log.count("started with") == 1


def test_one_that_divides_itself_over_more_sees_all(base: Path) -> None:
    env = {"CUDA_VISIBLE_DEVICES": "4,7"}
    provider = build(base, models=models(args=["-dp", "2"]), env=env, sleep=True)
    assert provider.loads_one_at_a_time


@pytest.mark.parametrize(
    "argument",
    ["--pipeline-parallel-size=2", "--tensor_parallel_size", "-tp", "--data-parallel-size=2"],
)
def test_what_the_arguments_say_is_not_said_twice(base: Path, argument: str) -> None:
    provider = build(base, gpus=2, args=[argument])
    arguments = provider.options.arguments("small", base, 1)
    assert arguments[arguments.index("--port") + 2 :] == [argument]


@pytest.mark.parametrize(
    ("serve", "message"),
    [
        ({"devices": [0]}, "unknown option `serve.devices`"),
        ({"gpus": 0}, "`serve.gpus` must be at least 1"),
        ({"models": {}}, "`serve.models` must not be empty"),
        ({"pyton": "x"}, "did you mean `python`"),
    ],
)
def test_keys_are_checked(base: Path, serve: dict[str, Json], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(base, **serve)
    assert message in str(caught.value)
