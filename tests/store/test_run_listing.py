from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bestarm_agent.errors import RunNotFoundError
from bestarm_agent.store.base import RunInfo
from bestarm_agent.store.run_listing import new_run_id, resolve


def info(run_id: str, name: str = "study") -> RunInfo:
    return RunInfo(run_id, name, "2026-11-21T09:30:15Z", 0, 0, None)


def test_an_id_is_time_and_chance() -> None:
    at = datetime(2026, 11, 21, 9, 30, 15, tzinfo=UTC)
    ids = {new_run_id(at) for _ in range(100)}
    assert all(run.startswith("20261121-093015-") and len(run) == 20 for run in ids)
    assert len(ids) > 95  # four letters of 32: 100 draws collide with probability 0.005


def test_an_exact_match_wins_over_a_prefix() -> None:
    runs = [info("2026-a", name="x"), info("2026-ab", name="2026"), info("2027", name="2026-a")]
    assert resolve("2026-a", runs) is runs[0]  # an id before a name
    assert resolve("2026", runs) is runs[1]  # a name before a prefix
    assert resolve("2026-ab", runs) is runs[1]


def test_latest_is_a_word_of_its_own() -> None:
    runs = [info("1", name="latest"), info("2")]
    assert resolve("latest", runs) is runs[1]


def test_a_long_list_is_cut() -> None:
    runs = [info(f"run-{i:02d}") for i in range(12)]
    with pytest.raises(
        RunNotFoundError, match=r"is run-11 \(study\), .*run-04 \(study\) and 4 old"
    ):
        resolve("nope", runs)


def test_nothing_is_no_prefix() -> None:
    with pytest.raises(RunNotFoundError, match="no run ''"):
        resolve("", [info("1")])
