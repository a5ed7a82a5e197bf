"""`kill -9` at seven moments of a run, each by itself: the books, the servers and the cap agree."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from bestarm_agent.domain.events import Asked, Event, Settled, Stopped, Told
from bestarm_agent.domain.values import Reply, Request
from bestarm_agent.engine.record import RunRecord
from bestarm_agent.providers.api.provider import ApiProvider
from bestarm_agent.store import database
from bestarm_agent.store.run_state import RunState, fold
from bestarm_agent.store.store import Store
from bestarm_agent.study import Study
from tests.support.api_studies import KEYS, OPENAI_MODELS, study_of
from tests.support.fake_api import Call, FakeApi, in_thread, quality
from tests.support.fake_api.server import Received
from tests.support.judge_answers import mark_in
from tests.support.processes import OUTPUT, start_command
from tests.support.studies import store_of

SUMS, IN_FLIGHT, CAP = 16, 4, 60
JUDGE = "grader"
CONFIRMS: Mapping[str, Any] = {"share": "25%"}


def end_here() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at_event(which: Callable[[Event], bool], number: int, *, is_recorded: bool) -> None:
    """End the process when such an event is recorded for the ``number``-th time, or just before."""
    record, seen = RunRecord.record, 0

    def recorded(self: RunRecord, *events: Event, is_known: bool = True) -> None:
        nonlocal seen
        for event in events:
            seen += which(event)
            if not is_recorded and seen == number:
                end_here()
            record(self, event, is_known=is_known)
            if seen == number:
                end_here()

    RunRecord.record = recorded  # type: ignore[method-assign]


def while_opening() -> None:
    """The run is in the store, and has asked nothing."""
    Study.run = lambda *_arguments, **_named: end_here()  # type: ignore[assignment, method-assign]


def at_the_first_asks() -> None:
    at_event(lambda event: isinstance(event, Asked), 2, is_recorded=True)


def between_attempt_and_settlement() -> None:
    at_event(lambda event: isinstance(event, Settled), 9, is_recorded=False)


def in_flight(model: str | None = None) -> None:
    """Requests are at the server, which takes longer than this waits."""
    generate, seen = ApiProvider.generate, 0

    async def sent(self: ApiProvider, request: Request) -> Reply:
        nonlocal seen
        seen += model is None or request.model == model
        if seen >= 13:
            asyncio.get_running_loop().call_later(0.03, end_here)
        return await generate(self, request)

    ApiProvider.generate = sent  # type: ignore[method-assign]


def during_a_flush() -> None:
    """Rows are written, and not committed."""
    put, seen = database._put, 0

    def written(connection: Connection, query: str, rows: Sequence[Mapping[str, Any]]) -> None:
        nonlocal seen
        seen += 1
        put(connection, query, rows)
        if seen == 20:
            end_here()

    database._put = written


def while_confirming() -> None:
    stopped = False

    def of_the_second_run(event: Event) -> bool:
        nonlocal stopped
        stopped = stopped or isinstance(event, Stopped)
        return stopped and isinstance(event, Told)

    at_event(of_the_second_run, 2, is_recorded=True)


def at_the_end() -> None:
    """All is told, and the report is about to be written."""
    Study.write_report = lambda *_arguments, **_named: end_here()  # type: ignore[assignment, method-assign]


MODES: Mapping[str, tuple[Callable[[], None], Mapping[str, Any]]] = {
    "opening": (while_opening, {}),
    "first asks": (at_the_first_asks, {}),
    "in flight": (in_flight, {}),
    "between attempt and settlement": (between_attempt_and_settlement, {}),
    "during the log's flush": (during_a_flush, {}),
    "judging": (partial(in_flight, JUDGE), {}),
    "confirming": (while_confirming, {"confirm": CONFIRMS}),
    "at the end": (at_the_end, {"confirm": CONFIRMS}),
}


def answers(call: Call) -> str:
    if call.model != JUDGE:
        said = quality(OPENAI_MODELS)(call)
        assert isinstance(said, str)
        return said
    verdict = 9 if sum(map(ord, call.prompt[-200:])) % 3 else 2
    return json.dumps({"mark": mark_in(call.prompt), "explanation": "so", "verdict": verdict})


def booked(state: RunState) -> tuple[int, int]:
    """Calls in the books of a run, and attempts whose end is not known: one call each at most."""
    told = set(state.order.tolist())
    pending = (state.attempts_of(seq) for seq in range(state.n_asked) if seq not in told)
    return (state.spend + state.pending_spend).calls, sum(len(known.open) for known in pending)


async def stored(path: Path) -> tuple[int, int, set[str | None]]:
    """What the books of all runs hold, as ``booked``; the ids of all stored replies."""
    async with await Store.connect(store_of(path), create=False) as store:
        books = [booked(fold(await store.events_of(run.id))) for run in await store.runs()]
        replies = {reply.request_id async for _, reply in store.replies()}
    calls, unknown = map(sum, zip(*books, strict=True))
    return calls, unknown, replies


def bodies(received: Sequence[Received], ids: set[str | None] | None = None) -> Counter[str]:
    """The bodies of answered requests, of those with one of the ids."""
    return Counter(
        json.dumps(one.body, sort_keys=True)
        for number, one in enumerate(received)
        if one.status == 200 and (ids is None or f"req_{number}" in ids)
    )


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("named", MODES)
def test_a_run_that_is_killed_goes_on_and_its_books_agree_with_the_server(
    tmp_path: Path, named: str
) -> None:
    kill, changes = MODES[named]
    server = FakeApi(answers, key=KEYS["OPENAI_API_KEY"], latency=lambda _: 0.1)
    study = {
        "models": [f"openai/{name}" for name in OPENAI_MODELS],
        "scorer": {"name": "rubric", "model": f"openai/{JUDGE}", "rubric": "Is the sum right?"},
        "budget": {"calls": CAP},
        "limits": {"in_flight": IN_FLIGHT},
        "dataset": {"path": "sums.jsonl"},
        **changes,
    }
    with in_thread(server):
        path = study_of(tmp_path, server, server, n_examples=SUMS, changes=study)
        begin: list[str | Path] = ["select", "--candidates", path, "-q"]
        process = start_command(tmp_path, begin, KEYS, kill)
        process.join()
        assert process.exitcode == -signal.SIGKILL, (tmp_path / OUTPUT).read_text()[-2000:]
        n_sent = len(server.received)
        n_known, n_unknown, ids = asyncio.run(stored(path))
        assert n_known <= n_sent <= n_known + n_unknown, "an attempt is booked before it is sent"
        assert n_sent > len(ids) or "flight" not in named, "requests were under way"
        resume: list[str | Path] = ["resume", "--store", store_of(path), "-q"]
        process = start_command(tmp_path, resume, KEYS, _nothing)
        process.join()
    assert process.exitcode in (0, 3), (tmp_path / OUTPUT).read_text()[-2000:]
    first, second = server.received[:n_sent], server.received[n_sent:]
    kept, again = bodies(first, ids), bodies(second)
    assert kept.keys().isdisjoint(again), "a stored reply was bought again"
    twice = (bodies(first) + again).total() - len(bodies(first) | again)
    assert twice <= n_unknown, "what was in flight alone is bought twice"
    calls, unknown, _ = asyncio.run(stored(path))
    assert unknown == 0
    assert len(server.received) <= calls <= len(server.received) + n_unknown
    assert CAP - 2 * IN_FLIGHT < calls <= CAP, "it was gone on with until the cap"


def _nothing() -> None:
    """Leave the process as it is."""
