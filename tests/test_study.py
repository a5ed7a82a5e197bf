"""A study through the Python API: run, look, add, run on, resume."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent import Budget, Example, Study
from bestarm_agent.config.goal_specs import SelectorSpec
from bestarm_agent.domain.events import Asked, Told
from bestarm_agent.domain.values import Candidate
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.options import Options
from bestarm_agent.engine.setup.selection import Selection
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.base import Judge
from bestarm_agent.providers.replay import ReplayProvider
from bestarm_agent.selectors import Choice, Problem, Rule
from bestarm_agent.selectors.types import Guarantee
from bestarm_agent.study import Archive
from tests.support.api_studies import FastClock
from tests.support.replay_check import first_size, unexplained_asks
from tests.support.studies import (
    ANSWERED,
    each_turn,
    events_of,
    recorded_scores,
    resume_all,
    run_all,
    store_of,
    write_lines,
    write_study,
)

ODD: Any = Example  # as untyped callers make them


class BestSoFar(Rule):
    name = "best-so-far"

    def choose(self, allowed: object, rng: object) -> Choice | None:
        return None


async def reached(asked: int, study: Study, running: asyncio.Task[Standing]) -> None:
    while study.standing().asked < asked and not running.done():  # noqa: ASYNC110 - no event to await
        await asyncio.sleep(0)


def asks_of(path: Path) -> list[tuple[int, int]]:
    return [(e.candidate, e.example) for e in events_of(path) if isinstance(e, Asked)]


def test_the_whole_grid_gives_the_exact_answer(tmp_path: Path) -> None:
    standing = run_all(write_study(tmp_path))
    means = [sum(row) / len(row) for row in recorded_scores(6, 40)]
    assert standing.end == "exhausted"
    assert standing.guarantee is Guarantee.EXACT
    assert standing.share == 1.0
    best = standing.best
    assert best is not None
    assert best.candidate.label == f"c{means.index(max(means))}"
    assert [row.estimate for row in standing.rows] == pytest.approx(sorted(means, reverse=True))
    assert all(row.lower == row.upper for row in standing.rows)


def test_a_share_of_the_grid_is_a_hard_cap(tmp_path: Path) -> None:
    standing = run_all(write_study(tmp_path, changes={"budget": {"share": 0.25}}))
    assert (standing.asked, standing.told, standing.end) == (60, 60, "budget")


@pytest.mark.parametrize("in_flight", [1, 7, 64])
def test_dollars_are_never_overspent(tmp_path: Path, in_flight: int) -> None:
    path = write_study(tmp_path, changes={"budget": {"usd": 0.0505}})
    standing = run_all(path, overrides={"limits.in_flight": in_flight})
    assert standing.spent.usd_nanos == 50_000_000
    assert standing.end == "budget"


async def test_more_budget_runs_on(tmp_path: Path) -> None:
    async with Study.open(write_study(tmp_path)) as study:
        first, second = await study.run(Budget(answers=20)), await study.run(Budget(answers=30))
    assert (first.asked, second.asked) == (20, 50)


async def test_what_one_run_may_spend_and_the_configured_caps_both_hold(tmp_path: Path) -> None:
    path = write_study(tmp_path, changes={"budget": {"answers": 30}})
    async with Study.open(path) as study:
        budgets = (Budget(answers=5), None, Budget(answers=50))
        assert [(await study.run(budget)).asked for budget in budgets] == [5, 30, 30]


@pytest.mark.parametrize(("answers", "said"), [(100, True), (192, False)])
async def test_batches_that_the_budget_cannot_pay_for_all_are_pointed_out(
    tmp_path: Path, answers: int, said: bool
) -> None:
    changes = {
        "selector": {"name": "pulse", "params": {"batch": 32}},
        "budget": {"answers": answers},
    }
    path = write_study(tmp_path, changes=changes)
    async with Study.open(path) as study:
        notices, standing = study.notices, await study.run()
    expected = "the budget allows 100 answers for 6 candidates, each pulled 32 times in a row"
    assert any(expected in notice for notice in notices) == said
    assert any(row.n == 0 for row in standing.rows) == said


def test_more_wanted_than_there_are_is_refused(tmp_path: Path) -> None:
    selector = {"name": "opt-mai", "params": {"top_k": 6}}
    path = write_study(tmp_path, changes={"selector": selector, "budget": {"answers": 20}})
    with pytest.raises(ConfigError, match="top_k is 6, and there are 6 candidates"):
        run_all(path)


def test_a_number_is_no_budget(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"as Budget\(answers=60\), got 60"):
        run_all(write_study(tmp_path), 60)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("argument", "given", "said"),
    [
        ("selector", "auto", "`selector` must be a subclass of `Rule`.*got 'auto'"),
        ("selector", BestSoFar(Problem(2, 2, seed=0)), "`selector` must be a subclass.*BestSoFar"),
        ("judge", Judge, "`judge` must be an object of a subclass of `Judge`.*got <class"),
        ("judge", len, "`judge` must be an object of a subclass of `Judge`, got <built-in"),
        ("providers", [1], r"`providers` must be a mapping from names to .*got \[1\]"),
        ("providers", {"slow": ReplayProvider}, "`providers` must be .*got {'slow': <class"),
        ("store", 3, "`store` must be a path, a URL or an open store, got 3"),
        ("examples", [], "`examples` holds none"),
        ("examples", 3, r"examples\[0\] must be an Example, as .*got 3"),
        ("examples", [{"question": "?"}], r"examples\[0\] must be an Example, .*got {'question'"),
        ("examples", [Example("1", {"question": "?"})] * 2, r"\[1\]: the id `1` stands twice"),
        ("examples", [ODD("1", 3)], r"examples\[0\] must be an Example, as .*inputs=3"),
        ("examples", [ODD("1", {}, object())], r"\[0\]: `reference`: a target must be text"),
        ("examples", [ODD("1", {"x": object()})], r"\[0\]: field `x` holds object"),
    ],
)
async def test_what_is_of_another_kind_is_refused_by_its_name(
    tmp_path: Path, argument: str, given: object, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        async with Study.open(write_study(tmp_path), **{argument: given}):  # type: ignore[arg-type]
            pass


async def test_examples_handed_in_have_the_targets_of_a_file(tmp_path: Path) -> None:
    given: Any = [ODD("a", {}, 3), ODD("b", {}, ["x", 4.0]), ODD("c", {})]
    path = write_study(tmp_path, changes={"prompts": [{"q": "?"}]})
    async with Study.open(path, examples=given) as study:
        assert [row.reference for row in study.parts.examples] == ["3", ("x", "4"), None]


async def test_a_study_tells_where_its_run_can_be_resumed(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    async with Study.open(path) as study:
        first = await study.run(Budget(answers=10))
    async with Study.resume(study.run_id, options=Options(store=study.store)) as again:
        assert (first.told, (await again.run(Budget(answers=5))).told) == (10, 15)


def test_one_candidate_alone_is_not_established_without_a_score(tmp_path: Path) -> None:
    standing = run_all(write_study(tmp_path, n_candidates=1))
    assert standing.told > 0 or not standing.decision.proved


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Say hi.", "prompt `new` uses no field of the dataset"),
        ("Say {question}.", "prompt `new` holds `{question}`"),
    ],
)
async def test_a_prompt_that_joins_is_checked_as_those_of_the_file(
    tmp_path: Path, text: str, said: str
) -> None:
    never = {"base_url": "http://127.0.0.1:9/v1", "key": "none"}
    changes = {"models": ["openai/alpha", "openai/beta"], "providers": {"openai": never}}
    async with Study.open(write_study(tmp_path, changes=changes)) as study:
        prompt = {"name": "new", "text": text}
        with pytest.raises(ConfigError, match=re.escape(said)):
            study.add_candidates([{"model": "openai/alpha", "prompt": prompt}])
        assert len(study.standing().rows) == 2


async def test_candidates_join_between_and_while_running(tmp_path: Path) -> None:
    path = write_study(tmp_path, changes={"models": ["replay/c0", "replay/c1"]})
    async with Study.open(path) as study:
        await study.run(Budget(answers=10))
        study.add_candidates([{"model": "replay/c5", "prompt": "q", "label": "late"}])
        with pytest.raises(ConfigError, match="specs must be a list of candidates"):
            study.add_candidates({"model": "replay/c5", "prompt": "q"})  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"specs must be a list of candidates, got \[3\]"):
            study.add_candidates([3])  # type: ignore[list-item]
        running = asyncio.create_task(study.run(Budget(answers=60)))
        await reached(20, study, running)
        study.add_candidates([{"model": "replay/c4", "prompt": "q"}])
        standing = await running
    assert {row.candidate.model for row in standing.rows} == {"c0", "c1", "c4", "c5"}
    assert all(row.n > 0 for row in standing.rows)
    assert standing.asked == 70


def test_a_run_that_waits_for_a_rate_limit_says_so_though_nothing_is_in_flight(
    tmp_path: Path,
) -> None:
    limits = {"in_flight": 4, "providers": {"replay": {"rpm": 1, "shared": True}}}

    async def scene() -> Standing:
        async with Study.open(write_study(tmp_path, changes={"limits": limits})) as study:
            running = asyncio.create_task(study.run())
            await reached(1, study, running)
            while study.standing().in_flight:  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0)
            waiting = study.standing()
            study.stop()
            await running
            return waiting

    (wait,) = asyncio.run(scene()).waits
    assert (wait.provider, wait.count) == ("replay", 0)
    assert "at its limit of 1 request a minute" in wait.reason


async def test_a_candidate_that_is_there_already_is_refused(tmp_path: Path) -> None:
    async with Study.open(write_study(tmp_path)) as study:
        with pytest.raises(ConfigError, match="is the same as 'c1'"):
            study.add_candidates([{"model": "replay/c1", "prompt": "q", "label": "again"}])
        assert len(study.standing().rows) == 6


@pytest.mark.slow
def test_the_same_seed_asks_the_same_with_one_call_in_flight(tmp_path: Path) -> None:
    for name in ("one", "two", "other"):
        seed = 5 if name == "other" else 4
        overrides = {"limits.in_flight": 1, "selector.seed": seed}
        run_all(write_study(tmp_path / name), Budget(answers=60), overrides=overrides)
    one, two, other = (asks_of(tmp_path / name / "study.json") for name in ("one", "two", "other"))
    assert one == two
    assert one != other


def test_every_ask_follows_from_the_log_before_it(tmp_path: Path) -> None:
    path = write_study(tmp_path, latency_seconds=0.001, changes={"limits": {"in_flight": 16}})
    run_all(path, Budget(answers=150))
    events = events_of(path)
    selection = Selection(SelectorSpec(name="ucb-e", stop_when_separated=False))
    assert unexplained_asks(events, selection.pairs(first_size(events))) == []


@pytest.mark.slow
def test_replies_are_shared_between_runs(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    run_all(path)
    second = run_all(path)
    assert second.spent.calls == 0
    assert second.spent.answers == 240
    assert run_all(path, options=Options(use_cache=False)).spent.calls == 240


def test_examples_with_one_prompt_keep_their_own_recorded_replies(tmp_path: Path) -> None:
    path = write_study(tmp_path, changes={"prompts": [{"q": "the same for all"}]})
    standing = run_all(path)
    means = sorted((sum(row) / len(row) for row in recorded_scores(6, 40)), reverse=True)
    assert [row.estimate for row in standing.rows] == pytest.approx(means)


@pytest.mark.slow
def test_an_interrupted_run_is_resumed_where_it_was(tmp_path: Path) -> None:
    path = write_study(tmp_path, changes={"limits": {"in_flight": 1}})
    whole = write_study(tmp_path / "whole", changes={"limits": {"in_flight": 1}})
    run_all(whole, Budget(answers=100))

    async def first() -> Standing:
        async with Study.open(path, overrides={"budget.answers": 100}) as study:
            running = asyncio.create_task(study.run())
            await reached(37, study, running)
            study.stop()
            return await running

    assert asyncio.run(first()).end == "interrupted"
    standing = resume_all(path)
    assert (standing.asked, standing.end) == (100, "budget")
    assert asks_of(path) == asks_of(whole)
    told = [e.seq for e in events_of(path) if isinstance(e, Told)]
    assert sorted(told) == list(range(100))


def test_a_changed_dataset_is_not_resumed(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    run_all(path, Budget(answers=5))
    questions = tmp_path / "questions.jsonl"
    questions.write_text(questions.read_text().replace("q7", "another question"))

    with pytest.raises(ConfigError, match="dataset has changed since the run began"):
        resume_all(path)


def test_a_dataset_that_has_grown_is_resumed_with_the_examples_of_the_beginning(
    tmp_path: Path,
) -> None:
    path = write_study(tmp_path)
    n_examples = run_all(path, Budget(answers=5)).n_examples
    questions = tmp_path / "questions.jsonl"
    row = json.dumps({"id": "new", "question": "q99"})
    questions.write_text(f"{questions.read_text().rstrip()}\n{row}\n")

    async def resumed() -> tuple[Standing, tuple[str, ...]]:
        async with Study.resume(options=Options(store=store_of(path))) as study:
            return await study.run(Budget(answers=5)), study.notices

    standing, notices = asyncio.run(resumed())
    assert (standing.asked, standing.n_examples) == (10, n_examples)
    assert any("the dataset has grown by 1 example; the run goes on with" in n for n in notices)


def test_a_changed_judge_is_not_resumed(tmp_path: Path) -> None:
    entry = tmp_path / "judges" / "mine.yaml"
    entry.parent.mkdir()
    entry.write_text("adapter: exact\noptions: {max_chars: 100}\n")
    rows = [{"id": f"e{j}", "question": f"q{j}", "answer": "1"} for j in range(40)]
    write_lines(tmp_path / "rows.jsonl", rows)
    path = write_study(tmp_path, changes={"scorer": "mine", "dataset": ANSWERED})
    run_all(path, Budget(answers=5))
    assert resume_all(path, Budget(answers=5)).told == 10
    entry.write_text("adapter: exact\noptions: {max_chars: 200}\n")
    with pytest.raises(ConfigError, match=r"judge `mine` is no longer what it was.*begin a new"):
        resume_all(path, Budget(answers=5))


def test_a_stored_run_stands_as_it_did(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    live = run_all(path, Budget(answers=90))
    record = asyncio.run(Archive(store_of(path)).record("latest"))
    assert record.standing.rows == live.rows
    assert record.standing.spent == live.spent


@pytest.mark.slow
def test_failures_are_void_and_end_the_run_when_there_are_too_many(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    scores = tmp_path / "scores.jsonl"
    failed = re.sub(r'(.*"c5".*)"score": [01].0', r'\1"error": "server"', scores.read_text())
    scores.write_text(failed)
    limits = {"limits.max_attempts": 1, "limits.max_failed_share": 0.9}
    standing = run_all(path, overrides=limits, options=Options(clock=FastClock(100)))
    row = next(row for row in standing.rows if row.candidate.label == "c5")
    assert (row.n, row.estimate) == (0, None)
    assert 10 <= row.void < 40  # given up once it has never answered, without trying every pair
    assert row.is_broken
    assert (row.lower, row.upper) == (0.0, 1.0)
    assert not standing.separated
    stopped = run_all(path, overrides={"limits.max_attempts": 1, "limits.max_failed_share": 0.0})
    assert stopped.end == "failures"


@pytest.mark.parametrize("way", ["open", "resume"])
def test_the_event_loop_goes_on_while_weights_are_digested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    path = write_study(tmp_path)
    run_all(path, Budget(answers=10))
    loop_goes_on = threading.Event()
    digested = ReplayProvider.fingerprint

    def slow(self: ReplayProvider, model: str) -> str:
        assert loop_goes_on.wait(20), "the event loop waits for a digest"
        return digested(self, model)

    async def scene() -> None:
        asyncio.get_running_loop().call_later(0.01, loop_goes_on.set)
        options = Options(store=store_of(path))
        opening = Study.open(path) if way == "open" else Study.resume(options=options)
        async with opening as study:
            assert study.standing().grid == 240

    monkeypatch.setattr(ReplayProvider, "fingerprint", slow)
    asyncio.run(scene())


def test_history_is_refused_by_rules_that_do_not_learn(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    with pytest.raises(ConfigError, match="ucb-e does not learn from history; choose one"):
        run_all(path, overrides={"selector.history": ["recorded"]})


async def test_a_candidate_that_joins_before_the_first_ask_is_selected_among(
    tmp_path: Path,
) -> None:
    """As while a run waits for a rate limit: the rule is made for all that are there then."""
    models = {"models": ["replay/c0", "replay/c1"], "selector": {"name": "auto"}}
    path = write_study(tmp_path, n_candidates=3, n_examples=10, changes=models)
    async with Study.open(path) as study:
        joined: list[Candidate] = []

        def look() -> None:  # called in the first turn, before the first ask
            if not joined:
                joined.extend(study.add_candidates([{"model": "replay/c2", "prompt": "q"}]))

        each_turn(study._run.loop, look)
        standing = await study.run()
    assert {row.candidate.label: row.n > 0 for row in standing.rows} == {
        "c0": True,
        "c1": True,
        "c2/q": True,
    }


def test_a_choice_among_one_is_refused(tmp_path: Path) -> None:
    path = write_study(tmp_path, n_candidates=1, changes={"selector": {"name": "auto"}})
    with pytest.raises(ConfigError, match="only one candidate, so there is nothing to choose"):
        run_all(path)


async def test_caps_may_be_set_anew_but_not_below_what_is_spent(tmp_path: Path) -> None:
    path = write_study(tmp_path, changes={"budget": {"answers": 30}})
    async with Study.open(path) as study:
        await study.run(Budget(answers=10))
        study.budget = Budget(answers=4, calls=500)
        assert study.budget == Budget(answers=10, calls=500)
        study.budget = Budget(answers=12)
        assert (await study.run()).asked == 12
