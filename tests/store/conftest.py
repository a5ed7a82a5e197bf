"""A PostgreSQL server of the tests' own, where its programs are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
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


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A fresh server on a UNIX socket; its URL without a database."""
    versions = sorted(PROGRAMS.glob("*/bin/initdb"))
    if not versions:
        pytest.skip(f"no PostgreSQL server is installed under {PROGRAMS}")
    if find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed")
    programs = versions[-1].parent
    user = "nobody" if os.geteuid() == 0 else None  # the server refuses to run as root
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short: a socket's path has 107 bytes at most
    data = folder / "data"
    options = f"-k {folder} -c listen_addresses='' -c fsync=off"
    try:
        if user:
            shutil.chown(folder, user)
        run([programs / "initdb", "-D", data, "-A", "trust", "-U", "tester", "--no-sync"], user)
        run([programs / "pg_ctl", "-D", data, "-w", "-o", options, "start"], user)
        try:
            yield f"postgresql://tester@/{{}}?host={folder}"
        finally:
            run([programs / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop"], user)
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def new_database(postgres_server: str) -> Callable[[], str]:
    """Makes an empty database and returns its URL."""
    import psycopg

    def create() -> str:
        with psycopg.connect(postgres_server.format("postgres"), autocommit=True) as connection:
            row = connection.execute("SELECT count(*) FROM pg_database").fetchone()
            assert row is not None
            name = f"runs_{row[0]}"
            connection.execute(f'CREATE DATABASE "{name}"')
        return postgres_server.format(name)

    return create
