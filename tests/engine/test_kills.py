"""`kill -9` at random moments: nothing that was paid for is lost, bought again or unrecorded."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.domain.events import Asked, Event, Stopped, Told
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.providers.replay import ReplayProvider
from bestarm_agent.selectors import Problem, make_selector
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.store.run_state import fold
from bestarm_agent.store.store import Store
from tests.support.api_studies import ANTHROPIC_MODELS, KEYS, OPENAI_MODELS, study_of
from tests.support.fake_api import Call, FakeApi, Fault, in_thread, quality, storm
from tests.support.fake_api.calls import chance, tokens_of
from tests.support.fake_api.server import PATHS, Received
from tests.support.processes import OUTPUT, kill_once, start_command
from tests.support.replay_check import first_size, unexplained_asks
from tests.support.studies import RECORDED, store_of, study_file, write_study

ROOT = Path(__file__).parents[2]


def note_purchases() -> None:
    """Let recordings note every pair they are asked for in a file, and name it in the reply."""
    generate = ReplayProvider.generate

    async def noted(self: ReplayProvider, request: Request) -> Reply:
        pair = f"{request.model} {request.example}"
        with open("bought.txt", "a") as file:  # noqa: ASYNC230 - as a program would
            file.write(f"{pair}\n")
        return replace(await generate(self, request), request_id=pair)

    ReplayProvider.generate = noted  # type: ignore[method-assign]


async def contents(store: Path) -> tuple[Sequence[Event], list[Reply]]:
    async with await Store.connect(store, create=False) as opened:
        runs = await opened.runs()
        events = await opened.events_of(runs[-1].id) if runs else []
        return events, [reply async for _, reply in opened.replies()]


def read(store: Path) -> tuple[Sequence[Event], list[Reply]]:
    """Read the events of the latest run, and all replies."""
    return asyncio.run(contents(store)) if store.exists() else ([], [])


def has_told(path: Path, n: int) -> bool:
    """Return whether the run of the study at ``path`` was told ``n`` pairs."""
    store = store_of(path)
    if not store.exists():
        return False
    with closing(sqlite3.connect(store, timeout=30)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE name = 'events'")
        if tables.fetchone() is None:
            return False
        count = connection.execute("SELECT count(*) FROM events WHERE kind = 'told'")
        return int(count.fetchone()[0]) >= n


def bought(path: Path) -> list[str]:
    """The pairs that the provider of recordings was asked for so far, in order."""
    notes = path.with_name("bought.txt")
    return notes.read_text().splitlines() if notes.exists() else []


def start(path: Path, *options: str) -> BaseProcess:
    """Begin the run of a study, or go on with it."""
    begin: list[str | Path] = ["select", "--candidates", path, *options]
    arguments = ["resume", "--store", store_of(path)] if read(store_of(path))[0] else begin
    return start_command(path.parent, [*arguments, "--quiet"], KEYS, note_purchases)


def finish(path: Path, *options: str) -> tuple[Sequence[Event], list[Reply]]:
    """Let the run of a study come to its end; read what is stored."""
    process = start(path, *options)
    process.join()
    assert process.exitcode == 0, path.with_name(OUTPUT).read_text()[-2000:]
    return read(store_of(path))


def killed_again_and_again(
    path: Path, reached: Callable[[int], bool], moments: Sequence[Any], *options: str
) -> tuple[Sequence[Event], list[Reply]]:
    """Kill a run when it has reached each moment, and let it end; no stored reply is rebought."""
    purchases: list[tuple[set[str | None], int]] = []
    for moment in sorted(map(int, moments)):
        kill_once(start(path, *options), partial(reached, moment))
        replies = read(store_of(path))[1]
        purchases.append(({reply.request_id for reply in replies}, len(bought(path))))
    events, replies = finish(path, *options)
    for paid_for, before in purchases:
        assert paid_for.isdisjoint(bought(path)[before:]), "a stored reply was bought again"
    return events, replies


def assert_told_once(events: Sequence[Event], n: int) -> None:
    tells = Counter(event.seq for event in events if isinstance(event, Told))
    assert tells == dict.fromkeys(range(n), 1), "every asked pair is told, and told once"


def asked(events: Sequence[Event]) -> list[tuple[int, int]]:
    return [(event.candidate, event.example) for event in events if isinstance(event, Asked)]


PULLS = 150


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("in_flight", "kills"), [(1, 3), (16, 6)])
def test_kills_lose_nothing(tmp_path: Path, in_flight: int, kills: int) -> None:
    path = write_study(tmp_path / "killed", n_candidates=5, latency_seconds=0.01)
    moments = [*(KeyedRandom(in_flight, "kills").at(0).choice(PULLS - 1, kills, replace=False) + 1)]
    options = ("--set", f"limits.in_flight={in_flight}", "--budget-answers", str(PULLS))
    events, replies = killed_again_and_again(path, partial(has_told, path), moments, *options)
    assert_told_once(events, PULLS)
    assert len(asked(events)) == len(set(asked(events))) == PULLS
    assert len(replies) == PULLS, "a reply for every pair, none bought under another key"
    state, stops = fold(events), [event for event in events if isinstance(event, Stopped)]
    assert len(state.sessions) > len(stops) == 1
    assert state.seconds > stops[0].seconds, "the time of killed sittings counts"
    size = first_size(events)
    problem = Problem(
        size.n_candidates, size.n_examples, budget=size.budget.answers, stop_when_separated=False
    )
    unexplained = unexplained_asks(events, make_selector("ucb-e", problem))
    assert unexplained == [], "every ask follows from the log before it"
    if in_flight == 1:
        undisturbed = write_study(tmp_path / "undisturbed", n_candidates=5)
        assert asked(finish(undisturbed, *options)[0]) == asked(events)


N_CANDIDATES, N_EXAMPLES = 4, 20
JUDGED = N_CANDIDATES * N_EXAMPLES
CALLS = 3 * JUDGED  # an answer, and a judgement in each order


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_kills_while_judging_buy_neither_answers_nor_judgements_again(tmp_path: Path) -> None:
    """The recorded judge takes longer than the answers."""
    rows: list[dict[str, object]] = []
    for i in range(N_CANDIDATES):
        for j in range(N_EXAMPLES):
            rows.append({"candidate": f"c{i}", "example": f"e{j}", "text": f"{i} {j}"})
            for place in ("first", "second"):
                said = json.dumps({"winner": place if (i * j) % 3 else "tie"})
                row = {"candidate": "judge", "example": f"c{i}/e{j}/{place}", "text": said}
                rows.append({**row, "seconds": 0.03, "input_tokens": 50, "output_tokens": 5})
    ids = range(N_EXAMPLES)
    examples = [{"id": f"e{j}", "q": f"q{j}", "baseline_output": "b"} for j in ids]
    path = study_file(
        tmp_path,
        {"rows": examples, "calls": rows},
        providers=RECORDED,
        models=[f"replay/c{i}" for i in range(N_CANDIDATES)],
        scorer={"name": "pairwise", "model": "replay/judge"},
        limits={"in_flight": 8},
    )
    moments = [*(KeyedRandom(5, "kills").at(0).choice(CALLS - 20, 4, replace=False) + 10)]
    events, replies = killed_again_and_again(path, lambda n: len(bought(path)) >= n, moments)
    assert_told_once(events, JUDGED)
    assert all(event.outcome.score for event in events if isinstance(event, Told))
    assert len(replies) == CALLS, "an answer and two judgements for every pair"


# API servers and a local model, with a budget in dollars

SUMS = 24
PAIRS = SUMS * (len(OPENAI_MODELS) + len(ANTHROPIC_MODELS) + 1)
BUDGET_NANOS = 20_000_000
INPUT_NANOS, OUTPUT_NANOS = 1_000, 5_000  # a token's price in write_api_study


# no fault that makes everybody wait, which would take seconds
FAULTS = (Fault.CONFLICT, Fault.DROPPED, Fault.MALFORMED)


def api_of(shares: dict[str, float], key: str) -> FakeApi:
    def latency(call: Call) -> float:
        return 0.02 + 0.02 * chance(0, "latency", call.digest)

    return FakeApi(quality(shares), storm(0.1, FAULTS), key=key, latency=latency)


def cost(server: FakeApi) -> int:
    """Nano-dollars of all good answers."""
    total = 0
    for one in server.received:
        if one.status == 200 and one.fault is None:
            call = Call(PATHS[one.path], one.body)
            said = server.answer(call)
            assert isinstance(said, str)
            total += call.prompt_tokens * INPUT_NANOS + tokens_of(said) * OUTPUT_NANOS
    return total


def paid(server: FakeApi, models: Collection[str], replies: Sequence[Reply]) -> set[str]:
    """Bodies that a stored reply answers."""
    ids = [reply.request_id for reply in replies if reply.model in models]
    return {body(server.received[int(one.removeprefix("req_"))]) for one in ids if one is not None}


def body(received: Received) -> str:
    return json.dumps(received.body)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(
    any(find_spec(name) is None for name in ("transformers", "torch")),
    reason="the local model needs the extra hf",
)
def test_a_kill_loses_nothing_and_overspends_nothing(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples/arithmetic/models/sum-llama-60k", tmp_path / "tiny")
    both = (OPENAI_MODELS, ANTHROPIC_MODELS)
    openai, anthropic = servers = [
        api_of(models, key) for models, key in zip(both, KEYS.values(), strict=True)
    ]
    with in_thread(openai), in_thread(anthropic):
        changes = {
            "models": [
                *(f"openai/{name}" for name in OPENAI_MODELS),
                *(f"anthropic/{name}" for name in ANTHROPIC_MODELS),
                "hf/tiny",
            ],
            "prompts": [{"plain": "{{ a }}+{{ b }}="}],
            "budget": {"usd": BUDGET_NANOS / 1e9},
            "limits": {"in_flight": 8, "max_attempts": 8},
        }
        path = study_of(tmp_path, openai, anthropic, n_examples=SUMS, changes=changes)
        process = start(path)
        kill_once(process, partial(has_told, path, 60))
        assert process.exitcode == -signal.SIGKILL, "it was killed on its way"
        replies = read(store_of(path))[1]
        stored = [paid(*of, replies) for of in zip(servers, both, strict=True)]
        before = [len(server.received) for server in servers]
        events, _ = finish(path)
    for server, bodies, number in zip(servers, stored, before, strict=True):
        assert bodies
        assert bodies.isdisjoint(map(body, server.received[number:])), "one was bought again"
    requests = sum(len(server.received) for server in servers)
    assert_told_once(events, PAIRS)
    state = fold(events)
    assert sum(map(cost, servers)) <= state.spend.usd_nanos <= BUDGET_NANOS, (
        "more is booked than was bought"
    )
    assert state.spend.calls >= requests + SUMS, "every request is booked"
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert not any(key.encode() in file.read_bytes() for key in KEYS.values()), file


CAP, IN_FLIGHT = 16, 8


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_requests_in_flight_at_every_kill_count_against_the_cap(tmp_path: Path) -> None:
    # a first call opens the way for others, which take longer than a kill; a process that is not
    # killed waits for them
    server = FakeApi(key=KEYS["OPENAI_API_KEY"], latency=lambda _: 5.0 * (len(server.received) > 1))
    changes = {
        "models": ["openai/alpha"],
        "budget": {"calls": CAP},
        "limits": {"in_flight": IN_FLIGHT},
    }
    with in_thread(server):
        path = study_of(tmp_path, server, server, n_examples=60, changes=changes)

        def has_sent(goal: int) -> bool:
            """Until the first is told they go one by one."""
            return len(server.received) >= goal and has_told(path, 1)

        for _ in range(10):
            process, sent = start(path), len(server.received)
            if sent >= CAP:
                process.join()
                break
            # one whose latest attempt was booked and not sent ends by itself
            kill_once(process, partial(has_sent, min(CAP, sent + 4)))
    requests = len(server.received)
    state = fold(read(store_of(path))[0])
    assert state.end == "budget"
    assert requests <= (state.spend + state.pending_spend).calls <= CAP
    assert requests > CAP - IN_FLIGHT
