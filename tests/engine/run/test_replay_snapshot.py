"""A killed run is shown and resumed from its last snapshot as if its whole log were replayed."""

from __future__ import annotations

import asyncio
import gzip
import pickle
import shutil
import sqlite3
from pathlib import Path

import pytest

from bestarm_agent import Budget, Study
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.events import Asked, Event
from bestarm_agent.engine.run import replay_snapshot
from bestarm_agent.engine.setup.open_run import Options
from bestarm_agent.errors import StoreError
from bestarm_agent.runs import Archive, StoredRun
from bestarm_agent.store.registry import open_store
from bestarm_agent.testing.virtual_time import LoopClock, run_virtual
from tests.support.studies import store_of, write_study

RULES: dict[str, dict[str, Json]] = {
    "auto": {"selector": {"name": "auto"}},
    "ucb-e-lrf": {"selector": {"name": "ucb-e-lrf"}},
    "racing": {"selector": {"name": "racing"}},
    "cheapest": {"objective": {"name": "cheapest-within-epsilon", "epsilon": 0.1}},
    "confirm": {"confirm": {"share": 0.2}},
    "slices": {
        "slices": {"by": ["length_bucket"]},
        "objective": {"baseline": "c0", "subject_to": {"slice_loss": "<= 0.2"}},
        "selector": {"name": "auto"},
    },
}


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_snapshot, "_FEWEST_NEW", 10)


def killed(tmp_path: Path, changes: dict[str, Json], pulls: int = 55) -> Path:
    """Run a study and remove what a session leaves at its end; return its store."""
    path = write_study(tmp_path, n_examples=30, changes={"limits": {"in_flight": 4}, **changes})

    async def main() -> None:
        async with Study.open(path, options=Options(clock=LoopClock())) as study:
            await study.run(Budget(pulls=pulls))

    run_virtual(main())
    store = store_of(path)
    change(store, "DELETE FROM snapshots WHERE part != 'replay'")
    return store


def change(store: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(store) as connection:
        connection.execute(statement, values)
    connection.close()


def kept(store: Path) -> tuple[int, bytes]:
    """The number of events in the snapshot, and its content."""
    with sqlite3.connect(store) as connection:
        found: tuple[int, bytes] = connection.execute(
            "SELECT n_events, payload FROM snapshots WHERE part = 'replay'"
        ).fetchone()
    connection.close()
    return found


def spoil_before_snapshot(store: Path) -> None:
    """Make the pairs before the snapshot unreadable, but for the event that it is known by."""
    n_events, _ = kept(store)
    change(
        store,
        "UPDATE events SET payload = '{}' WHERE kind IN ('asked', 'told') AND n < ?",
        n_events - 1,
    )


def record_of(store: Path) -> StoredRun:
    return asyncio.run(Archive(store).record("latest"))


def page_of(store: Path) -> str:
    return asyncio.run(Archive(store).write_report("latest")).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["auto", "cheapest", "confirm", "slices"])
def test_only_the_pairs_behind_the_snapshot_are_replayed(tmp_path: Path, rule: str) -> None:
    store = killed(tmp_path, RULES[rule])
    change(store, "UPDATE snapshots SET digest = 'not ' || digest")
    whole, page = record_of(store), page_of(store)
    change(store, "UPDATE snapshots SET digest = substr(digest, 5)")
    spoil_before_snapshot(store)
    assert record_of(store) == whole
    assert page_of(store) == page


async def go_on(store: Path) -> list[Event]:
    """Resume the run, and return its asks."""
    async with Study.resume(options=Options(store=store, clock=LoopClock())) as study:
        await study.run(Budget(pulls=20))
    async with open_store(store, create=False) as opened:
        return [event for event in await opened.events_of("latest") if isinstance(event, Asked)]


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["auto", "ucb-e-lrf", "racing", "cheapest"])
def test_a_run_resumed_from_its_snapshot_asks_what_a_replayed_one_asks(
    tmp_path: Path, rule: str
) -> None:
    # one at a time: with several in flight, the store's thread decides which answer comes first
    one = killed(tmp_path / "one", {**RULES[rule], "limits": {"in_flight": 1}})
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    other = tmp_path / "other" / one.relative_to(tmp_path / "one")
    change(other, "DELETE FROM snapshots")
    asked, replayed = run_virtual(go_on(one)), run_virtual(go_on(other))
    assert asked == replayed
    assert len(asked) == 75


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(print),
        pickle.dumps(Path("x")),
        pickle.dumps({"not": "a replay"}),
        b"no pickle",
        b"cbestarm_agent.engine.run.replay_snapshot\n_code\n.",
        b"\x80\x04cbestarm_agent.engine.run.replay_snapshot\ngzip.GzipFile\n(S'written'\nS'wb'\ntR.",
        b"cbestarm_agent.engine.run.replay_snapshot\nPath\n(S'x'\ntR.",
    ],
)
def test_a_snapshot_that_holds_anything_else_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    store = killed(tmp_path, {})
    monkeypatch.chdir(tmp_path)
    shown = record_of(store)
    change(store, "UPDATE snapshots SET payload = ?", _packed(content))
    assert record_of(store) == shown
    assert not Path("written").exists()


def _packed(content: bytes) -> bytes:
    return replay_snapshot._code() + gzip.compress(content)


def test_a_snapshot_of_other_code_is_ignored(tmp_path: Path) -> None:
    store = killed(tmp_path, {})
    spoil_before_snapshot(store)
    assert record_of(store).standing.told == 55
    change(store, "UPDATE snapshots SET payload = ?", b"0" + kept(store)[1])
    with pytest.raises(StoreError, match="damaged"):
        record_of(store)


def test_a_snapshot_holds_no_study(tmp_path: Path) -> None:
    """The log leaves secrets out; what is kept beside it must not bring them back."""
    _, payload = kept(killed(tmp_path, {"name": "a-name-to-be-found"}))
    content = gzip.decompress(payload.removeprefix(replay_snapshot._code()))
    assert b"a-name-to-be-found" not in content
