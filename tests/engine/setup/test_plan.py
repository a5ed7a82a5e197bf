"""Plans: what a study is expected to cost, what it can cost, and by which prices."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.goal_specs import ObjectiveSpec
from bestarm_agent.config.load import load_study
from bestarm_agent.domain.spend import Spend, nanos
from bestarm_agent.engine.record import Size
from bestarm_agent.engine.setup.parts import assemble
from bestarm_agent.engine.setup.plan import Known, Plan, answers_needed, make_plan, usage_of
from tests.support.commands import invoke
from tests.support.studies import write_study

Capsys: TypeAlias = pytest.CaptureFixture[str]

PRICES = (0.0001, 0.0004, 0.0016, 0.0064, 0.0001, 0.0001)  # dollars, mean 0.00145


def plan_of(path: Path, where: Path | None = None) -> Plan:
    study = load_study(path)
    return make_plan(assemble(study, Catalog(study.base_dir, ())), where)


def study(folder: Path, **changes: Any) -> Path:  # noqa: ANN401
    return write_study(folder, usd=PRICES, changes=changes)


def test_the_bounds_are_the_plan(tmp_path: Path) -> None:
    plan = plan_of(study(tmp_path, budget={"answers": 60}, selector={"name": "uniform"}))
    assert plan.expected == Spend(answers=60, calls=60, usd_nanos=10 * sum(map(nanos, PRICES)))
    assert plan.worst.usd_nanos == 60 * 5 * nanos(0.0064)
    assert plan.sure_answers == 60


def test_prices_and_where_they_come_from(tmp_path: Path) -> None:
    plan = plan_of(study(tmp_path))
    assert [(price.model, price.source) for price in plan.prices] == [
        (f"replay/c{i}", "recording") for i in range(6)
    ]
    assert [price.most_usd_nanos for price in plan.prices] == [nanos(price) for price in PRICES]
    assert plan.unpriced == ()


def test_what_is_unpriced_is_said(tmp_path: Path) -> None:
    path = study(tmp_path)
    lines = (tmp_path / "scores.jsonl").read_text().splitlines()
    kept = [line.split(', "usd"')[0] + "}" if '"c3"' in line else line for line in lines]
    (tmp_path / "scores.jsonl").write_text("\n".join(kept))
    plan = plan_of(path)
    assert plan.unpriced == ("replay/c3",)
    [unknown] = [price for price in plan.prices if price.source is None]
    assert (unknown.model, unknown.most_usd_nanos) == ("replay/c3", None)


def test_dollars_pay_for_so_many_pairs_for_sure(tmp_path: Path) -> None:
    plan = plan_of(study(tmp_path, budget={"usd": 0.064}))
    assert plan.sure_answers == 10
    assert plan.expected.usd_nanos <= nanos(0.064)


@pytest.mark.parametrize("selector", ["auto", "uniform"])
@pytest.mark.parametrize(("usd", "answers"), [(0.03, 30), (0.0305, 30), (0.0001, 0)])
def test_no_more_answers_are_expected_than_the_dollars_buy(
    tmp_path: Path, usd: float, answers: int, selector: str
) -> None:
    path = write_study(tmp_path, changes={"budget": {"usd": usd}, "selector": selector})
    plan = plan_of(path)
    assert (plan.least, plan.most, plan.sure_answers) == (answers, answers, answers)
    assert plan.expected == Spend(answers, answers, usd_nanos=answers * nanos(0.001))


def test_per_dollar_the_dear_ones_are_pulled_less(tmp_path: Path) -> None:
    """1 / sqrt(price) is 8 : 4 : 2 : 1 : 8 : 8, of 31."""
    per_dollar = {"name": "uniform", "per": "dollar"}
    plan = plan_of(study(tmp_path, budget={"answers": 62}, selector=per_dollar))
    shares = (8, 4, 2, 1, 8, 8)
    expected = sum(2 * n * nanos(price) for n, price in zip(shares, PRICES, strict=True))
    assert plan.expected.usd_nanos == pytest.approx(expected, abs=2)


def test_without_a_key_a_plan_is_made_and_names_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    plan = plan_of(study(tmp_path, models=["openai/gpt-4.1-mini"], providers={}))
    [missing] = [notice for notice in plan.notices if "OPENAI_API_KEY is not set" in notice]
    assert missing.startswith("before the first call: ")


def test_a_limit_of_a_model_that_is_not_called_is_told(tmp_path: Path) -> None:
    limits = {"models": {"replay/c0": {"rpm": 10}, "replay/c00": {"rpm": 10}}}
    told = [one for one in plan_of(study(tmp_path, limits=limits)).notices if "limits." in one]
    assert len(told) == 1
    assert "`limits.models.replay/c00` limits nothing, since no such model is called; " in told[0]
    assert "`replay/c0`" in told[0]


def test_an_answer_is_expected_to_cost_what_stored_replies_did() -> None:
    """Worked by hand: three of four candidates have replies."""
    costs = np.full((4, 5), np.nan)
    costs[:3] = [[1.0, 1, 100, 10 * n, 0] for n in (1, 2, 3)]
    known = replace(Known.nothing(4), costs=costs, n_replies=3)
    bounds, none = [Spend(answers=1, calls=2, tokens=1000, usd_nanos=50)] * 4, Spend()
    # the fourth: calls 3 / 6 of 2, tokens 300 / 3,000 of 1,000, dollars 60 / 150 of 50
    assert usage_of(known, bounds, none)[3].tolist() == [1.0, 1.0, 100.0, 20.0, 0.0]
    assert usage_of(known, bounds, none)[0].tolist() == [1.0, 1.0, 100.0, 10.0, 0.0]
    assert usage_of(Known.nothing(4), bounds, none).tolist() == [[1.0, 2.0, 1000.0, 50.0, 0.0]] * 4
    # judging by the same shares: 1/2 of 2, 1/10 of 200, 2/5 of 40
    judge = Spend(calls=2, tokens=200, usd_nanos=40)
    assert usage_of(known, bounds, judge)[0].tolist() == [1.0, 2.0, 120.0, 26.0, 0.0]
    assert usage_of(Known.nothing(4), bounds, judge)[0].tolist() == [1.0, 4.0, 1200.0, 90.0, 0.0]


def test_after_a_run_the_plan_is_its_usage(tmp_path: Path, capsys: Capsys) -> None:
    """Every reply is stored, and the rule asks for all of them."""
    path = study(tmp_path, selector={"name": "uniform", "stop_when_separated": False})
    assert plan_of(path, tmp_path / "none.sqlite").n_replies == 0
    assert not (tmp_path / "none.sqlite").exists(), "a plan writes nothing"
    done = invoke(capsys, "select", "-c", path, "-q", "--json", folder=tmp_path)
    spent = json.loads(done.out)["spent"]
    plan = plan_of(path, tmp_path / "runs" / "runs.sqlite")
    assert plan.n_replies == plan.answers == 240
    assert plan.expected.usd_nanos == pytest.approx(spent["usd"] * 1e9)
    assert plan.expected.calls == spent["calls"]


@pytest.mark.slow
def test_a_rule_that_stops_is_expected_to(tmp_path: Path) -> None:
    """The simulated runs of the study's own rule end before all answers where means are known."""
    rule = {"name": "auto", "stop_when_separated": True}
    path = write_study(tmp_path, n_candidates=4, n_examples=200, changes={"selector": rule})
    study = load_study(path)
    parts = assemble(study, Catalog(study.base_dir, ()))
    size = Size(4, 200)
    known = replace(Known.nothing(4), means=np.array([0.9, 0.5, 0.4, 0.3]), counts=np.full(4, 200))

    def needed(known: Known, at_once: int) -> list[int]:
        asks = answers_needed(
            lambda: parts.mode.pairs(size, parts.candidates),
            known,
            [0.0] * 4,
            most=800,
            at_once=at_once,
            seed=1,
        )
        return [int(n) for n in asks.sum(axis=1)]

    far, alike = needed(known, 1), needed(replace(known, means=np.full(4, 0.6)), 1)
    assert max(far) < 300 < min(alike)
    assert max(far) <= max(needed(known, 32)) <= max(far) + 125, "what is in flight is paid too"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "is_known"),
    [
        ({"at_least": 0.7}, True),
        ({"epsilon": 0.1}, True),
        ({"name": "best-under-usd", "usd_per_1k_calls": 2}, False),
    ],
)
def test_an_objective_of_scores_ends_the_simulated_runs(
    tmp_path: Path, objective: dict[str, object], is_known: bool
) -> None:
    """What limits of prices end cannot be known before a call; what scores end is simulated."""
    rule = {"name": "auto", "stop_when_separated": True}
    changes = {"selector": rule, "objective": objective}
    path = write_study(tmp_path, n_candidates=3, n_examples=400, changes=changes)
    study = load_study(path)
    parts = assemble(study, Catalog(study.base_dir, ()))
    known = replace(Known.nothing(3), means=np.array([0.95, 0.94, 0.5]), counts=np.full(3, 400))

    def needed(spec: ObjectiveSpec | None) -> int:
        asks = answers_needed(
            lambda: parts.mode.pairs(Size(3, 400), parts.candidates),
            known,
            [0.002, 0.001, 0.001],
            most=1200,
            at_once=4,
            seed=1,
            objective=spec,
        )
        return int(asks.sum(axis=1).max())

    plan = make_plan(parts)
    assert plan.is_most == (not is_known)
    if is_known:
        assert needed(study.config.objective) < needed(None)
