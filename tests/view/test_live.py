"""A run that another process goes on with, as the page's stream of events shows it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.domain.spend import Budget
from bestarm_agent.store.store import Store
from bestarm_agent.study import Archive, Study
from bestarm_agent.view import live
from bestarm_agent.view.documents import standing_page
from bestarm_agent.view.followed_run import FollowedRun
from tests.support.studies import run_all, store_of, write_study
from tests.view.test_server import Json, next_news, opened

COMMAND = "from bestarm_agent.cli.main import main; main()"


async def resume(store: Path | str, *, code: int = 0, answers: int = 60) -> None:
    """Go on with the latest run in another process, by 60 pairs; check its exit code."""
    arguments = ["resume", "latest", "--store", str(store), "--budget-answers", str(answers), "-q"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", COMMAND, *arguments, stdout=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == code


async def watch(store: Path | str) -> list[Json]:
    """Watch the latest run while another process goes on with it; return all that was shown."""
    async with opened(store) as session, session.get("runs/0/latest/live") as stream:
        shown = [await next_news(stream)]
        async with asyncio.TaskGroup() as group:
            group.create_task(resume(store))
            while shown[-1]["running"] or len(shown) == 1:
                shown.append(await next_news(stream))
        return shown


def check(shown: list[Json]) -> None:
    first, last = shown[0], shown[-1]
    assert first["pairs"] == "30 of 240"
    assert first["ending"].startswith("stopped: the budget")
    assert last["pairs"] == "90 of 240"
    counts = [int(page["pairs"].split()[0]) for page in shown]
    assert counts == sorted(counts)
    assert any(page["running"] for page in shown)
    assert {row["label"] for row in last["rows"]} == {f"c{i}" for i in range(6)}


async def begin(path: Path, url: str) -> None:
    async with Study.open(path, store=url) as study:
        await study.run()


@pytest.mark.slow
def test_results_of_another_process_arrive(tmp_path: Path) -> None:
    path = write_study(tmp_path, latency_seconds=0.05, changes={"budget": {"answers": 30}})
    run_all(path)
    check(asyncio.run(watch(store_of(path))))


@pytest.mark.slow
def test_results_of_another_process_arrive_by_postgresql(
    tmp_path: Path, new_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where such a store has its studies
    url = new_database()
    path = write_study(tmp_path, latency_seconds=0.05, changes={"budget": {"answers": 30}})
    asyncio.run(begin(path, url))
    check(asyncio.run(watch(url)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"selector": {"name": "auto"}},
        {"objective": {"name": "cheapest-within-epsilon"}},
        {"objective": {"name": "best-under-usd", "usd_per_1k_calls": 1}},
    ],
    ids=["ucb-e", "auto", "cheapest-within-epsilon", "best-under-usd"],
)
def test_a_standing_that_grew_event_by_event_is_that_of_the_whole_log(
    tmp_path: Path, changes: dict[str, Json]
) -> None:
    path = write_study(tmp_path, n_candidates=4, n_examples=20, changes=changes)
    run_all(path, Budget(answers=60))
    place = store_of(path)

    async def scene() -> None:
        whole = await Archive(place).record("latest")
        async with await Store.connect(place) as store:
            events = await store.events_of("latest")
        growing = Store.in_memory()
        log = await growing.create(whole.standing.name)
        run = FollowedRun(growing, place, log.run_id)
        for start in range(0, len(events), 7):
            for event in events[start : start + 7]:
                log.append(event)
            await log.flush()
            async with run.refreshed():
                standing, _ = await run.standing()
        assert replace(standing, run_id=whole.standing.run_id) == whole.standing

    asyncio.run(scene())


def test_only_what_is_new_is_read(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    read = Store.lines_of

    def noting(
        self: Store, run: str, *, since: int = 0, until: int = 2**40
    ) -> AsyncIterator[Sequence[tuple[str, str]]]:
        asked.append(since)
        return read(self, run, since=since, until=until)

    monkeypatch.setattr(Store, "lines_of", noting)

    async def scene() -> None:
        async with await Store.connect(store) as reader:
            run = FollowedRun(reader, store, (await reader.runs())[-1].id)
            async with run.refreshed() as state:
                n_events = state.n_events
                assert (await run.standing())[0].asked == state.n_asked
            async with run.refreshed():
                assert asked == [0, n_events, n_events], "once for the state and the rule"

    asyncio.run(scene())


def test_many_open_pages_cost_what_one_does(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The standing is worked out and the log is read once for all pages that are open."""
    worked_out: list[int] = []

    def noting(*args: Any) -> Json:  # noqa: ANN401 - what it takes is not the matter
        worked_out.append(1)
        return standing_page(*args)

    monkeypatch.setattr(live, "standing_page", noting)

    async def scene() -> None:
        async with opened(store) as session, AsyncExitStack() as stack:
            first = await stack.enter_async_context(session.get("runs/0/latest/live"))
            page = await next_news(first)
            for _ in range(30):
                stream = await stack.enter_async_context(session.get("runs/0/latest/live"))
                assert await next_news(stream) == page
            assert len(worked_out) == 1
            wide = await stack.enter_async_context(session.get("runs/0/latest/live?rows=1"))
            assert len((await next_news(wide))["rows"]) == 1

    asyncio.run(scene())


def test_a_run_is_read_only_while_a_page_of_it_is_open(store: Path) -> None:
    async def scene() -> None:
        async with await Store.connect(store) as reader:
            run = FollowedRun(reader, store, (await reader.runs())[-1].id)
            watched = live.LiveRun(run)
            texts = watched.texts(60)
            assert await anext(texts) == ":\n\n", "a sign of life until the page is worked out"
            assert (await anext(texts)).startswith("data: {")
            await texts.aclose()
            assert not watched.is_watched
            following = watched._following
            assert following is not None
            watched._look_now.set()  # its next look comes now, and is none
            await following

    asyncio.run(scene())
