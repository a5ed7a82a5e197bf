"""A PostgreSQL server of the tests' own, where its programs are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

PROGRAMS = Path("/usr/lib/postgresql")


def run(command: list[object], user: str | None) -> None:
    """Run one of the server's programs, as an unprivileged user if we are root."""
    subprocess.run(
        [str(part) for part in command],
        user=user,
        check=True,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=60,
    )


@dataclass(frozen=True, slots=True)
class Server:
    """A PostgreSQL server on a UNIX socket."""

    programs: Path
    folder: Path
    user: str | None

    @property
    def url(self) -> str:
        """The URL, with a place for the database's name."""
        return f"postgresql://tester@/{{}}?host={self.folder}"

    def control(self, action: str, *options: str) -> None:
        data = self.folder / "data"
        run([self.programs / "pg_ctl", "-D", data, "-w", *options, action], self.user)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A fresh server."""
    versions = sorted(PROGRAMS.glob("*/bin/initdb"))
    if not versions:
        pytest.skip(f"no PostgreSQL server is installed under {PROGRAMS}")
    if find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed")
    programs = versions[-1].parent
    user = "nobody" if os.geteuid() == 0 else None  # the server refuses to run as root
    # each database of a test is 8 MB in 300 files: to write and delete them takes a disk seconds
    memory = Path("/dev/shm")
    fits = memory.is_dir() and shutil.disk_usage(memory).free > 4 * 2**30
    # short: a socket's path has 107 bytes at most
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir=memory if fits else None))
    server = Server(programs, folder, user)
    options = f"-k {folder} -c listen_addresses='' -c fsync=off"
    try:
        if user:
            shutil.chown(folder, user)
        setup = ["-A", "trust", "-U", "tester", "--no-sync"]
        run([programs / "initdb", "-D", folder / "data", *setup], user)
        server.control("start", "-o", options)
        try:
            yield server
        finally:
            server.control("stop", "-m", "immediate")
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def restart_server(postgres: Server) -> Callable[[], None]:
    """Restarts the server, which ends all sessions."""
    return lambda: postgres.control("restart", "-m", "fast")


@pytest.fixture
def new_database(postgres: Server) -> Callable[[], str]:
    """Makes an empty database and returns its URL."""
    import psycopg

    def create() -> str:
        with psycopg.connect(postgres.url.format("postgres"), autocommit=True) as connection:
            row = connection.execute("SELECT count(*) FROM pg_database").fetchone()
            assert row is not None
            name = f"runs_{row[0]}"
            connection.execute(f'CREATE DATABASE "{name}"')
        return postgres.url.format(name)

    return create
