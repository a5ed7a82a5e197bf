"""Gains of routing over fixed choices: paired, clustered, corrected, and of the promised level."""

from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.preselection.policy_comparison import (
    PolicyResult,
    _clustered,
    simulate,
    verdict,
)
from bestarm_agent.preselection.settings import RouterSettings
from bestarm_agent.preselection.table_replay import Table
from tests.stats.conftest import RateCheck

NAMES = ("a", "b", "c", "d")
RULES = {name: RouterSettings(rule=name) for name in ("random", "mm", "linucb")}


def world(seed: int, means: list[float], n: int) -> Table:
    """Binary scores of given means that no feature says anything about."""
    rng = np.random.default_rng([seed, 5])
    scores = (rng.random((4, n)) < np.array(means)[:, None]).astype(float)
    prompts = np.column_stack([np.ones(n), rng.normal(size=n)])
    return Table(scores, np.zeros(4), prompts, np.eye(4))


def outcome(table: Table, k: int, seed: int) -> list[PolicyResult]:
    rules = {
        name: RouterSettings(rule=name, seed=seed, params=one.params) for name, one in RULES.items()
    }
    return simulate(table, NAMES, rules, k, 2)


def test_clustered_errors_by_hand() -> None:
    # Mean 1/2; residuals of prompt 0: -.5 and +.5, of prompt 1: -.5 and +.5, of prompt 2: twice 0.
    gains = np.array([[0.0, 0.0, 0.5], [1.0, 1.0, 0.5]])
    prompts = np.array([[0, 1, 2], [0, 1, 2]])
    found = _clustered(gains, prompts, 2.0)
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)  # sums of residuals cancel
    found = _clustered(np.array([[0.0, 1.0]]), np.array([[0, 1]]), 1.0)
    assert found.high - found.value == pytest.approx(np.sqrt(2 / 1 * 0.5) / 2)
    twice = _clustered(np.array([[0.0, 1.0]] * 2), np.array([[0, 1]] * 2), 1.0)
    assert twice == found  # the same prompts again are no further evidence


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize(
    ("means", "k"), [([0.5] * 4, 2), ([0.4, 0.5, 0.5, 0.6], 1)], ids=["equal", "unequal"]
)
def test_routing_that_cannot_gain_is_rarely_called_worth_it(
    means: list[float], k: int, check_rate: RateCheck
) -> None:
    # 120 tables of 100 prompts; one-sided binomial test at level 1e-6 against 0.05.
    claims = 0
    for seed in range(120):
        lines = outcome(world(seed, means, 100), k, seed)
        claims += "is worth it" in verdict(lines, k, 100)
    check_rate(claims, 120, 0.05)


def test_routing_that_gains_is_called_worth_it() -> None:
    rng = np.random.default_rng(6)
    kind = rng.integers(2, size=400)
    likely = np.where(np.arange(4)[:, None] % 2 == kind, 0.9, 0.2)
    scores = (rng.random((4, 400)) < likely).astype(float)
    prompts = np.column_stack([np.ones(400), 2.0 * kind - 1.0])
    table = Table(scores, np.zeros(4), prompts, np.eye(4))
    assert verdict(outcome(table, 1, 0), 1, 400).startswith("linucb is worth it")


def test_gains_subtract_costs_on_both_sides() -> None:
    table = world(3, [0.5, 0.5, 0.5, 0.5], 60)
    priced = Table(table.scores, np.full(4, 0.1), table.prompts, table.arms)
    plain = simulate(table, NAMES, {"mm": RouterSettings(rule="mm")}, 2, 1)
    costly = simulate(priced, NAMES, {"mm": RouterSettings(rule="mm", cost_weight=1.0)}, 2, 1)
    assert plain[0].gain is not None
    assert costly[0].gain is not None
    assert costly[0].gain.value == pytest.approx(plain[0].gain.value)
    oracles = [lines[-1].gain for lines in (plain, costly)]
    assert oracles[0] is not None
    assert oracles[1] is not None
    assert oracles[1].value == pytest.approx(oracles[0].value + 0.1)  # one answer instead of two
