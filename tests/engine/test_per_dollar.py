"""Runs that make the most of dollars: the log explains every ask, and cheap calls come first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.goal_specs import SelectorSpec
from bestarm_agent.config.load import load_study
from bestarm_agent.domain.events import Asked, CandidatesAdded
from bestarm_agent.domain.spend import Budget, nanos
from bestarm_agent.engine.record import Size, known_costs, planned_answers
from bestarm_agent.engine.results.standing import Standing, Status
from bestarm_agent.engine.setup.options import Options
from bestarm_agent.engine.setup.parts import assemble
from bestarm_agent.engine.setup.plan import make_plan
from bestarm_agent.engine.setup.selection import Selection
from bestarm_agent.errors import ConfigError
from bestarm_agent.study import Study
from tests.support.replay_check import first_size, unexplained_asks
from tests.support.studies import events_of, run_all, write_study

PRICES = (0.0001, 0.0004, 0.0016, 0.0064, 0.0001, 0.0001)


def selector(name: str = "ucb-e") -> dict[str, Any]:
    return {"name": name, "per": "dollar", "stop_when_separated": False}


def spec(changes: dict[str, Any]) -> SelectorSpec:
    return SelectorSpec.model_validate(changes)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["auto", "ucb-e", "uniform"])
def test_every_ask_follows_from_the_log_before_it(tmp_path: Path, rule: str) -> None:
    changes = {
        "selector": selector(rule),
        "limits": {"in_flight": 8},
        "budget": {"usd": 0.12},
    }
    path = write_study(tmp_path, latency_seconds=0.001, usd=PRICES, changes=changes)
    standing = run_all(path)
    assert standing.spent.usd_nanos <= nanos("0.12")
    events = events_of(path)
    pairs = Selection(spec(selector(rule))).pairs(first_size(events))
    assert pairs.rule.problem.costs == pytest.approx(PRICES)
    assert unexplained_asks(events, pairs) == []


@pytest.mark.parametrize(
    ("rule", "params", "is_blind"),
    [
        ("auto", {}, False),
        ("racing", {}, True),
        ("sysrs", {}, True),
        ("ucb-e", {}, False),
        ("ucb-e", {"common_examples": True}, True),
    ],
)
def test_a_rule_that_is_blind_to_costs_says_so_in_plan_and_run(
    tmp_path: Path, rule: str, params: dict[str, bool], is_blind: bool
) -> None:
    changes = {"selector": {**selector(rule), "params": params}, "budget": {"usd": 0.1}}
    path = write_study(tmp_path, usd=PRICES, changes=changes)

    async def opened() -> Sequence[str]:
        async with Study.open(path) as study:
            return study.notices

    plan = make_plan(assemble(load_study(path), Catalog(tmp_path, ())))
    for notices in (plan.notices, asyncio.run(opened())):
        assert sum("per: dollar changes nothing for" in one for one in notices) == is_blind


@pytest.mark.slow
def test_cheap_candidates_are_pulled_more(tmp_path: Path) -> None:
    changes = {"selector": selector("uniform"), "limits": {"in_flight": 1}}
    path = write_study(tmp_path, n_examples=200, usd=PRICES, changes=changes)
    standing = run_all(path, Budget(answers=390))
    answers = {row.candidate.label: row.n for row in standing.rows}
    # in the proportion 1 / sqrt(price): 8 : 4 : 2 : 1 : 8 : 8 of 390, up to one
    wanted = {"c0": 101, "c1": 50, "c2": 25, "c3": 13, "c4": 101, "c5": 101}
    assert all(abs(answers[label] - n) <= 1 for label, n in wanted.items()), answers


def test_candidates_join_with_their_price_and_a_resumed_run_goes_on_alike(tmp_path: Path) -> None:
    models = {"models": ["replay/c0", "replay/c3"], "selector": selector("ucb-e")}
    path = write_study(tmp_path, usd=PRICES, changes=models)

    async def scene() -> Standing:
        async with Study.open(path) as study:
            await study.run(Budget(answers=10))
            study.add_candidates([{"model": "replay/c2", "prompt": "q"}])
            await study.run(Budget(answers=10))
        options = Options(store=path.parent / "runs" / "runs.sqlite")
        async with Study.resume(options=options) as study:
            return await study.run(Budget(answers=10))

    assert asyncio.run(scene()).asked == 30
    events = events_of(path)
    joined = [event.costs for event in events if isinstance(event, CandidatesAdded)]
    assert joined == [pytest.approx((0.0001, 0.0064)), pytest.approx((0.0016,))]
    assert unexplained_asks(events, Selection(spec(selector())).pairs(first_size(events))) == []


def test_the_price_and_its_source_are_recorded(tmp_path: Path) -> None:
    path = write_study(tmp_path, usd=PRICES)
    run_all(path, Budget(answers=1))
    [added] = [event for event in events_of(path) if isinstance(event, CandidatesAdded)]
    assert added.costs == pytest.approx(PRICES)
    assert set(added.prices) == {"recording"}


@pytest.mark.parametrize(
    ("price", "said"),
    [
        (', "usd": 0.0', "no candidate costs anything"),
        ("", r"prices of replay/c0, .* and replay/c5 are not .*`usd` in"),
    ],
)
def test_working_per_dollar_needs_prices(tmp_path: Path, price: str, said: str) -> None:
    path = write_study(tmp_path, changes={"selector": selector()})
    records = (tmp_path / "scores.jsonl").read_text().replace(', "usd": 0.001', price)
    (tmp_path / "scores.jsonl").write_text(records)
    with pytest.raises(ConfigError, match=said):
        run_all(path)


@pytest.mark.parametrize(
    ("costs", "highest", "seen"),
    [
        ([0.5, None], None, None),
        ([0.0, 0.0], None, None),
        ([], None, None),
        ([0.0, 2.0], None, (0.0002, 2.0)),  # free counts as a ten-thousandth
        ([0.0], 5.0, (0.0005,)),
    ],
)
def test_costs_as_selectors_see_them(
    costs: list[float | None], highest: float | None, seen: tuple[float, ...] | None
) -> None:
    assert known_costs(costs, **({"highest": highest} if highest else {})) == seen


@pytest.mark.parametrize(
    ("budget", "costs", "answers", "open_ended"),
    [
        (Budget(usd_nanos=nanos(1)), None, None, False),
        (Budget(usd_nanos=nanos(1)), (0.01, 0.03), 50, False),
        (Budget(usd_nanos=nanos(1), answers=20), (0.01, 0.03), 20, False),
        (Budget(answers=20), (0.01, 0.01), 20, False),
        (Budget(calls=20), None, 20, False),  # an answer takes one call at least
        (Budget(calls=20, answers=30, tokens=9), None, 20, False),
        (Budget(usd_nanos=nanos(1), calls=60), (0.01, 0.03), 50, False),
        (Budget(), None, None, True),
        (Budget(tokens=9), None, None, False),
        (Budget(seconds=1.0), None, None, False),
    ],
)
def test_a_budget_as_pulls_and_a_run_with_any_cap_is_not_open_ended(
    budget: Budget, costs: tuple[float, ...] | None, answers: int | None, open_ended: bool
) -> None:
    assert planned_answers(budget, costs) == answers
    problem = Size(2, 9, budget, costs).problem(per_dollar=False)
    assert (problem.open_ended, problem.costs) == (open_ended, None)


def test_dollars_that_the_leaders_are_too_expensive_for_are_not_spent_on_the_beaten(
    tmp_path: Path,
) -> None:
    models = ["replay/c0", "replay/c4", "replay/c5"]
    changes = {
        "models": models,
        "selector": {"name": "auto", "stop_when_separated": True},
        "budget": {"usd": 2},
    }
    prices = (0.0001, 0, 0, 0, 0.01, 0.01)
    path = write_study(tmp_path, n_examples=400, usd=prices, changes=changes)
    standing = run_all(path)
    assert standing.end == "budget"
    assert nanos("1.98") < standing.spent.usd_nanos < nanos("2")
    statuses = {row.candidate.label: row.status for row in standing.rows}
    assert statuses["c0"] is Status.WORSE
    asked = [event.candidate for event in events_of(path) if isinstance(event, Asked)]
    assert asked[-20:].count(0) <= 8  # the rule's own choice, while others could be asked
