"""Candidates that are shown to be beaten are not asked in place of those that cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem
from tests.support.selector_suite import World, WorldRun

N = 120
WORLD = World.bernoulli([0.9, 0.85, 0.02], N, seed=1)
RULES = ["auto", "pulse", "racing", "ucb-e", "uniform"]
ONLY_BEATEN = np.array([False, False, True])


def after_seventy_scores_each(rule: str, *, stops: bool) -> Pairs:
    run = WorldRun(
        make_selector(
            rule, Problem(3, N, stop_when_separated=stops, within=1e-9 if stops else None)
        ),
        WORLD,
    )
    for _ in range(70):
        for row in range(3):
            if run.ask(1, allowed=np.arange(3) == row):
                run.tell()
    return run.selector


@pytest.mark.parametrize("rule", RULES)
def test_only_what_can_still_decide_is_asked(rule: str) -> None:
    selector = after_seventy_scores_each(rule, stops=True)
    tied = selector.best().tied
    assert tied  # the two good ones are too close to be told apart
    if not selector.rule.exogenous:  # its intervals show nothing
        assert 2 in tied
        return
    assert 2 not in tied
    assert selector.ask(1, allowed=ONLY_BEATEN) == []
    assert selector.stopped() is None
    asks = selector.ask(1, allowed=~ONLY_BEATEN)
    assert [ask.pair.candidate < 2 for ask in asks] == [True]


@pytest.mark.parametrize("rule", RULES)
def test_a_run_to_the_end_of_its_budget_asks_whoever_it_may(rule: str) -> None:
    selector = after_seventy_scores_each(rule, stops=False)
    assert len(selector.ask(1, allowed=ONLY_BEATEN)) == 1
