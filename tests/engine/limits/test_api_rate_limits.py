"""Rate limits over real sockets and SDKs: two servers that count what they are sent."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from bestarm_agent import Study
from bestarm_agent.domain.values import Json
from bestarm_agent.engine.results.standing import Standing
from tests.support.api_studies import ANTHROPIC_MODELS, KEYS, OPENAI_MODELS, study_of
from tests.support.fake_api import FakeApi, FakeModel, Rates, in_thread, quality

N_EXAMPLES = 45
RPM = 600  # 10 a second: 45 calls to a model take 4 s, 6 of them at once
# The servers forgive bunches of 3 s, since the sockets of a busy machine make some.
ENFORCED = FakeModel(rates=Rates(rpm=RPM, burst_seconds=3.0))


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)


def server(key: str) -> FakeApi:
    models = {**OPENAI_MODELS, **ANTHROPIC_MODELS}
    return FakeApi(quality(models), models=dict.fromkeys(models, ENFORCED), key=key)


async def run(path: Path) -> Standing:
    async with Study.open(path) as study:
        return await study.run()


@pytest.mark.slow
@pytest.mark.parametrize(
    "providers",
    [{}, {"openai": {"rpm": RPM}, "anthropic": {"rpm": RPM}}],
    ids=["learned from headers", "given"],
)
def test_no_server_counts_a_violation(tmp_path: Path, providers: dict[str, Json]) -> None:
    one, other = (server(key) for key in KEYS.values())
    changes = {"limits": {"in_flight": 100, "providers": providers}}
    with in_thread(one), in_thread(other):
        path = study_of(tmp_path, one, other, n_examples=N_EXAMPLES, changes=changes)
        standing = asyncio.run(run(path))
    assert standing.told == standing.grid == 6 * N_EXAMPLES
    limiters = [*one.limiters.values(), *other.limiters.values()]
    assert sum(limiter.granted for limiter in limiters) == standing.told
    assert sum((limiter.violations for limiter in limiters), Counter[str]()) == {}
