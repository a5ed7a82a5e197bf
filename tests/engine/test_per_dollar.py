"""Runs that make the most of dollars: the log explains every ask, and cheap calls come first."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.load import load_study
from bestarm_agent.config.study import SelectorSpec
from bestarm_agent.domain.events import Asked, CandidatesAdded
from bestarm_agent.domain.spend import Budget, nanos
from bestarm_agent.engine.record import Size, known_costs, planned_pulls
from bestarm_agent.engine.results.standing import Standing, Status
from bestarm_agent.engine.setup.parts import Options, assemble
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
    assert pairs.problem.costs == pytest.approx(PRICES)
    assert unexplained_asks(events, pairs) == []


@pytest.mark.parametrize(
    ("rule", "params", "is_blind"),
    [
        ("auto", {}, False),
        ("racing", {}, True),
        ("ucb-e", {}, False),
        ("ucb-e", {"common_examples": True}, True),
    ],
)
def test_a_rule_that_is_blind_to_costs_says_so(
    tmp_path: Path, rule: str, params: dict[str, bool], is_blind: bool
) -> None:
    chosen = {**selector(rule), "params": params}
    path = write_study(tmp_path, usd=PRICES, changes={"selector": chosen})
    notices = make_plan(assemble(load_study(path), Catalog(tmp_path, ()))).notices
    assert any("per: dollar changes nothing for" in one for one in notices) is is_blind


@pytest.mark.slow
def test_cheap_candidates_are_pulled_more(tmp_path: Path) -> None:
    changes = {"selector": selector("uniform"), "limits": {"in_flight": 1}}
    path = write_study(tmp_path, n_examples=200, usd=PRICES, changes=changes)
    standing = run_all(path, Budget(pulls=390))
    pulls = {row.candidate.label: row.n for row in standing.rows}
    # in the proportion 1 / sqrt(price): 8 : 4 : 2 : 1 : 8 : 8 of 390, up to one
    wanted = {"c0": 101, "c1": 50, "c2": 25, "c3": 13, "c4": 101, "c5": 101}
    assert all(abs(pulls[label] - n) <= 1 for label, n in wanted.items()), pulls


def test_candidates_join_with_their_price_and_a_resumed_run_goes_on_alike(tmp_path: Path) -> None:
    models = {"models": ["replay/c0", "replay/c3"], "selector": selector("ucb-e")}
    path = write_study(tmp_path, usd=PRICES, changes=models)

    async def scene() -> Standing:
        async with Study.open(path) as study:
            await study.run(Budget(pulls=10))
            study.add_candidates([{"model": "replay/c2", "prompt": "q"}])
            await study.run(Budget(pulls=10))
        options = Options(store=path.parent / "runs" / "runs.sqlite")
        async with Study.resume(options=options) as study:
            return await study.run(Budget(pulls=10))

    assert asyncio.run(scene()).asked == 30
    events = events_of(path)
    joined = [event.costs for event in events if isinstance(event, CandidatesAdded)]
    assert joined == [pytest.approx((0.0001, 0.0064)), pytest.approx((0.0016,))]
    assert unexplained_asks(events, Selection(spec(selector())).pairs(first_size(events))) == []


def test_the_price_and_its_source_are_recorded(tmp_path: Path) -> None:
    path = write_study(tmp_path, usd=PRICES)
    run_all(path, Budget(pulls=1))
    [added] = [event for event in events_of(path) if isinstance(event, CandidatesAdded)]
    assert added.costs == pytest.approx(PRICES)
    assert set(added.prices) == {"recording"}


def test_working_per_dollar_needs_something_that_costs(tmp_path: Path) -> None:
    path = write_study(tmp_path, usd=(0.0,) * 6, changes={"selector": selector()})
    with pytest.raises(ConfigError, match="no candidate costs anything"):
        run_all(path)


def test_working_per_dollar_needs_known_prices(tmp_path: Path) -> None:
    path = write_study(tmp_path, changes={"selector": selector()})
    records = (tmp_path / "scores.jsonl").read_text().replace(', "usd": 0.001', "")
    (tmp_path / "scores.jsonl").write_text(records)
    with pytest.raises(
        ConfigError,
        match=r"prices of replay/c0, .* and replay/c5 are not .*`usd` in",
    ):
        run_all(path)


def test_costs_as_selectors_see_them() -> None:
    assert known_costs([0.5, None]) is None
    assert known_costs([0.0, 0.0]) is None
    assert known_costs([]) is None
    assert known_costs([0.0, 2.0]) == (0.0002, 2.0)  # free counts as a ten-thousandth
    assert known_costs([0.0], highest=5.0) == (0.0005,)


def test_dollars_as_pulls() -> None:
    usd = Budget(usd_nanos=nanos(1))
    assert planned_pulls(usd, None) is None
    assert planned_pulls(usd, (0.01, 0.03)) == 50
    assert planned_pulls(Budget(usd_nanos=nanos(1), pulls=20), (0.01, 0.03)) == 20
    assert planned_pulls(Budget(pulls=20), (0.01,)) == 20
    assert Size(2, 9, usd, (0.01, 0.03)).problem(per_dollar=False).costs is None


def test_a_run_with_any_cap_is_not_open_ended() -> None:
    caps = [Budget(), Budget(pulls=5), Budget(usd_nanos=1), Budget(tokens=9), Budget(seconds=1.0)]
    sizes = [Size(2, 9, cap).problem(per_dollar=False) for cap in caps]
    assert [one.open_ended for one in sizes] == [True, False, False, False, False]


@pytest.mark.parametrize(("rule", "in_vain"), [("racing", True), ("ucb-e", False), ("sysrs", True)])
def test_it_is_said_where_working_per_dollar_changes_nothing(
    tmp_path: Path, rule: str, in_vain: bool
) -> None:
    changes = {"selector": selector(rule), "budget": {"usd": 0.1}}
    path = write_study(tmp_path, usd=PRICES, changes=changes)

    async def scene() -> tuple[str, ...]:
        async with Study.open(path) as study:
            return tuple(study.notices)

    said = [notice for notice in asyncio.run(scene()) if "changes nothing" in notice]
    assert len(said) == in_vain


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
    assert statuses["c0"] is Status.BEATEN
    asked = [event.candidate for event in events_of(path) if isinstance(event, Asked)]
    assert asked[-20:].count(0) <= 4  # the rule's own choice, while others could be asked
