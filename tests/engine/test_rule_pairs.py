"""A rule's pairs, and those beside them."""

from __future__ import annotations

import numpy as np
from scipy.stats import binomtest

from bestarm_agent.engine.rule_pairs import RulePairs
from bestarm_agent.selectors.rules.auto import Auto
from bestarm_agent.selectors.types import Problem
from bestarm_agent.stats.models.example_factors import Factors
from tests.selectors.rules.test_auto_history import lesson


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
