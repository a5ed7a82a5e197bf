"""Damaged stores: every command says so, and none ends in a traceback or writes elsewhere."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from bestarm_agent.domain.spend import Budget
from tests.support.commands import invoke
from tests.support.studies import run_all, store_of, write_study

Random = np.random.Generator
T = TypeVar("T")

COLUMNS = {
    "runs": ("id", "name", "at", "n_asked", "n_told", "stopped", "n_events", "ordinal"),
    "events": ("run_id", "n", "kind", "payload"),
    "replies": ("key", "payload"),
    "locks": ("name", "owner", "seen"),
    "meta": ("key", "value"),
}
ODD: list[object] = [
    *(None, b"\xff\xfe\x00", 10**18, -1, 1.5, "", "{", "[]", "null", "7", '"text"', "{}"),
    *('{"seq":-1}', '{"seq":0,"candidate":99,"example":0,"reason":"x"}', "told", "x" * 5000),
    *("../../../pwned", '{"text":5}', '{"seq":0,"outcome":{},"score":2}', "\x00", "1:x@y", "@"),
]
COMMANDS = (
    ("show", "latest"),
    ("list",),
    ("export", "latest", "--texts", "--out", "scores.csv"),
    ("report", "latest"),
    ("resume", "latest", "--budget-answers", "2", "-q"),
)


def drawn(values: Sequence[T], random: Random) -> T:
    return values[int(random.integers(len(values)))]


def of_bytes(path: Path, random: Random) -> None:
    """Change bytes, or lose the end of the file."""
    content = bytearray(path.read_bytes())
    if random.random() < 0.3:
        del content[int(random.integers(100, len(content))) :]
    else:
        for _ in range(drawn((1, 20, 400), random)):
            content[int(random.integers(100, len(content)))] = int(random.integers(256))
    path.write_bytes(content)


def of_a_page(path: Path, random: Random) -> None:
    content = bytearray(path.read_bytes())
    start = 4096 * int(random.integers(1, len(content) // 4096))
    content[start : start + 4096] = bytes(4096)
    path.write_bytes(content)


def of_values(path: Path, random: Random) -> None:
    """Put values where they do not belong, or take rows away."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = 1")
        table = drawn([*COLUMNS, "events", "events", "events", "runs"], random)
        limit = drawn((1, 1, 3), random)
        key = "n" if table == "events" else next(iter(COLUMNS[table]))
        some = f"{key} IN (SELECT {key} FROM {table} ORDER BY random() LIMIT {limit})"
        try:
            if random.random() < 0.2:
                connection.execute(f"DELETE FROM {table} WHERE {some}")
            else:
                column = drawn(COLUMNS[table], random)
                value = drawn(ODD, random)
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE {some}", (value,))
        except sqlite3.IntegrityError:  # the table forbids it; other damage is done instead
            of_bytes(path, random)
    connection.close()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study with a finished run, and one that was cut off."""
    folder = tmp_path_factory.mktemp("finished")
    path = write_study(folder, n_candidates=3, n_examples=12)
    run_all(path, Budget(answers=8))
    run_all(path, Budget(answers=20))
    with closing(sqlite3.connect(store_of(path))) as connection, connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return folder


def damaged(
    finished: Path,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    seed: int,
    damage: Callable[[Path, Random], None],
) -> None:
    """Damage a copy, and try all commands on it."""
    for command in COMMANDS:
        study = folder / f"{seed}" / "deep" / "er" / command[0]
        shutil.copytree(finished, study)
        store = store_of(study / "study.json")
        damage(store, np.random.default_rng(seed))
        try:
            done = invoke(capsys, *command, "--store", store, folder=study)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {command[0]} ended in a traceback") from error
        assert done.code in (0, 1, 2, 3, 4), f"seed {seed}: {command[0]}"
        if done.code in (1, 2):
            assert done.err.strip(), "it says why"
    assert not list(folder.rglob("pwned*")), f"seed {seed}: a file outside of the store's folder"


DAMAGES = {"bytes": of_bytes, "page": of_a_page, "values": of_values}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_store_is_said_to_be_one(
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path, Random], None],
) -> None:
    for seed in range(4):
        damaged(finished, tmp_path, capsys, seed, damage)


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("first", range(100, 140, 10))
def test_many_damaged_stores(
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path, Random], None],
    first: int,
) -> None:
    for seed in range(first, first + 10):
        damaged(finished, tmp_path, capsys, seed, damage)


@pytest.mark.parametrize("command", ["show", "report", "export"])
def test_a_run_id_that_leads_elsewhere_is_refused(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    study = tmp_path / "a" / "b" / "c"
    shutil.copytree(finished, study)
    store = store_of(study / "study.json")
    with closing(sqlite3.connect(store)) as connection, connection:
        [(run_id,)] = connection.execute("SELECT id FROM runs WHERE ordinal = 2")
        for table, key in (("runs", "id"), ("events", "run_id")):
            renaming = f"UPDATE {table} SET {key} = '../../../pwned' WHERE {key} = ?"
            connection.execute(renaming, (run_id,))
    connection.close()
    done = invoke(capsys, command, "latest", "--store", store, folder=study)
    assert done.code == 1
    assert "is damaged" in done.told
    assert not list(tmp_path.rglob("pwned*"))
