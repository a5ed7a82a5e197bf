"""Long logs that are read as columns, against their lines."""

from __future__ import annotations

import asyncio
import io
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from bestarm_agent.domain.events import (
    Attempted,
    CandidatesBarred,
    Event,
    Resumed,
    Settled,
    Stopped,
    Told,
)
from bestarm_agent.domain.spend import MOST, Spend, Usage
from bestarm_agent.domain.values import Failure, Outcome, Score
from bestarm_agent.engine.record import RunRecord, Size
from bestarm_agent.errors import Blame, FailureKind, StoreError
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rules.racing import Uniform
from bestarm_agent.store import chunks
from bestarm_agent.store import store as store_module
from bestarm_agent.store.chunks import folded
from bestarm_agent.store.codec import line_of
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.store import Store
from tests.support.store_runs import AT, asked, failed, grid, started, told

K, N = 3, 60


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 40)
    monkeypatch.setattr(store_module, "_EVENTS_PAGE", 10)


def log(seed: int) -> Iterator[Event]:
    """A run with all that a log of pairs may hold, some of it in a few chunks only."""
    rng = np.random.default_rng([seed, 91])
    yield replace(started(), measures=("brevity", "tone"))
    yield from grid(K, N)
    order, waiting, seq = rng.permutation(N).tolist(), [], 0
    for place in order:
        for row in range(K):
            yield replace(asked(seq, row, place), reason=("warm-up", "duel", "é")[place % 3])
            waiting.append(seq)
            if seq % 5 == 0:
                yield Attempted(seq, f"key-{seq}", Spend(calls=1, usd_nanos=9), judge=seq % 2 == 0)
                if seq % 2:
                    yield Settled(seq, f"key-{seq}", Spend(calls=1, usd_nanos=5))
            seq += 1
        while waiting and (len(waiting) > 6 or place == order[-1]):
            yield outcome(waiting.pop(int(rng.integers(len(waiting)))), rng)
        if place == order[20]:
            yield Stopped(AT, "interrupted", 2.5)
            yield Resumed(AT, "0.1.1")
        if place == order[40]:
            yield CandidatesBarred((2,), "too dear")
    yield Stopped(AT, "exhausted", 3.25)


def outcome(seq: int, rng: np.random.Generator) -> Event:
    kind = rng.random()
    if kind < 0.1:
        return failed(seq)
    if kind < 0.2:
        failure = Failure(FailureKind.REFUSED, Blame.CANDIDATE, f"no {seq % 3}")
        return replace(failed(seq, score=0.0), outcome=Outcome(failure=failure, seconds=0.25))
    plain = told(seq, float(np.round(rng.random(), 2)))
    score = Score(plain.score or 0.0, measures=(0.5, None) if seq % 2 else (0.25, 1.0))
    changed = replace(
        plain.outcome, score=score, cached=seq % 7 == 0, sign="empty" if seq % 11 == 0 else ""
    )
    if seq % 31 == 0:  # as much as a provider may say that one call took
        most = int(MOST)
        spend = Spend(answers=1, calls=most, tokens=most, usd_nanos=most, gpu_seconds=MOST)
        changed = replace(changed, spend=spend, usage=Usage(output=most), usd_nanos=most)
    return replace(plain, outcome=changed, elapsed=seq / 7)


def open_pairs(size: Size, _: object) -> Pairs:
    return Pairs(Uniform(size.problem(per_dollar=False)))


def by_lines(events: list[Event]) -> RunRecord:
    record = RunRecord(open_pairs)
    for event in events:
        record.take([line_of(event)])
    return record


async def stored(path: Path, events: list[Event]) -> str:
    async with await Store.connect(path) as store:
        run = await store.create("study")
        for event in events:
            run.append(event)
        await run.close()
        return run.run_id


async def read(path: Path, run_id: str) -> RunRecord:
    record = RunRecord(open_pairs)
    async with await Store.connect(path) as store:
        await record.take_all(store, run_id)
    return record


def assert_equal(one: RunState, other: RunState) -> None:
    for name in vars(other):
        if name in ("_asked", "_told", "_order", "_pending"):
            continue  # with room behind what they hold
        np.testing.assert_equal(getattr(one, name), getattr(other, name), err_msg=name)
    np.testing.assert_array_equal(one.asks, other.asks)
    np.testing.assert_array_equal(one.order, other.order)
    for name in other.told.dtype.names or ():
        np.testing.assert_array_equal(one.told[name], other.told[name], err_msg=name)


def assert_alike(one: RunRecord, other: RunRecord) -> None:
    assert_equal(one.state, other.state)
    estimates = one.pairs.answer.estimates(), other.pairs.answer.estimates()
    for name in ("mean", "lower", "upper", "n"):
        np.testing.assert_equal(*(getattr(each, name) for each in estimates))
    assert one.pairs.answer.ranking() == other.pairs.answer.ranking()
    assert one.pairs.next_choice() == other.pairs.next_choice()
    assert one.pairs.answer.barred.tolist() == other.pairs.answer.barred.tolist()


def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the lines that are parsed from now on."""
    sizes: list[int] = []
    take = RunState.take

    def counted(state: RunState, lines: list[tuple[str, str]]) -> object:
        sizes.append(len(lines))
        return take(state, lines)

    monkeypatch.setattr(RunState, "take", counted)
    return sizes


@pytest.mark.parametrize("seed", range(3))
def test_columns_make_what_the_lines_make(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = list(log(seed))
    expected, path = by_lines(events), tmp_path / "runs.sqlite"
    run_id = asyncio.run(stored(path, events))
    for _ in range(2):  # from the lines, and then from the columns
        n_parsed = parsed(monkeypatch)
        assert_alike(asyncio.run(read(path, run_id)), expected)
    assert sum(n_parsed) < 0.6 * len(events)

    async def fold_it() -> RunState:
        async with await Store.connect(path) as store:
            return await folded(store, "latest")

    assert_equal(asyncio.run(fold_it()), expected.state)


def changed(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


DAMAGE = {
    "gone": "DELETE FROM states WHERE name LIKE 'columns %'",
    "cut off": "UPDATE states SET payload = substr(payload, 1, 200) WHERE name LIKE 'columns %'",
    "no archive": "UPDATE states SET payload = x'00ff' WHERE name LIKE 'columns %'",
    "of another chunk": "UPDATE states SET payload = (SELECT payload FROM states WHERE name LIKE "
    "'columns % 4') WHERE name LIKE 'columns %'",
}


@pytest.mark.parametrize("statement", DAMAGE.values(), ids=DAMAGE.keys())
def test_columns_that_do_not_fit_are_made_anew(
    tmp_path: Path, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = list(log(0))
    expected, path = by_lines(events), tmp_path / "runs.sqlite"
    run_id = asyncio.run(stored(path, events))
    asyncio.run(read(path, run_id))
    changed(path, statement)
    assert_alike(asyncio.run(read(path, run_id)), expected)
    n_parsed = parsed(monkeypatch)
    assert_alike(asyncio.run(read(path, run_id)), expected)
    assert sum(n_parsed) < 0.6 * len(events), "and stored again"


def test_a_flipped_byte_is_noticed_wherever_it_is(tmp_path: Path) -> None:
    events = list(log(0))
    expected, path = by_lines(events), tmp_path / "runs.sqlite"
    run_id = asyncio.run(stored(path, events))
    asyncio.run(read(path, run_id))
    with closing(sqlite3.connect(path)) as connection, connection:
        [(name, data)] = connection.execute(
            "SELECT name, payload FROM states WHERE name LIKE 'columns %' LIMIT 1"
        )
    for place in range(60, len(data), len(data) // 8):
        flipped = bytearray(data)
        flipped[place] ^= 0x10
        changed(path, "UPDATE states SET payload = ? WHERE name = ?", bytes(flipped), name)
        assert_equal(asyncio.run(read(path, run_id)).state, expected.state)


def test_another_log_is_not_taken_for_the_one_that_columns_stand_for(tmp_path: Path) -> None:
    events = list(log(0))
    path = tmp_path / "runs.sqlite"
    run_id = asyncio.run(stored(path, events))
    asyncio.run(read(path, run_id))
    place = next(n for n in range(90, len(events)) if line_of(events[n])[0] == "told")
    before = events[place]
    assert isinstance(before, Told)
    edited = replace(before, score=None)
    kind, payload = line_of(edited)
    changed(path, "UPDATE events SET payload = ? WHERE n = ? AND kind = ?", payload, place, kind)
    expected = by_lines([*events[:place], edited, *events[place + 1 :]])
    assert_alike(asyncio.run(read(path, run_id)), expected)


def test_a_store_that_cannot_be_written_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = list(log(1))
    path = tmp_path / "runs.sqlite"
    run_id = asyncio.run(stored(path, events))

    async def refused(*_: object, **__: object) -> int:
        raise StoreError("the disk is full")

    monkeypatch.setattr(Store, "put_state", refused)
    assert_alike(asyncio.run(read(path, run_id)), by_lines(events))


async def recorded(path: Path, parts: list[list[Event]]) -> str:
    """Record a run in as many sessions, each of which but the last is killed."""
    run_id = ""
    for events in parts:
        async with await Store.connect(path) as store:
            record = RunRecord(open_pairs)
            if run_id:
                await record.take_all(store, run_id)
            log = record.log = await (store.open(run_id) if run_id else store.create("study"))
            run_id = log.run_id
            for place, event in enumerate(events):
                record.record(event, is_known=False)
                if place % 7 == 0:
                    await record.flush()
            await record.flush()
    return run_id


@pytest.mark.parametrize("cuts", [(), (101,), (120, 200, 203)])
def test_a_run_writes_its_columns_itself_also_after_it_was_killed(
    tmp_path: Path, cuts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    events, path = list(log(2)), tmp_path / "runs.sqlite"
    ends = [0, *cuts, len(events)]
    parts = [events[start:end] for start, end in pairwise(ends)]
    run_id = asyncio.run(recorded(path, parts))
    expected, n_parsed = by_lines(events), parsed(monkeypatch)
    assert_alike(asyncio.run(read(path, run_id)), expected)
    assert sum(n_parsed) < 0.6 * len(events)

    # the same bytes as those that the first reader of the lines writes
    with closing(sqlite3.connect(path)) as connection, connection:
        query = "SELECT name, payload FROM states WHERE name LIKE 'columns %' ORDER BY name"
        by_run = connection.execute(query).fetchall()
        connection.execute("DELETE FROM states")
    asyncio.run(read(path, run_id))
    with closing(sqlite3.connect(path)) as connection, connection:
        by_reader = connection.execute(query).fetchall()
    assert len(by_run) > 3
    for (name, one), (other_name, other) in zip(by_run, by_reader, strict=True):
        assert name == other_name
        with np.load(io.BytesIO(one)) as a, np.load(io.BytesIO(other)) as b:
            assert a.files == b.files
            for key in a.files:
                assert a[key].tobytes() == b[key].tobytes(), key  # NaN equals NaN


def test_columns_of_events_that_a_crash_took_are_not_used(tmp_path: Path) -> None:
    events, path = list(log(2)), tmp_path / "runs.sqlite"
    run_id = asyncio.run(recorded(path, [events]))
    kept = 150  # of the log; its columns are all there
    changed(path, "DELETE FROM events WHERE n >= ?", kept)
    changed(path, "UPDATE runs SET n_events = ?", kept)
    seqs = by_lines(events[:kept]).state.pending
    others = [told(seq, 0.5) for seq in seqs]

    async def going_on() -> None:
        async with await Store.connect(path) as store, await store.open(run_id) as run:
            record = RunRecord(open_pairs, run)
            await record.take_all(store, run_id)
            for event in others:
                record.record(event, is_known=False)
            await record.flush()

    asyncio.run(going_on())
    assert_alike(asyncio.run(read(path, run_id)), by_lines([*events[:kept], *others]))
