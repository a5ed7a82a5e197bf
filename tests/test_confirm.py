"""Winners confirmed by a second run: what it asks, what it costs, what a stop leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bestarm_agent.domain.events import Asked, Event
from bestarm_agent.domain.spend import Budget, sum_of, usd
from bestarm_agent.domain.text import money
from bestarm_agent.domain.values import Json
from bestarm_agent.engine.results.decision import passed_caps
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.options import Options
from bestarm_agent.errors import ConfigError, RunNotFoundError
from bestarm_agent.report.html_page import report_of
from bestarm_agent.report.markdown import markdown
from bestarm_agent.report.words import facts, time_used
from bestarm_agent.store.chunks import folded
from bestarm_agent.store.export import labels
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.store import RunLog, Store, open_store
from bestarm_agent.study import Archive, Study
from bestarm_agent.view.documents import standing_page
from bestarm_agent.view.followed_run import FollowedRun
from tests.support.studies import events_of, run_all, store_of, write_lines, write_study

HELD = 20  # of 100 examples
ALL: Json = {"name": "uniform", "stop_when_separated": False}


def confirming(folder: Path, **changes: Json) -> Path:
    return write_study(
        folder,
        n_candidates=4,
        n_examples=100,
        usd=(0.001, 0.001, 0.001, 0.004),
        changes={
            "confirm": {"share": "20%"},
            "selector": {"name": "auto", "stop_when_separated": False},
            "budget": {"answers": 150},
            **changes,
        },
    )


def second_run(path: Path, run_id: str) -> RunState | None:
    """Read the run that confirms the winner of another, if there is one."""

    async def read() -> RunState | None:
        async with open_store(store_of(path)) as store:
            try:
                return await folded(store, f"{run_id}.confirm")
            except RunNotFoundError:
                return None

    return asyncio.run(read())


def test_the_winner_alone_answers_what_was_kept_back_and_the_cap_holds(tmp_path: Path) -> None:
    path = confirming(tmp_path)
    standing = run_all(path)
    state = second_run(path, standing.run_id)
    assert state is not None
    assert standing.winner is not None
    assert standing.confirmation is not None
    assert [one.label for one in state.candidates] == [standing.winner.candidate.label]
    assert standing.spent.answers == 150
    assert sum_of(line.spend for line in standing.costs) == standing.spent
    assert standing.costs[-1].spend == state.spend
    assert state.spend.answers == len(state.example_ids) == HELD
    assert standing.confirmation.n == HELD
    assert (standing.n_examples, standing.grid) == (80, 320)
    own = asyncio.run(Archive(store_of(path)).state(standing.run_id))
    assert not set(own.example_ids) & set(state.example_ids)


def test_the_rule_plans_for_the_pairs_that_are_left_to_it(tmp_path: Path) -> None:
    path = confirming(tmp_path, selector=ALL)
    run_all(path)
    asks = [event for event in events_of(path) if isinstance(event, Asked)]
    assert len(asks) == 130
    assert {ask.candidate for ask in asks} == {0, 1, 2, 3}


def test_dollars_are_kept_back_for_the_winner_s_price(tmp_path: Path) -> None:
    path = confirming(tmp_path, budget={"usd": 0.3})
    standing = run_all(path)
    state = second_run(path, standing.run_id)
    assert state is not None
    assert standing.confirmation is not None
    assert standing.confirmation.label == "c3"
    assert standing.confirmation.n == standing.confirmation.held_back  # 20 calls at $.004
    assert 0.2 < usd(standing.spent.usd_nanos) <= 0.3


def test_a_budget_too_small_leaves_half_to_choose_by(tmp_path: Path) -> None:
    path = confirming(tmp_path, budget={"answers": 30})
    standing = run_all(path)
    state = second_run(path, standing.run_id)
    assert state is not None
    assert (standing.spent.answers, state.spend.answers) == (30, 15)
    assert standing.confirmation is not None
    assert standing.confirmation.n < standing.confirmation.held_back


def test_a_winner_that_is_established_is_confirmed_and_the_run_says_so(tmp_path: Path) -> None:
    until: dict[str, Json] = {"selector": {"name": "auto"}, "stop": {"within": 0.001}}
    standing = run_all(confirming(tmp_path, budget={}, **until))
    assert standing.end == "separated"
    assert standing.confirmation is not None
    assert standing.confirmation.n == standing.confirmation.held_back


def test_every_front_end_tells_of_it_and_of_its_cost(tmp_path: Path) -> None:
    path = confirming(tmp_path, budget={"answers": 60})
    standing = run_all(path)
    page, report = asyncio.run(viewed(path, standing.run_id))
    [(_, said), *_] = facts(standing)
    texts = (
        str(standing),
        standing._repr_html_(),
        markdown(standing),
        json.dumps(page),
        report.replace("\u00a0", " "),
    )
    for text in texts:
        assert said in text
        assert "40 of 320 answers" in text
        assert "20 more to confirm" in text
    assert said in repr(standing)
    assert said.startswith(f"{standing.decision.take}: ")
    assert page["time"] == time_used(standing)
    assert page["dollars"] == money(standing.spent.usd_nanos)


async def viewed(path: Path, run_id: str) -> tuple[dict[str, Json], str]:
    """Return what the live page and its report show of a run."""
    async with open_store(store_of(path)) as store:
        run = FollowedRun(store, store_of(path), run_id)
        async with run.refreshed() as state:
            standing, result = await run.standing()
            page = standing_page(standing, result, labels(state), 60)
            return page, await report_of(await run.texts(), standing, None, result)


def test_a_page_follows_the_second_run_too(tmp_path: Path) -> None:
    path = confirming(tmp_path)
    whole = run_all(path)

    async def scene() -> None:
        async with open_store(store_of(path)) as store:
            first = await store.events_of(whole.run_id)
            second = await store.events_of(f"{whole.run_id}.confirm")
        growing = Store.in_memory()
        log = await growing.create(whole.name)
        await put(log, first)
        run = FollowedRun(growing, store_of(path), log.run_id)
        async with run.refreshed():
            assert (await run.standing())[0].confirmation is None
        log, known, found = await growing.create(f"{log.run_id}.confirm"), len(first), []
        for start in range(0, len(second), 9):
            await put(log, second[start : start + 9])
            async with run.refreshed():
                assert known < run.n_events, "which has open pages told what is new"
                found.append((await run.standing())[0])
                known = run.n_events
        assert [one.end for one in found] == [*[None] * (len(found) - 1), whole.end]
        assert {one.budget.answers for one in found[1:]} == {150}, "whichever run goes on"
        end = found[-1]
        assert (end.confirmation, end.spent) == (whole.confirmation, whole.spent)
        assert end.said == tuple(line.replace(whole.run_id, run.run_id) for line in whole.said)

    asyncio.run(scene())


async def put(log: RunLog, events: Sequence[Event]) -> None:
    for event in events:
        log.append(event)
    await log.flush()


async def until_confirmed(study: Study, told: int) -> None:
    """Wait until the winner has answered so many of the examples kept back."""
    n = 0
    while n < told:
        for _ in range(10):  # a standing costs more than what it looks at
            await asyncio.sleep(0)
        found = study.standing().confirmation
        n = 0 if found is None else found.n


async def cut_off(path: Path, told: int) -> None:
    """Cancel a run once the second one was told so many pairs, as the second Ctrl-C does."""
    async with Study.open(path) as study:
        running = asyncio.create_task(study.run())
        await until_confirmed(study, told)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def resumed(path: Path, budget: Budget | None = None) -> Standing:
    async with Study.resume("latest", options=Options(store=store_of(path))) as study:
        if budget is not None:
            study.raise_budget(budget)
        return await study.run()


def test_a_confirmation_that_was_cut_off_is_gone_on_with(tmp_path: Path) -> None:
    whole = run_all(confirming(tmp_path / "whole", limits={"in_flight": 1}))
    path = confirming(tmp_path / "parts", limits={"in_flight": 1})
    asyncio.run(cut_off(path, told=7))
    early = asyncio.run(Archive(store_of(path)).record("latest")).standing
    assert early.confirmation is not None
    assert 7 <= early.confirmation.n < HELD
    standing = asyncio.run(resumed(path))
    assert standing.confirmation == whole.confirmation
    assert standing.asked == whole.asked
    state = second_run(path, standing.run_id)
    assert state is not None
    assert state.spend.answers == HELD
    stored = asyncio.run(Archive(store_of(path)).record("latest")).standing
    assert stored.confirmation == whole.confirmation


def test_a_stop_while_the_winner_is_confirmed_ends_the_command(tmp_path: Path) -> None:
    path = confirming(tmp_path, limits={"in_flight": 1})

    async def scene() -> Standing:
        async with Study.open(path) as study:
            running = asyncio.create_task(study.run())
            await until_confirmed(study, 1)
            study.stop()
            return await running

    standing = asyncio.run(scene())
    assert standing.end == "interrupted"
    assert standing.confirmation is not None
    assert standing.confirmation.n < standing.confirmation.held_back


def test_more_budget_goes_on_with_the_selection_and_keeps_what_was_confirmed(
    tmp_path: Path,
) -> None:
    path = confirming(tmp_path)
    first = run_all(path)
    second = asyncio.run(resumed(path, Budget(answers=60)))
    assert second.asked > first.asked
    assert second.confirmation == first.confirmation
    state = second_run(path, second.run_id)
    assert state is not None
    assert state.spend.answers == HELD


def test_a_cap_of_a_stage_is_not_the_users(tmp_path: Path) -> None:
    path = confirming(tmp_path, budget={"answers": 300, "calls": 300})
    run_all(path)
    for _ in range(2):  # more is kept for confirming than was, as far as the cap of a stage says
        again = asyncio.run(resumed(path))
        assert passed_caps(again) == []
        assert again.end != "interrupted"
    stored = asyncio.run(Archive(store_of(path)).record("latest")).standing
    assert passed_caps(stored) == []
    assert stored.configured == Budget(answers=300, calls=300)
    over = replace(stored, spent=replace(stored.spent, calls=301))
    assert ["301 calls of 300" in said for said in passed_caps(over)] == [True]


@pytest.mark.parametrize("cap", ["answers", "calls"])
@pytest.mark.parametrize(
    "goal", [{}, {"objective": {"name": "cheapest-at-least", "at_least": 0.7}}]
)
def test_all_that_is_allowed_is_spent(tmp_path: Path, cap: str, goal: dict[str, Json]) -> None:
    path = confirming(tmp_path, budget={cap: 30}, **goal)
    first = run_all(path)
    then = asyncio.run(resumed(path, Budget(**{cap: 60})))
    assert [getattr(one.spent, cap) for one in (first, then)] == [30, 90]
    assert getattr(then.budget, cap) == 90, "of both runs, as what was spent is"
    if not goal:
        assert then.confirmation is not None
        assert then.confirmation.n == HELD, "of which no part was paid for twice"
    assert then.asked + HELD * (not goal) == 90


def test_time_and_money_are_those_of_both_runs(tmp_path: Path) -> None:
    path = confirming(tmp_path, budget={"answers": 60, "minutes": 60})
    standing = run_all(path)
    own = asyncio.run(Archive(store_of(path)).state(standing.run_id))
    second = second_run(path, standing.run_id)
    assert second is not None
    assert standing.seconds == pytest.approx(own.seconds + second.seconds)
    assert standing.spent == own.spend + second.spend
    assert second.budget.seconds == pytest.approx(3600 - own.seconds)


def test_a_grown_dataset_leaves_what_was_kept_back_as_it_was(tmp_path: Path) -> None:
    path = confirming(tmp_path, budget={"answers": 60})
    first = run_all(path)
    before = second_run(path, first.run_id)
    dataset = tmp_path / "questions.jsonl"
    dataset.write_text(dataset.read_text() + '{"id": "new", "question": "new"}\n')
    asyncio.run(resumed(path, Budget(answers=40)))
    after = second_run(path, first.run_id)
    assert before is not None
    assert after is not None
    assert after.example_ids == before.example_ids


@pytest.mark.parametrize("share", [0, 0.6, "70%", 1])
def test_more_than_half_cannot_be_kept_back(tmp_path: Path, share: Json) -> None:
    with pytest.raises(ConfigError, match=r"confirm\.share"):
        run_all(confirming(tmp_path, confirm={"share": share}))


@pytest.mark.parametrize(
    ("n_examples", "problem"), [(1, "1 example cannot"), (7, "7 examples, all asked alike, cannot")]
)
def test_one_example_cannot_be_both_kept_back_and_chosen_by(
    tmp_path: Path, n_examples: int, problem: str
) -> None:
    path = confirming(tmp_path, dataset="same.jsonl")
    rows = [{"id": f"e{j}", "question": "q"} for j in range(n_examples)]
    write_lines(tmp_path / "same.jsonl", rows)
    with pytest.raises(ConfigError, match=f"confirm: {problem}.*leave `confirm` out"):
        run_all(path)


@pytest.mark.parametrize(
    ("share", "said"), [("1%", "on 1 example kept back"), ("2%", "on 2 examples kept back")]
)
def test_examples_kept_back_are_counted_as_people_do(tmp_path: Path, share: str, said: str) -> None:
    [(title, text), *_] = facts(run_all(confirming(tmp_path, confirm={"share": share})))
    assert title == "Confirmed"
    assert said in text
