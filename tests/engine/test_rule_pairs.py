"""A rule's pairs, and those beside them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from bestarm_agent.domain.events import SLICE
from bestarm_agent.engine.rule_pairs import RulePairs
from bestarm_agent.selectors.rules.auto import Auto
from bestarm_agent.selectors.types import Ask, Pair, Problem, State, Tell
from bestarm_agent.stats.models.example_factors import Factors
from tests.selectors.rules.test_auto_history import lesson


def test_the_rule_is_not_told_what_is_asked_beside_it_and_may_ask_it_again() -> None:
    pairs, alone = (RulePairs(Problem(1, 8), Auto(Problem(1, 8))) for _ in range(2))
    beside = [Ask(seq, Pair(0, example), None, SLICE) for seq, example in enumerate((3, 5))]
    pairs.adopt(beside)
    pairs.tell([Tell(seq, State.DONE, 1.0) for seq in (0, 1)])
    assert np.isnan(pairs.estimates().mean).all()
    own = pairs.ask(8)
    assert [ask.pair for ask in own] == [ask.pair for ask in alone.ask(8)]
    assert [ask.seq for ask in own] == list(range(2, 10))
    pairs.tell([Tell(ask.seq, State.DONE, 0.0) for ask in own])
    assert pairs.estimates().mean.tolist() == [0.0]
    assert pairs.table.n_asked == 10
    with pytest.raises(ValueError, match="asked before"):
        pairs.adopt([Ask(10, Pair(0, 3), None, SLICE)])


def test_the_order_is_that_of_the_rule_without_the_examples_kept_back() -> None:
    rule = Auto(Problem(2, 6))
    pairs = RulePairs(Problem(2, 8), rule, held=(2, 7))
    shown = [0, 1, 3, 4, 5, 6]
    assert pairs.order == [shown[column] for column in rule.shared_order]


def test_the_order_is_uniform_where_the_rule_prefers_some_examples() -> None:
    # A fifth of the examples come early in the rule's order. Two-sided binomial test at 1e-6 of
    # their share in the first ten of the other order: 60 seeds.
    factors = Factors(np.repeat([8.0, 0.0], (80, 20)), np.ones((100, 1)))
    early = preferred = 0
    for seed in range(60):
        rule = Auto(Problem(2, 100, seed=seed), history=lesson(factors))
        preferred += int((rule.shared_order[:10] >= 80).sum())
        early += sum(one >= 80 for one in RulePairs(Problem(2, 100), rule).order[:10])
    assert preferred > 300
    assert binomtest(early, 600, 0.2).pvalue > 1e-6
