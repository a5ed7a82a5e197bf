"""Snapshots are shortcuts: with them and without, people are shown the same."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from bestarm_agent import Budget, Study
from bestarm_agent.domain.digest import Json
from bestarm_agent.engine.results import snapshot
from bestarm_agent.engine.results.snapshot import read_shown, read_trajectory
from bestarm_agent.engine.results.trajectory import Trajectory
from bestarm_agent.engine.setup.open_run import Options
from bestarm_agent.errors import StoreError
from bestarm_agent.runs import Archive, StoredRun, recorded_replay
from bestarm_agent.store.registry import open_store
from tests.support.studies import run_all, store_of, write_study

RULES: dict[str, dict[str, Json]] = {
    "auto": {"selector": {"name": "auto"}},
    "ucb-e": {},
    "top-two": {"selector": {"name": "top-two"}},
    "pareto": {"objective": {"name": "pareto"}},
}


def record_of(store: Path) -> StoredRun:
    return asyncio.run(Archive(store).record("latest"))


def n_snapshots(store: Path) -> int:
    with sqlite3.connect(store) as connection:
        count: int = connection.execute("SELECT count(*) FROM snapshots").fetchone()[0]
    connection.close()
    return count


def change(store: Path, statement: str) -> None:
    with sqlite3.connect(store) as connection:
        connection.execute(statement)
    connection.close()


async def trajectories(store: Path) -> tuple[Trajectory | None, Trajectory]:
    """The trajectory that was kept, and the one that the log amounts to."""
    async with open_store(store, create=False) as opened:
        run_id = (await opened.find("latest")).id
        _, replay = await recorded_replay(opened, run_id, store)
        await replay.feed_all(opened.pages_of(run_id, since=replay.state.n_events))
        return await read_trajectory(opened, run_id), replay.trajectory.until_now(replay.pairs)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_without_its_snapshots_a_run_is_shown_alike(tmp_path: Path, rule: str) -> None:
    path = write_study(tmp_path, n_examples=30, changes=RULES[rule])
    run_all(path, Budget(pulls=70))
    store = store_of(path)
    shown = record_of(store)
    kept, replayed = asyncio.run(trajectories(store))
    assert kept is not None
    assert (kept.left, kept.beaten_by) == (replayed.left, replayed.beaten_by)
    for one, other in zip(kept.moments, replayed.moments, strict=True):
        assert (one.told, one.asked) == (other.told, other.asked)
        for name in ("mean", "lower", "upper"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    page = asyncio.run(Archive(store).write_report("latest", tmp_path / "a.html")).read_text()
    change(store, "DELETE FROM snapshots")
    assert record_of(store) == shown
    again = asyncio.run(Archive(store).write_report("latest", tmp_path / "b.html")).read_text()
    assert again == page


def test_a_run_is_not_replayed_to_be_shown(tmp_path: Path) -> None:
    path = write_study(tmp_path, n_examples=20)
    run_all(path, Budget(pulls=30))
    store = store_of(path)
    change(store, "UPDATE events SET payload = '{}' WHERE kind = 'told'")
    assert record_of(store).standing.told == 30
    change(store, "DELETE FROM snapshots")
    with pytest.raises(StoreError, match="damaged"):
        record_of(store)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE snapshots SET digest = 'of another log'",
        "UPDATE snapshots SET n_events = n_events - 1",
        "UPDATE snapshots SET n_events = n_events + 1",
        "UPDATE snapshots SET payload = x'00'",
    ],
)
def test_a_snapshot_that_does_not_fit_is_ignored(tmp_path: Path, statement: str) -> None:
    path = write_study(tmp_path, n_examples=20)
    run_all(path, Budget(pulls=30))
    store = store_of(path)
    shown = record_of(store)
    change(store, statement)

    async def kept() -> tuple[object, object]:
        async with open_store(store, create=False) as opened:
            run_id = (await opened.find("latest")).id
            return await read_shown(opened, run_id), await read_trajectory(opened, run_id)

    assert asyncio.run(kept()) == (None, None)
    assert record_of(store) == shown


def test_another_version_of_the_package_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_study(tmp_path, n_examples=20)
    run_all(path, Budget(pulls=30))
    monkeypatch.setattr(snapshot, "__version__", "99.0")

    async def kept() -> object:
        async with open_store(store_of(path), create=False) as opened:
            return await read_shown(opened, (await opened.find("latest")).id)

    assert asyncio.run(kept()) is None


def test_a_run_that_goes_on_replaces_its_snapshots(tmp_path: Path) -> None:
    path = write_study(tmp_path, n_examples=20)
    run_all(path, Budget(pulls=30))
    store = store_of(path)
    assert n_snapshots(store) == 2

    async def go_on() -> None:
        async with Study.resume(options=Options(store=store)) as study:
            await study.run(Budget(pulls=10))

    asyncio.run(go_on())
    assert n_snapshots(store) == 2
    assert record_of(store).standing.told == 40


def test_a_store_that_may_only_be_read_is_shown_from_its_snapshot(tmp_path: Path) -> None:
    path = write_study(tmp_path, n_examples=20)
    run_all(path, Budget(pulls=30))
    shown = record_of(store_of(path))
    copy = tmp_path / "copy" / "runs.sqlite"
    copy.parent.mkdir()
    shutil.copy(store_of(path), copy)
    change(copy, "UPDATE events SET payload = '{}' WHERE kind = 'told'")
    copy.chmod(0o400)
    copy.parent.chmod(0o500)
    try:
        assert record_of(copy).standing == shown.standing
    finally:
        copy.parent.chmod(0o700)
