"""Plans: what a study is expected to cost, what it can cost, and by which prices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.load import load_study
from bestarm_agent.domain.spend import Spend, nanos
from bestarm_agent.engine.setup.parts import assemble
from bestarm_agent.engine.setup.plan import Plan, make_plan
from tests.support.studies import write_study

PRICES = (0.0001, 0.0004, 0.0016, 0.0064, 0.0001, 0.0001)  # dollars, mean 0.00145


def plan_of(path: Path) -> Plan:
    study = load_study(path)
    return make_plan(assemble(study, Catalog(study.base_dir, ())))


def study(folder: Path, **changes: Any) -> Path:  # noqa: ANN401
    return write_study(folder, usd=PRICES, changes=changes)


def test_the_bounds_are_the_plan(tmp_path: Path) -> None:
    plan = plan_of(study(tmp_path, budget={"answers": 60}))
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


def test_per_dollar_the_dear_ones_are_pulled_less(tmp_path: Path) -> None:
    """1 / sqrt(price) is 8 : 4 : 2 : 1 : 8 : 8, of 31."""
    per_dollar = {"name": "uniform", "per": "dollar"}
    plan = plan_of(study(tmp_path, budget={"answers": 62}, selector=per_dollar))
    shares = (8, 4, 2, 1, 8, 8)
    expected = sum(2 * n * nanos(price) for n, price in zip(shares, PRICES, strict=True))
    assert plan.expected.usd_nanos == pytest.approx(expected, abs=2)
