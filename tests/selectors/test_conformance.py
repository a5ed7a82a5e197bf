"""Every rule, every registered one among them, against what all rules must do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from benchmarks.baselines.filled_subset import FilledSubset
from benchmarks.baselines.halving import SequentialHalving
from benchmarks.baselines.lrf import Lrf
from benchmarks.baselines.lucb import Lucb
from benchmarks.baselines.naive_pooling import NaivePooling
from benchmarks.baselines.row_mean import RowMean
from benchmarks.baselines.sar import Sar
from benchmarks.baselines.score_only import ScoreOnly
from benchmarks.baselines.top_two import TopTwo

from bestarm_agent.selectors.auto.rule import Auto
from bestarm_agent.selectors.registry import SELECTORS
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.rules.opt_mai import OptMai
from bestarm_agent.selectors.rules.pulse import Pulse
from bestarm_agent.selectors.rules.racing import Racing, Uniform
from bestarm_agent.selectors.rules.rounds import SuccessiveRejects
from bestarm_agent.selectors.rules.ucb_e import UcbE
from bestarm_agent.selectors.rules.ucb_e_lrf import UcbELrf
from bestarm_agent.selectors.types import Problem
from tests.support.histories import lesson
from tests.support.selector_suite import SelectorSuite


def with_history(rule: Callable[..., Rule], problem: Problem, **given: int) -> Rule:
    return rule(problem, history=lesson(problem.n_examples), **given)


def on_a_grid(problem: Problem) -> Rule:
    """Two axes on which any number of candidates share levels."""
    row = np.arange(problem.n_candidates)
    return Auto(replace(problem, axes=np.column_stack([row % 2, row // 2])))


def per_cost(rule: Callable[[Problem], Rule], problem: Problem) -> Rule:
    """With prices that are wrong alike: the suite's pulls all cost a tenth."""
    return rule(replace(problem, costs=(0.3,) * problem.n_candidates))


def of_four(problem: Problem) -> Rule:
    """More than half of the suite's six candidates are wanted: the mirrored problem."""
    return OptMai(problem, top_k=min(4, max(1, problem.n_candidates - 1)), beta=0.9)


class Row(NamedTuple):
    make: Callable[[Problem], Rule]
    learns: bool = True
    easy_budget: int = 120


ROWS = {
    "auto": Row(Auto),
    "auto on a grid": Row(on_a_grid),
    "auto per cost": Row(partial(per_cost, Auto)),
    "auto with history": Row(partial(with_history, Auto)),
    "opt-mai": Row(OptMai),
    "opt-mai of four": Row(of_four, learns=False),
    "pulse": Row(partial(Pulse, batch=3)),
    "pulse with history": Row(partial(with_history, Pulse, batch=3)),
    "racing": Row(Racing, learns=False),
    "sysrs": Row(SuccessiveRejects),
    "ucb-e": Row(UcbE),
    "ucb-e in batches": Row(partial(UcbE, batch=3)),
    "ucb-e on common examples": Row(partial(UcbE, common_examples=True)),
    "ucb-e per cost": Row(partial(per_cost, UcbE)),
    # two pulls per example say nothing to a model; its own test has a low-rank problem
    "ucb-e-lrf": Row(partial(UcbELrf, batch=8, members=16), learns=False),
    "uniform": Row(Uniform, learns=False),
    # the papers' baselines
    "filled-subset": Row(FilledSubset, learns=False),
    "halving": Row(SequentialHalving),
    "lrf": Row(Lrf, learns=False),
    "lucb": Row(Lucb),
    "lucb of two": Row(partial(Lucb, top_k=2, delta=0.1), learns=False),  # not the one best
    "naive-pooling": Row(partial(NaivePooling, batch=3)),
    # the made-up predictions mislead it at first
    "naive-pooling with history": Row(
        partial(with_history, NaivePooling, batch=3, tau=2), easy_budget=300
    ),
    "row-mean": Row(RowMean, learns=False),
    "sar": Row(Sar),
    "sar of three": Row(partial(Sar, top_k=3), learns=False),
    "score-only": Row(partial(ScoreOnly, batch=8, members=16), learns=False),
    "top-two": Row(TopTwo),
}


class TestEveryRule(SelectorSuite):
    @pytest.fixture(autouse=True, params=ROWS)
    def _row(self, request: pytest.FixtureRequest) -> None:
        self.row = ROWS[request.param]
        self.learns, self.easy_budget = self.row.learns, self.row.easy_budget

    def make(self, problem: Problem) -> Rule:
        return self.row.make(problem)


def test_every_registered_rule_is_among_them() -> None:
    names = {row.make(Problem(3, 9, budget=30)).name for row in ROWS.values()}
    assert set(SELECTORS.built_in) <= names
