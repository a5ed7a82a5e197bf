"""Kills in a storm of faults, two processes over one store: the promises hold together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fake_api import Fault
from tests.support.fake_api.server import Received
from tests.support.kill_storm import KEYS, Aftermath, Storm, forms, weather


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kills_in_a_storm_break_no_promise(tmp_path: Path) -> None:
    after = weather(Storm(n_examples=10, kills=3), tmp_path)
    assert after.broken_promises() == []
    assert after.killed_at, "processes were ended while they ran"
    assert len(after.faults()) >= 10
    names = {path.name for path in tmp_path.rglob("*")}
    assert {"report.html", "scores.csv", "output.txt", "store.sqlite"} <= names


def answered(at: float, done_at: float, fault: Fault | None = None) -> Received:
    return Received(0, "/v1/messages", {}, {"q": 1}, at, fault, 200, done_at)


def test_a_reply_is_bought_twice_unless_a_process_was_ended_in_between() -> None:
    again = [answered(0.0, 1.0), answered(2.0, 2.5), answered(9.0, 9.5)]
    after = Aftermath(Storm(1, 1), Path(), 0.0, again, killed_at=[1.25])
    assert after.bought_again() == [0.25, float("inf")]
    failed = [answered(0.0, 1.0, Fault.MALFORMED), answered(2.0, 2.5)]
    assert Aftermath(Storm(1, 1), Path(), 0.0, failed, killed_at=[]).bought_again() == []


def test_a_key_is_found_in_every_form(tmp_path: Path) -> None:
    after = Aftermath(Storm(1, 1), tmp_path, 0.0, [], [])
    for key in KEYS.values():
        for form in forms(key):
            (tmp_path / "file").write_bytes(b"\0 before" + form + b"after")
            assert after.leaks(), form
    (tmp_path / "file").write_bytes(b"nothing")
    assert after.leaks() == []
