"""Opening: what is refused, why, and that a refusal changes nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from bestarm_agent.errors import ConfigError, RunNotFoundError, StoreError, StoreVersionError
from bestarm_agent.store.database import SCHEMA, TABLES, Database
from bestarm_agent.store.store import Store
from tests.support.store_runs import asked, begin, reply, small_run


def fill(path: Path | str, look: Callable[[], object] = list) -> None:
    """Put a run and a reply in a store, making it if need be; ``look`` while it is open."""

    async def main() -> None:
        async with await Store.connect(path) as store:
            log = await store.create("study")
            for event in small_run():
                log.append(event)
            await store.put_reply("key", reply())
            await log.flush()
            look()

    asyncio.run(main())


def check(path: Path | str, *, create: bool = True) -> None:
    """Open a store and see that what ``fill`` put in is there."""

    async def main() -> None:
        async with await Store.connect(path, create=create) as store:
            assert await store.events_of("study") == small_run()
            assert await store.get_reply("key") == reply()

    asyncio.run(main())


def refuse(path: Path | str, kind: type[Exception], match: str, *, create: bool = True) -> None:
    """See that opening is refused in one paragraph."""
    with pytest.raises(kind, match=match) as caught:
        asyncio.run(Store.connect(path, create=create))
    assert "\n" not in str(caught.value)


def columns(path: Path, table: str) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


@contextmanager
def unprivileged() -> Iterator[None]:
    """Let file permissions bind even root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_the_file_is_for_the_user_alone_and_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "runs.db"

    def look() -> None:
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in path.parent.iterdir()}
        assert modes == {f"runs.db{suffix}": 0o600 for suffix in ("", "-wal", "-shm")}

    fill(path, look)
    assert [p.name for p in path.parent.iterdir()] == ["runs.db"]


def test_a_store_opens_by_path_by_text_and_by_url_and_as_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.touch()
    fill(f"sqlite:///{path}")
    for place in (path, str(path), f"sqlite:///{path}"):
        check(place, create=False)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def a_text(path: Path) -> None:
    path.write_bytes(b"not a database, though long enough to be one" * 99)


def a_byte(path: Path) -> None:
    path.write_bytes(b"x")


def of_another_program(path: Path, table: str = "CREATE TABLE mails (id INT)") -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(table)


def with_a_table_of_that_name(path: Path) -> None:
    of_another_program(path, "CREATE TABLE meta (key TEXT, value TEXT)")


def of_a_newer_version(path: Path) -> None:
    fill(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE meta SET value = '99'")
        connection.commit()


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (a_text, "not an SQLite database; give another `output_dir`"),
        (a_byte, "not an SQLite database; give another `output_dir`"),
        (of_another_program, "tables of another program.*a store of its own"),
        (with_a_table_of_that_name, "tables of another program.*a store of its own"),
        (of_a_newer_version, f"schema version 99.*knows {SCHEMA}.*pip install --upgrade"),
    ],
)
def test_what_is_no_store_of_ours_is_refused_and_left_alone(
    tmp_path: Path, made: Callable[[Path], None], match: str
) -> None:
    path = tmp_path / "runs.db"
    made(path)
    before = path.read_bytes()
    refuse(path, StoreVersionError if made is of_a_newer_version else StoreError, match)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("create", [True, False])
def test_a_folder_is_no_store(tmp_path: Path, create: bool) -> None:
    match = r"is a folder; name a file in it, .*/runs\.sqlite"
    refuse(tmp_path, StoreError, match, create=create)


def test_an_absent_store_is_not_made_where_that_is_not_wanted(tmp_path: Path) -> None:
    refuse(tmp_path / "runs.db", StoreError, "there is no store at", create=False)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refuse(tmp_path / "file" / "runs.db", StoreError, "cannot be used")
    folder, path = tmp_path / "folder", tmp_path / "runs.db"
    folder.mkdir(mode=0o555)
    fill(path)
    path.chmod(0o400)
    with unprivileged():
        for place in (folder / "runs.db", path):
            refuse(place, StoreError, "make it and its folder writable, or copy it.*Permission")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("mysql://me:hunter2@host/db", r"got 'mysql://me:\*\*\*@host/db'"),
        ("sqlite://", "a store is the path of an SQLite file"),
        ("sqlite:///:memory:", "a store is the path of an SQLite file"),
        (":memory:", r"`Store.in_memory\(\)` makes one in memory"),
        ("postgresql://me:hunter2@host:port/db", "not understood"),
    ],
)
def test_other_urls_are_refused_without_showing_passwords(url: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match) as caught:
        asyncio.run(Store.connect(url))
    assert "hunter2" not in str(caught.value)


def test_postgres_without_its_driver_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    refuse("postgresql://me@host/db", ConfigError, r"pip install 'bestarm-agent\[postgres\]'")


def test_the_tables_are_those_of_version_8(tmp_path: Path) -> None:
    """When this fails, the version of the layout has to rise."""
    path = tmp_path / "runs.db"
    fill(path)
    assert {table: columns(path, table) for table in TABLES} == {
        "meta": ["key", "value"],
        "runs": ["ordinal", "id", "name", "at", "n_asked", "n_told", "stopped", "n_events"],
        "events": ["run_id", "n", "kind", "payload"],
        "replies": ["key", "payload"],
        "states": ["name", "version", "payload"],
        "locks": ["name", "owner", "seen"],
    }


# deleted, replaced and copied stores


def lose(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_store_that_is_gone_stops_the_run_at_its_next_event(
    tmp_path: Path, is_replaced: bool
) -> None:
    path = tmp_path / "runs.db"
    fill(tmp_path / "other.db")

    async def main() -> None:
        store = await Store.connect(path)
        log = await begin(store)
        lose(path)
        if is_replaced:
            (tmp_path / "other.db").rename(path)
        log.append(asked(0))
        with pytest.raises(StoreError, match="was deleted or replaced while it was in use"):
            await log.flush()
        with pytest.raises(StoreError, match="was deleted or replaced"):
            await store.put_reply("key", reply())
        with pytest.raises(StoreError, match="was deleted or replaced"):
            await store.close()

    asyncio.run(main())
    if is_replaced:
        check(path)


def copied_while_in_use(folder: Path, *endings: str) -> Path:
    """Copy parts of a store that a run is writing."""
    copy = folder / "copy" / "runs.db"
    copy.parent.mkdir()

    def take() -> None:
        for ending in ("", *endings):
            shutil.copy(folder / f"runs.db{ending}", f"{copy}{ending}")

    fill(folder / "runs.db", take)
    return copy


def test_a_copy_without_its_write_ahead_log_is_explained(tmp_path: Path) -> None:
    copy = copied_while_in_use(tmp_path)
    with pytest.raises(RunNotFoundError, match=r"copied while it was in use.*ending in -wal too"):
        check(copy, create=False)


def test_a_copy_with_its_write_ahead_log_is_read(tmp_path: Path) -> None:
    check(copied_while_in_use(tmp_path, "-wal"), create=False)


def test_a_connection_that_is_in_use_when_the_store_closes_is_closed_when_it_is_given_back(
    tmp_path: Path,
) -> None:
    opened = Database.of(tmp_path / "runs.sqlite", create=True)
    connection = opened.engine.connect()
    driver = connection.connection.driver_connection
    opened.close()
    assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    connection.close()
    assert isinstance(driver, sqlite3.Connection)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        driver.execute("SELECT 1")
