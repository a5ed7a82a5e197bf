"""How a run is found among others; and the form of its id."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from bestarm_agent.errors import RunNotFoundError
from bestarm_agent.store import store as module
from bestarm_agent.store.store import CONFIRMS, Store, new_run_id
from tests.support.store_runs import begin

Runs = Sequence[tuple[str, str]]  # id and name


def found(asked: str, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> str:
    """Find a run among others; return its id."""
    ids = iter([run_id for run_id, _ in runs])
    monkeypatch.setattr(module, "new_run_id", lambda _now: next(ids))

    async def main() -> str:
        async with Store.in_memory() as store:
            for _, name in runs:
                await begin(store, name)
            return (await store.find(asked)).id

    return asyncio.run(main())


def test_an_id_is_time_and_chance() -> None:
    at = datetime(2026, 11, 21, 9, 30, 15, tzinfo=UTC)
    ids = {new_run_id(at) for _ in range(100)}
    assert all(run.startswith("20261121-093015-") and len(run) == 20 for run in ids)
    assert len(ids) > 95  # four letters of 32: 100 draws collide with probability 0.005


RUNS = [("2026-a", "x"), ("2026-ab", "2026"), ("2027", "2026-a")]


@pytest.mark.parametrize(
    ("asked", "runs", "expected"),
    [
        ("2026-a", RUNS, "2026-a"),  # an id before a name
        ("2026", RUNS, "2026-ab"),  # a name before a prefix
        ("2026-ab", RUNS, "2026-ab"),
        ("202", [("2026-a", "x"), ("1", "y")], "2026-a"),
        ("latest", [("1", "latest"), ("2", "study")], "2"),
        ("latest", [("1", "study"), ("2", f"1{CONFIRMS}")], "1"),
        ("latest", [("2", f"1{CONFIRMS}")], "2"),
        ("latest", [("1", "study"), ("2", f"x{CONFIRMS}")], "2"),  # that confirms no run
    ],
)
def test_which_run_is_meant(
    monkeypatch: pytest.MonkeyPatch, asked: str, runs: Runs, expected: str
) -> None:
    assert found(asked, runs, monkeypatch) == expected


def test_a_long_list_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [(f"run-{i:02d}", "study") for i in range(12)]
    with pytest.raises(
        RunNotFoundError, match=r"is run-11 \(study\), .*run-04 \(study\), older ones"
    ):
        found("nope", runs, monkeypatch)


def test_nothing_is_no_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunNotFoundError, match="no run ''"):
        found("", [("1", "study")], monkeypatch)
