"""Locks of a store in a file: who may write a run, and who may buy a reply."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.exc import ResourceClosedError

from bestarm_agent.store import database
from bestarm_agent.store.database import FileLocks, Locks, patiently

HOLDER = """
import sys
from pathlib import Path
from bestarm_agent.store.database import FileLocks

locks = FileLocks(Path(sys.argv[1]))
print(locks.claim("reply key"), flush=True)
print(locks.claim("run r"), flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("shared", [False, True], ids=["in a file", "in memory"])
def test_a_lock_holds_against_everybody(tmp_path: Path, shared: bool) -> None:
    one: Locks = Locks() if shared else FileLocks(tmp_path / "runs.db.locks")
    other = one if shared else FileLocks(tmp_path / "runs.db.locks")
    assert one.claim("run r")
    assert other.claim("run another")
    assert not any(taker.claim("run r") for taker in (one, other))
    one.release("run r")
    one.release("run r")
    assert other.claim("run r")
    other.close()
    one.close()


def test_the_writer_is_named_and_the_file_is_for_the_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "runs.db.locks"
    one, other = FileLocks(path), FileLocks(path)
    assert one.claim("run r")
    assert not other.claim("run r")
    assert other.holder("run r") == os.getpid()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system does not tell")
def test_a_claim_of_a_stopped_process_ends_and_its_runs_stay_its_own(tmp_path: Path) -> None:
    path = tmp_path / "runs.db.locks"
    one, other = FileLocks(path), FileLocks(path)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert [process.stdout.readline() for _ in range(2)] == ["True\n", "True\n"]
        assert not one.claim("reply key")
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert one.claim("reply key")
        assert not other.claim("reply key"), "one takes the place of the stopped buyer"
        assert not one.claim("run r")
        assert one.holder("run r") == process.pid
        one.release("reply key")
        assert other.claim("reply key")
    finally:
        process.kill()
        process.communicate()
    other.release("reply key")
    assert one.claim("reply key")


def test_a_connection_that_was_closed_meanwhile_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLAlchemy has an error of its own for it, which is none of the driver's."""
    monkeypatch.setattr(database, "_PAUSE_SECONDS", 0.001)
    renewed = 0

    def renew() -> None:
        nonlocal renewed
        renewed += 1
        if renewed == 1:
            raise ResourceClosedError("This Connection is closed")

    def work() -> str:
        if renewed < 2:
            raise ResourceClosedError("This Connection is closed")
        return "done"

    assert patiently(work, renew) == "done"
    assert renewed == 2
