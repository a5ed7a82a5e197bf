"""Options of the ray provider and the engine that its actors run, without a cluster."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import pytest

from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Json, Request
from bestarm_agent.errors import BestarmError, ConfigError, FailureKind
from bestarm_agent.providers.failures import BilledError, failure
from bestarm_agent.providers.hf.provider import HfProvider
from bestarm_agent.providers.ray import provider as ray_provider
from bestarm_agent.providers.ray.provider import RayProvider, check_installed, connect

SERVE: Mapping[str, Json] = {
    "models": {"small": {"path": "models/small"}},
    "python": "only/on/the/nodes/python",
}


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_provider, "find_spec", lambda name: object())


def provider_of(base: Path, **options: Json) -> RayProvider:
    return RayProvider.create("ray", options, base)


def test_it_describes_models_as_the_engine_does(models: Path) -> None:
    here = HfProvider.create("hf", {"usd_per_gpu_hour": 2, "device": "cpu"}, models)
    there = provider_of(models, replicas=3, usd_per_gpu_hour=2)
    there.check("llama")
    able, one = there.capabilities("llama"), here.capabilities("llama")
    assert able.in_flight == 3 * one.in_flight
    assert (able.params, able.queued, able.price_source) == (one.params, True, "usd_per_gpu_hour")
    assert there.fingerprint("llama") == here.fingerprint("llama")
    request = Request("llama", text="1+2=", params={"max_tokens": 4})
    assert there.bound(request) == here.bound(request)
    assert there.endpoints == ()


def test_accelerators_need_not_be_here(models: Path) -> None:
    """The machine that selects may have none: nothing is asked of its devices."""
    there = provider_of(models, gpus=0.5)
    there.check("llama")
    assert there.fingerprint("llama") != provider_of(models).fingerprint("llama")


def test_servers_of_vllm_get_the_actors_accelerators_and_logs_of_their_own(tmp_path: Path) -> None:
    provider = provider_of(tmp_path, adapter="vllm", gpus=2, replicas=2, serve=SERVE)
    provider.check("small")  # although vLLM and devices are nowhere near
    able = provider.capabilities("small")
    assert "top_k" in able.params, "what the catalogue knows of vllm holds"
    assert (able.in_flight, able.rate_limited) == (512, False)
    create = pickle.loads(pickle.dumps(provider._engine))
    assert create(None).options.gpus == 2
    logs = [create(number).options.log_dir for number in (0, 1)]
    assert logs == ["runs/vllm/actor-0", "runs/vllm/actor-1"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replicas": 0}, "provider `ray`: .*replicas"),
        ({"gpus": -1}, "provider `ray`: .*gpus"),
        ({"adapter": "hv"}, "no provider is called `hv`; there are `alibaba`"),
        ({"adapter": "ray"}, "provider `ray`: actors cannot run `ray`; set `adapter` to hf"),
        ({"max_bach": 3}, "unknown option `max_bach`; did you mean `max_batch`"),
        ({}, "absent"),
        ({"adapter": "openai"}, r"calls an API here.*name the model openai/absent"),
    ],
)
def test_wrong_options_and_models_are_refused_before_the_cluster_is_needed(
    tmp_path: Path, options: Mapping[str, Json], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-nothing")
    with pytest.raises(ConfigError, match=message):
        provider_of(tmp_path, **options).check("absent")


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("no such thing"),
        failure(FailureKind.RATE_LIMITED, "slow down", retry_after=2.5),
        BilledError(failure(FailureKind.SERVER, "died"), Spend(calls=1, tokens=3)),
    ],
)
def test_errors_travel(error: BestarmError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert (str(back), vars(back)) == (str(error), vars(error))


def test_an_error_names_the_extra_where_ray_is_missing(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_provider, "find_spec", lambda name: None)
    check = provider_of(models).check
    for act in (check_installed, lambda: connect("auto"), lambda: check("llama")):
        with pytest.raises(ConfigError, match=r"run: pip install 'bestarm-agent\[ray\]'"):
            act()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:9", "at the address `127.0.0.1:9`: .*refused. Start one .ray start --head."),
        ("nonsense", "at the address `nonsense`: Invalid address format: nonsense. Start one"),
        ("auto", "at the address `auto`: .*refused"),
    ],
)
def test_an_address_without_a_cluster_is_refused_at_once(
    address: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9" if address == "auto" else "")
    with pytest.raises(ConfigError, match=message):
        connect(address)
