"""Actors and nodes of a cluster that die in the middle of a run."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.events import Event, Told
from bestarm_agent.domain.outcome import Scored
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.domain.spend import Reservations, Spend
from bestarm_agent.engine.call import replied_spend
from bestarm_agent.store.store import Store
from bestarm_agent.study import Study
from tests.support.studies import store_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MORTAL = Path(__file__).with_name("mortal_provider.py")


@dataclass(frozen=True)
class Run:
    """What a run left behind."""

    balance: Reservations
    events: Sequence[Event]
    replies: Sequence[Reply]

    @property
    def scored(self) -> list[Told]:
        told = [event for event in self.events if isinstance(event, Told)]
        return [event for event in told if isinstance(event.outcome, Scored)]


def run_study(folder: Path, **changes: Json) -> Run:
    """Run a study of 160 pairs to its end."""
    rows = [{"id": f"e{n}", "q": f"q{n}", "answer": f"Q{n}"} for n in range(80)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {
        "name": "cluster",
        "models": ["ray/a", "ray/b"],
        "prompts": [{"plain": "{{ q }}"}],
        "dataset": {"path": "rows.jsonl", "target": "answer", "id": "id"},
        "scorer": "exact",
        "selector": {"name": "uniform", "stop_when_separated": False},
        **changes,
    }
    path = folder / "study.json"
    path.write_text(json.dumps(config))

    async def main() -> Run:
        async with Study.open(path) as study:
            await study.run()
            balance = study.balance()
        async with await Store.connect(store_of(path), create=False) as store:
            replies = [reply async for _, reply in store.replies()]
            return Run(balance, await store.events_of("latest"), replies)

    return asyncio.run(main())


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
    done = run_study(tmp_path, providers={"ray": {**options, "kills": kills}})
    assert (tmp_path / "killed").exists()
    dead = [one for one in ray_cluster.worker_nodes if one.dead_processes()]
    assert len(dead) == (kills == "node")
    for one in dead:
        ray_cluster.remove_node(one)

    assert sorted(event.seq for event in done.scored) == list(range(160)), "each is told once"
    balance = done.balance
    assert_equal(balance.reserved, balance.settled + balance.refunded)
    assert_equal(balance.difference, Spend())
    assert_equal(balance.overrun, Spend())
    assert_equal(balance.spent, sum((event.outcome.spend for event in done.scored), Spend()))
    lost = balance.spent - sum(by_actor(done.replies).values(), Spend(pulls=160))
    assert (lost.pulls, lost.tokens) == (0, 0)
    assert lost.calls >= 1
    assert 0 < lost.gpu_seconds <= 0.5 * lost.calls
    assert lost.usd_nanos == pytest.approx(1e6 * lost.gpu_seconds, abs=lost.calls)
    assert capfd.readouterr().out == "", "Ray prints nothing where a result may stand"


def assert_equal(one: Spend, other: Spend) -> None:
    """Compare seconds up to rounding, and all else exactly."""
    assert one.gpu_seconds == pytest.approx(other.gpu_seconds, abs=1e-6)
    assert replace(one, gpu_seconds=0) == replace(other, gpu_seconds=0)


def by_actor(replies: Sequence[Reply]) -> dict[int, Spend]:
    """Sum up the replies of each actor."""
    sums: dict[int, Spend] = {}
    for reply in replies:
        number = reply.sent["actor"]
        assert isinstance(number, int)
        spend = replied_spend(reply, pulls=0)
        sums[number] = sums.get(number, Spend()) + spend
    return sums
