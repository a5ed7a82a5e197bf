"""Plans: what a study is expected to cost, what it can cost, and by which prices."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.study.load import load_study
from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.events import Asked, Told
from bestarm_agent.domain.outcome import Scored
from bestarm_agent.domain.spend import Budget, Spend, Usage, nanos
from bestarm_agent.engine.setup.cost_plan import Plan, make_plan
from bestarm_agent.engine.setup.open_run import Options
from bestarm_agent.engine.setup.study_parts import assemble
from bestarm_agent.store.run_state import RunState, fold
from bestarm_agent.store.sql_store import SqlStore
from bestarm_agent.study import Study
from tests.support.standings import state_of
from tests.support.studies import write_study

PRICES = (0.0001, 0.0004, 0.0016, 0.0064, 0.0001, 0.0001)  # dollars, mean 0.00145


def plan_of(path: Path, earlier: tuple[RunState, ...] = ()) -> Plan:
    study = load_study(path)
    return make_plan(assemble(study, Catalog(study.base_dir, ())), earlier)


def study(folder: Path, **changes: Any) -> Path:  # noqa: ANN401
    return write_study(folder, usd=PRICES, changes=changes)


def test_without_an_earlier_run_the_bounds_are_the_plan(tmp_path: Path) -> None:
    plan = plan_of(study(tmp_path, budget={"pulls": 60}))
    assert not plan.learned
    assert plan.expected == Spend(pulls=60, calls=60, usd_nanos=10 * sum(map(nanos, PRICES)))
    assert plan.worst.usd_nanos == 60 * 5 * nanos(0.0064)
    assert plan.sure_pulls == 60


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
    assert plan.sure_pulls == 10
    assert plan.expected.usd_nanos <= nanos(0.064)


def test_per_dollar_the_dear_ones_are_pulled_less(tmp_path: Path) -> None:
    """1 / sqrt(price) is 8 : 4 : 2 : 1 : 8 : 8, of 31."""
    per_dollar = {"name": "uniform", "per": "dollar"}
    plan = plan_of(study(tmp_path, budget={"pulls": 62}, selector=per_dollar))
    shares = (8, 4, 2, 1, 8, 8)
    expected = sum(2 * n * nanos(price) for n, price in zip(shares, PRICES, strict=True))
    assert plan.expected.usd_nanos == pytest.approx(expected, abs=2)


def run_of(candidates: list[Candidate], spends: list[Spend]) -> RunState:
    """A run in which each candidate was pulled once."""
    state = state_of([candidate.label for candidate in candidates], 3)
    state.candidates = list(candidates)
    for i, spend in enumerate(spends):
        state.apply(Asked(i, i, 0, 1.0, ""))
        state.apply(Told(i, Scored(1.0, None, Usage(), spend, 0.1, "k", cached=False), 1.0))
    return state


def test_an_earlier_run_says_what_pulls_cost(tmp_path: Path) -> None:
    """c0 cost half of its bound there; the others are taken to do the same."""
    path = study(tmp_path, budget={"pulls": 60})
    parts = assemble(load_study(path), Catalog(tmp_path, ()))
    half = Spend(pulls=1, calls=1, tokens=7, usd_nanos=nanos(0.00005))
    plan = plan_of(path, (run_of(list(parts.candidates[:1]), [half]),))
    assert plan.learned
    assert plan.expected.usd_nanos == 10 * sum(map(nanos, PRICES)) // 2
    assert plan.expected.tokens == 70  # the recording has no bound for tokens to go by


def test_replies_from_the_cache_teach_nothing(tmp_path: Path) -> None:
    path = study(tmp_path, budget={"pulls": 60})
    parts = assemble(load_study(path), Catalog(tmp_path, ()))
    plan = plan_of(path, (run_of(list(parts.candidates[:1]), [Spend(pulls=1)]),))
    assert not plan.learned


def test_a_real_earlier_run_is_enough(tmp_path: Path) -> None:
    path = study(tmp_path, budget={"pulls": 60})

    async def scene() -> RunState:
        options = Options(store=tmp_path / "runs.sqlite")
        async with Study.open(path, options=options) as opened:
            await opened.run(Budget(pulls=30))
        async with await SqlStore.connect(tmp_path / "runs.sqlite") as store:
            return fold(await store.events_of("latest"))

    plan = plan_of(path, (asyncio.run(scene()),))
    assert plan.learned
    assert plan.expected.usd_nanos == 10 * sum(map(nanos, PRICES))


def test_known_rate_limits_say_how_long_it_takes(tmp_path: Path) -> None:
    """60 calls, 10 for each of 6 models: at 4 a minute each 2.5 minutes, at 2 the slow one 5."""
    limits: dict[str, Any] = {"providers": {"replay": {"rpm": 4}}}
    assert plan_of(study(tmp_path, budget={"pulls": 60}, limits=limits)).minutes == 2.5
    limits["models"] = {"replay/c3": {"rpm": 2}}
    assert plan_of(study(tmp_path, budget={"pulls": 60}, limits=limits)).minutes == 5.0
    limits["providers"]["replay"]["shared"] = True
    limits["models"] = {}
    assert plan_of(study(tmp_path, budget={"pulls": 60}, limits=limits)).minutes == 15.0
