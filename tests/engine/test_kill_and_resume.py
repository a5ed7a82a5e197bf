"""`kill -9` at random moments: nothing that was paid for is lost or bought again."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from bestarm_agent.domain.events import Asked, Event, Stopped, Told
from bestarm_agent.domain.values import Reply
from bestarm_agent.engine.setup.parts import STORE_FILE
from bestarm_agent.selectors import Problem, make_selector
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.store.run_state import fold
from bestarm_agent.store.store import Store
from tests.support.processes import kill_once
from tests.support.replay_check import first_size, unexplained_asks
from tests.support.studies import write_study

PULLS = 150
# The command line, except that the provider notes every pair it is asked for in a file, and names
# the pair in its reply.
PROGRAM = """
import dataclasses, sys
from bestarm_agent.cli.main import main
from bestarm_agent.providers.replay import ReplayProvider

generate = ReplayProvider.generate

async def noted(self, request):
    pair = f"{request.model} {request.example}"
    with open("bought.txt", "a") as file:
        file.write(pair + "\\n")
    return dataclasses.replace(await generate(self, request), request_id=pair)

ReplayProvider.generate = noted
sys.argv[0] = "bestarm-agent"
main()
"""


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-c", PROGRAM, *map(str, arguments)]


def start(folder: Path, *arguments: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(*arguments), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


async def contents(store: Path) -> tuple[Sequence[Event], list[Reply]]:
    async with await Store.connect(store, create=False) as opened:
        runs = await opened.runs()
        events = await opened.events_of(runs[-1].id) if runs else []
        return events, [reply async for _, reply in opened.replies()]


def read(store: Path) -> tuple[Sequence[Event], list[Reply]]:
    return asyncio.run(contents(store))


def bought(folder: Path) -> list[str]:
    """The pairs that the provider was asked for so far, in order."""
    return (folder / "bought.txt").read_text().splitlines()


def told_so_far(store: Path) -> int:
    if not store.exists():
        return 0
    with closing(sqlite3.connect(store, timeout=30)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE name = 'events'")
        if tables.fetchone() is None:
            return 0
        count = connection.execute("SELECT count(*) FROM events WHERE kind = 'told'")
        return int(count.fetchone()[0])


def has_told(store: Path, n: int) -> bool:
    return told_so_far(store) >= n


def kill_and_resume(folder: Path, in_flight: int, kills: int) -> Path:
    """Start a run and kill it again and again; return its store."""
    path = write_study(folder, n_candidates=5, latency_seconds=0.01)
    store = folder / "runs" / STORE_FILE
    rng = KeyedRandom(in_flight, "kills").at(0)
    moments = sorted(int(m) for m in rng.choice(PULLS - 1, size=kills, replace=False) + 1)
    arguments: list[str | Path] = ["select", path, "--set", f"limits.in_flight={in_flight}"]
    arguments += ["--budget-pulls", str(PULLS)]
    purchases: list[tuple[set[str | None], int]] = []
    for moment in moments:
        process = start(folder, *arguments, "--quiet")
        kill_once(process, partial(has_told, store, moment))
        paid_for = {reply.request_id for reply in read(store)[1]}
        before = len(bought(folder))
        arguments = ["resume", "--store", store]
        purchases.append((paid_for, before))
    last = start(folder, *arguments, "--quiet")
    _, errors = last.communicate()
    assert last.returncode == 0, errors.decode()
    for paid_for, before in purchases:
        assert paid_for.isdisjoint(bought(folder)[before:]), "a stored reply was bought again"
    return store


def asked(events: Sequence[Event]) -> list[tuple[int, int]]:
    return [(event.candidate, event.example) for event in events if isinstance(event, Asked)]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("in_flight", "kills"), [(1, 4), (16, 8)])
def test_kills_lose_nothing(tmp_path: Path, in_flight: int, kills: int) -> None:
    store = kill_and_resume(tmp_path / "killed", in_flight, kills)
    events, replies = read(store)
    tells = Counter(event.seq for event in events if isinstance(event, Told))
    assert sorted(tells) == list(range(PULLS)), "every asked pair is told"
    assert set(tells.values()) == {1}, "and told once"
    assert len(asked(events)) == len(set(asked(events))) == PULLS
    assert len(replies) == PULLS, "a reply for every pair, none bought under another key"
    state, stops = fold(events), [event for event in events if isinstance(event, Stopped)]
    assert len(state.sessions) > len(stops) == 1
    assert state.seconds > stops[0].seconds, "the time of killed sittings counts"
    size = first_size(events)
    fresh = make_selector(
        "ucb-e",
        Problem(
            size.n_candidates, size.n_examples, budget=size.budget.pulls, stop_when_separated=False
        ),
    )
    assert unexplained_asks(events, fresh) == [], "every ask follows from the log before it"
    if in_flight == 1:
        undisturbed = tmp_path / "undisturbed"
        path = write_study(undisturbed, n_candidates=5)
        subprocess.run(
            command("select", path, "--set", "limits.in_flight=1", "--budget-pulls", str(PULLS)),
            cwd=undisturbed,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        assert asked(read(undisturbed / "runs" / STORE_FILE)[0]) == asked(events)
