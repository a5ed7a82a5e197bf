"""A killed run is shown and resumed from its last snapshot as if its whole log were replayed."""

from __future__ import annotations

import asyncio
import gzip
import pickle
import shutil
import sqlite3
import time
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import pytest

from bestarm_agent import Budget, Study
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.events import Asked, Event
from bestarm_agent.engine.results.trajectory import Trajectory
from bestarm_agent.engine.run import replay_snapshot
from bestarm_agent.engine.run.event_log import Size
from bestarm_agent.engine.run.replay import Replayed
from bestarm_agent.engine.run.replay_snapshot import SnapshotKeeper
from bestarm_agent.engine.setup.open_run import Options
from bestarm_agent.errors import StoreError
from bestarm_agent.runs import Archive, StoredRun
from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.rules.uniform import Uniform
from bestarm_agent.selectors.types import Problem, State
from bestarm_agent.store.registry import open_store
from bestarm_agent.store.run_state import fold
from bestarm_agent.testing.store_runs import asked, grid, started, told
from bestarm_agent.testing.virtual_time import LoopClock, run_virtual
from tests.support.studies import store_of, write_study

RULES: dict[str, dict[str, Json]] = {
    "auto": {"selector": {"name": "auto"}},
    "ucb-e-lrf": {"selector": {"name": "ucb-e-lrf"}},
    "racing": {"selector": {"name": "racing"}},
    "cheapest": {"objective": {"name": "cheapest-within-epsilon", "epsilon": 0.1}},
    "confirm": {"confirm": {"share": 0.2}},
}


SIZE = Size(2, 50)


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


@pytest.mark.parametrize(
    ("module", "name"),
    [("bestarm_agent.store.locks", "FileLocks"), ("somebody.selectors.rules", "Rule")],
)
def test_only_rooms_of_values_in_this_package_are_read_from(module: str, name: str) -> None:
    with pytest.raises(pickle.UnpicklingError, match=f"must not hold {module}.{name}"):
        replay_snapshot._Reader(BytesIO()).find_class(module, name)


def test_a_member_of_an_enum_is_read_and_an_attribute_of_something_else_is_not() -> None:
    assert replay_snapshot._attribute(State, "DONE") is State.DONE
    with pytest.raises(pickle.UnpicklingError, match="must not take real of a int"):
        replay_snapshot._attribute(1, "real")


def replayed(n_told: int, rule: type[Selector] = Uniform) -> Replayed:
    """What the log of 2 x 50 pairs amounts to after some of the first candidate were told."""
    pairs = [one for seq in range(n_told) for one in (asked(seq), told(seq))]
    source = rule(Problem(2, 50))
    return Replayed(fold([started(), *grid(2, 50), *pairs]), Trajectory(), SIZE, None, source)


class Kept:
    """A log that notes the number of events in each snapshot; a clock and a loop beside it."""

    run_id = "run"

    def __init__(self) -> None:
        self.each_turn: list[Callable[[], None]] = []
        self.n_events: list[int] = []
        self.told, self.at = 0, 0.0

    def now(self) -> float:
        return self.at

    async def keep_snapshot(self, part: str, payload: bytes, n_events: int) -> None:
        self.n_events.append(n_events)


def looked(looks: Sequence[tuple[float, int]]) -> list[int]:
    """Look at these times, with so many told; return the events in each snapshot."""
    kept: Any = Kept()

    async def main() -> None:
        keeper = SnapshotKeeper(kept, kept, lambda: replayed(kept.told))
        for kept.at, kept.told in looks:
            async with keeper.attached_to(kept):
                kept.each_turn[0]()

    asyncio.run(main())
    assert kept.each_turn == []
    found: list[int] = kept.n_events
    return found


def test_a_snapshot_is_due_after_so_many_outcomes_and_a_share_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "thread_time", iter([3.0, 3.5, 4.0, 4.0]).__next__)
    looks = [(0.0, 9), (0.0, 10), (49.0, 20), (50.0, 19), (50.0, 20)]
    assert looked(looks) == [3 + 2 * 10, 3 + 2 * 20]


def test_a_snapshot_that_could_not_be_written_is_tried_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fails = [True, False, False]

    def dump(_: Replayed) -> IO[bytes]:
        if fails.pop(0):
            raise OSError("disk full")
        return BytesIO()

    monkeypatch.setattr(replay_snapshot, "_dump", dump)
    assert looked([(0.0, 10), (99.0, 20), (100.0, 21)]) == [3 + 2 * 21]


def test_of_which_runs_snapshots_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    class Local(Uniform):
        __module__ = Uniform.__module__

    kept = [replay_snapshot._can_be_kept(replayed(0, rule)) for rule in (Uniform, Foreign, Local)]
    assert kept == [True, False, False]
    for n_cells, is_kept in ((100, True), (99, False)):
        monkeypatch.setattr(replay_snapshot, "_MOST_CELLS", n_cells)
        assert replay_snapshot._can_be_kept(replayed(0)) is is_kept


class Foreign(Uniform):
    """A rule of a plug-in."""


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
