from __future__ import annotations

import os
from pathlib import Path

import pytest

from bestarm_agent.errors import StoreError
from bestarm_agent.store import locks
from bestarm_agent.store.locks import FileLocks


def test_a_lock_holds_against_everybody_and_leaves_no_file(tmp_path: Path) -> None:
    one, other = FileLocks(tmp_path / "runs.db"), FileLocks(tmp_path / "runs.db")
    one.acquire("run")
    other.acquire("another run")
    for taker in (one, other):
        with pytest.raises(StoreError, match=f"run run is being written by process {os.getpid()}"):
            taker.acquire("run")
    one.release("run")
    one.release("run")
    other.acquire("run")
    other.close()
    assert list(tmp_path.iterdir()) == []


def test_a_claim_locks_one_byte_of_a_file_for_the_user_alone(tmp_path: Path) -> None:
    one, other = (locks._ByteLocks(tmp_path / "claims") for _ in range(2))
    assert one.take(5)
    assert [other.take(number) for number in (4, 5, 6)] == [True, False, True]
    assert (tmp_path / "claims").stat().st_mode & 0o777 == 0o600
    one.close()
    other.close()


def test_a_lock_on_a_file_that_was_just_removed_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last holder removes the file between another's opening it and locking it."""
    path = tmp_path / "runs.db.run.lock"
    lock_file = locks._lock_file
    attempts: list[int] = []

    def late(handle: int, run_id: str) -> None:
        if not attempts:
            path.unlink()
        attempts.append(handle)
        lock_file(handle, run_id)

    monkeypatch.setattr(locks, "_lock_file", late)
    mine = FileLocks(tmp_path / "runs.db")
    mine.acquire("run")
    assert len(attempts) == 2
    with pytest.raises(StoreError, match="being written"):
        FileLocks(tmp_path / "runs.db").acquire("run")
    mine.close()
