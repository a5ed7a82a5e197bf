"""The ray provider on a real cluster: the contract, replies of models, what cannot start."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.domain.events import Event, Told
from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Json, Reply, Request
from bestarm_agent.engine.call import replied_spend
from bestarm_agent.errors import ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.ray.provider import RayProvider
from bestarm_agent.providers.registry import create_provider
from bestarm_agent.store.store import Store
from bestarm_agent.testing.provider_suite import ProviderCase, ProviderSuite, answer_all
from tests.support.processes import dies
from tests.support.provider_calls import answers, reply
from tests.support.studies import run_study, store_of, study_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[3]
MORTAL = Path(__file__).with_name("mortal_provider.py")
PLUGIN: Mapping[str, Json] = {"adapter": "mortal_provider:Mortal", "cpus": 0.5}


@pytest.fixture(scope="module")
def connected(ray_cluster: Any) -> Iterator[Any]:  # noqa: ANN401
    """Stay in the cluster over several tests; providers then leave the connection alone."""
    import ray

    from bestarm_agent.providers.ray.provider import connect

    assert connect(ray_cluster.address)
    yield ray_cluster
    ray.shutdown()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(MORTAL, tmp_path)
    return tmp_path


def provider_of(folder: Path, **options: Json) -> RayProvider:
    return RayProvider.create("ray", {**PLUGIN, **options}, folder)


def ask(text: str, model: str = "m") -> Request:
    return Request(model, text=text)


class TestConformance(ProviderSuite):
    adapters = ("ray",)

    @pytest.fixture
    def case(self, folder: Path, connected: object) -> ProviderCase:
        return ProviderCase(
            lambda: provider_of(folder),
            requests=[ask("one"), ask("two"), ask("three")],
            failing=[ask("fail"), ask("crash")],
        )


def test_failures_arrive_as_they_were_raised(folder: Path, connected: object) -> None:
    refused, crashed = answers(provider_of(folder), ask("fail"), ask("crash"))
    assert isinstance(refused, ProviderError)
    assert (refused.kind, str(refused)) == (FailureKind.REFUSED, "I would rather not")
    assert isinstance(crashed, ProviderError)
    assert crashed.kind is FailureKind.INTERNAL
    assert "provider ray raised ZeroDivisionError: a mistake" in str(crashed)


def test_actors_get_variables_of_the_runtime_environment(folder: Path, connected: object) -> None:
    environment: Json = {"env_vars": {"BESTARM_GREETING": "hello"}}
    provider = provider_of(folder, runtime_env=environment, variable="BESTARM_GREETING")
    assert reply(provider, ask("a")).text == "HELLO"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"gpus": 1, "start_seconds": 0.5},
            r"no actor was up within 0.5 s. Each needs 1 GPU and 0.5 CPU on one node; the cluster "
            r"has 0 GPU \(0 free\) and \d CPU \(\d\.?\d* free\) on \d nodes. Lower `gpus`",
        ),
        ({"fails": True}, "no actor can be started: this node has no accelerator"),
    ],
)
def test_a_run_without_any_actor_does_not_begin(
    folder: Path, connected: object, options: Mapping[str, Json], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        reply(provider_of(folder, **options), ask("a"))


def test_models_answer_as_they_do_here(models: Path, ray_cluster: Any) -> None:  # noqa: ANN401
    """Greedy and drawn replies of ``hf`` in an actor, and in this process."""
    params: list[Mapping[str, Json]] = [
        {"temperature": temperature, "max_tokens": 8, "seed": 3} for temperature in (0, 1)
    ]
    requests = [
        Request(model, text=f"{n}+{n}=", params=drawn)
        for model in ("llama", "counting")
        for drawn in params
        for n in range(10)
    ]

    async def answers(name: str, **options: Json) -> list[Reply]:
        async with create_provider(name, {"threads": 1, **options}, models) as provider:
            for request in requests:
                provider.check(request.model)
            return await answer_all(provider, requests)

    here = asyncio.run(answers("hf"))
    there = asyncio.run(answers("ray", adapter="hf", address=ray_cluster.address))
    assert [reply.text for reply in there] == [reply.text for reply in here]
    assert [reply.usage for reply in there] == [reply.usage for reply in here]
    assert all(reply.gpu_seconds > 0 for reply in there)
    assert {reply.sent["actor"] for reply in there} == {0}


def test_an_actor_runs_servers_of_vllm(tmp_path: Path, ray_cluster: Any) -> None:  # noqa: ANN401
    """With the fake one; its process ends with the actor."""
    fake = ROOT / "tests" / "support" / "fake_vllm.py"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} {fake} "$@"\n')
    python.chmod(0o755)
    serve: Json = {"models": {"small": "small"}, "python": str(python), "start_seconds": 60}

    options: Mapping[str, Json] = {"address": ray_cluster.address, "serve": serve}
    provider = create_provider("ray", {"adapter": "vllm", **options}, tmp_path)
    provider.check("small")
    found = reply(provider, ask("hello", "small"))
    assert found.text == "small|hello"
    assert found.gpu_seconds > 0
    (log,) = (tmp_path / "runs" / "vllm" / "actor-0").iterdir()
    (engine,) = re.findall(r"engine pid=(\d+)", log.read_text())
    assert dies(int(engine))


@dataclass(frozen=True)
class Run:
    """What a run left behind."""

    spent: Spend
    outstanding: Spend
    events: Sequence[Event]
    replies: Sequence[Reply]

    @property
    def scored(self) -> list[Told]:
        told = [event for event in self.events if isinstance(event, Told)]
        return [event for event in told if event.outcome.score]


def run_pairs(folder: Path, **changes: Json) -> Run:
    """Run a study of 160 pairs to its end."""
    rows = [{"id": f"e{n}", "q": f"q{n}", "answer": f"Q{n}"} for n in range(80)]
    study = {
        "models": ["ray/a", "ray/b"],
        "dataset": {"path": "rows.jsonl", "target": "answer", "id": "id"},
        "scorer": "exact",
        **changes,
    }
    path = study_file(folder, {"rows": rows}, **study)
    standing, done = run_study(path)

    async def stored() -> Run:
        async with await Store.connect(store_of(path), create=False) as store:
            replies = [one async for _, one in store.replies()]
            events = await store.events_of("latest")
            return Run(standing.spent, done._run.ledger.outstanding, events, replies)

    return asyncio.run(stored())


@pytest.mark.parametrize("kills", ["process", "node"])
def test_nothing_is_lost_and_the_books_are_exact_when_something_dies(
    tmp_path: Path,
    ray_cluster: Any,  # noqa: ANN401
    kills: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The first actor to answer ten calls dies with those that it is answering."""
    shutil.copy(MORTAL, tmp_path)
    options: Mapping[str, Json] = {"adapter": "mortal_provider:Mortal", "replicas": 2}
    done = run_pairs(tmp_path, providers={"ray": {**options, "kills": kills}})
    assert (tmp_path / "killed").exists()
    dead = [one for one in ray_cluster.worker_nodes if one.dead_processes()]
    assert len(dead) == (kills == "node")
    for one in dead:
        ray_cluster.remove_node(one)

    assert sorted(event.seq for event in done.scored) == list(range(160)), "each is told once"
    assert_equal(done.outstanding, Spend())
    assert_equal(done.spent, sum((event.outcome.spend for event in done.scored), Spend()))
    answered = sum((replied_spend(one, answers=0) for one in done.replies), Spend(answers=160))
    lost = done.spent - answered
    assert (lost.answers, lost.tokens) == (0, 0)
    assert lost.calls >= 1
    assert 0 < lost.gpu_seconds <= 0.5 * lost.calls
    assert lost.usd_nanos == pytest.approx(1e6 * lost.gpu_seconds, abs=lost.calls)
    assert capfd.readouterr().out == "", "Ray prints nothing where a result may stand"


def assert_equal(one: Spend, other: Spend) -> None:
    """Compare seconds up to rounding, and all else exactly."""
    assert one.gpu_seconds == pytest.approx(other.gpu_seconds, abs=1e-6)
    assert replace(one, gpu_seconds=0) == replace(other, gpu_seconds=0)
