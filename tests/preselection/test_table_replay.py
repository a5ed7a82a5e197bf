from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.preselection.rules.registry import make_preselector
from bestarm_agent.preselection.rules.types import PreselectionProblem
from bestarm_agent.preselection.table_replay import (
    Table,
    best_fixed_subset,
    replay_table,
)
from tests.support.bandit_model import replay_model

SCORES = np.array(
    [
        [1.0, 1.0, 0.0, 0.0],
        [0.9, 0.9, 0.2, 0.2],
        [0.0, 0.0, 1.0, 1.0],
    ]
)
COSTS = np.array([1.0, 0.1, 0.1])
KINDS = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
TABLE = Table(SCORES, COSTS, KINDS, np.eye(3))


def test_the_best_fixed_subset_by_hand() -> None:
    assert best_fixed_subset(TABLE, 1).tolist() == [1]  # 0.55 against 0.5
    assert best_fixed_subset(TABLE, 2).tolist() == [0, 2]  # right everywhere
    assert best_fixed_subset(TABLE, 2, cost_weight=0.1).tolist() == [1, 2]  # 0.93 against 0.89
    with pytest.raises(ValueError, match="too many to try"):
        best_fixed_subset(Table(np.ones((40, 1)), np.ones(40), np.ones((1, 1)), np.eye(40)), 10)


def test_quality_is_that_of_the_best_answer() -> None:
    chosen = np.array([[0, 1], [1, 2]])
    assert TABLE.best_of(chosen, np.array([0, 3])).tolist() == [1.0, 1.0]
    assert TABLE.best_of(chosen, np.array([2, 0])).tolist() == [0.2, 0.9]
    assert TABLE.utility(0.5)[:, 0] == pytest.approx([0.5, 0.85, -0.05])


def test_a_replayed_rule_learns_who_suits_which_prompts() -> None:
    rule = make_preselector("linucb", PreselectionProblem(3, TABLE.n_features, seed=1))
    order = np.arange(400) % 4
    chosen = replay_table(rule, TABLE, order, 2)
    late = slice(300, None)
    assert chosen.shape == (400, 2)
    assert TABLE.best_of(chosen, order)[late].mean() > 0.97
    assert TABLE.best_of(chosen[:, :1], order)[late].mean() > 0.9


def test_costs_move_the_choice_to_the_cheap() -> None:
    rule = make_preselector("linucb", PreselectionProblem(3, TABLE.n_features, seed=1))
    order = np.arange(400) % 4
    dear = replay_table(rule, TABLE, order, 2, cost_weight=1.0)[300:]
    assert (dear[order[300:] < 2, 0] == 1).all()


def test_running_all_arms_has_no_regret_and_one_arm_cannot_be_compared() -> None:
    rounds = [(np.ones((3, 1)), np.log([4.0, 2.0, 1.0]))] * 20
    rule = make_preselector("random", PreselectionProblem(3, 1))
    assert replay_model(rule, rounds, 3, n_ranked=2, seed=0).tolist() == [0.0] * 20
    with pytest.raises(ValueError, match="at least 2 arms"):
        replay_model(rule, rounds, 1, n_ranked=1, seed=0)


def test_pairs_of_random_arms_have_the_expected_regret() -> None:
    """Two of three: 0 if the best is in (2/3), else 1/2."""
    rounds = [(np.ones((3, 1)), np.log([4.0, 2.0, 1.0]))] * 3000
    rule = make_preselector("random", PreselectionProblem(3, 1))
    regret = replay_model(rule, rounds, 2, n_ranked=1, seed=0)
    assert (np.diff(regret) >= 0).all()
    assert regret[-1] / 3000 == pytest.approx(1 / 6, abs=0.02)  # 4.6 standard errors


def test_tables_and_replays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="4 prompts and 3 arms"):
        Table(SCORES, COSTS, KINDS[:2], np.eye(3))
    with pytest.raises(ValueError, match="scores must be finite"):
        Table(np.full((3, 4), np.nan), COSTS, KINDS, np.eye(3))
    with pytest.raises(ValueError, match=r"scores must be in \[0, 1\]"):
        Table(2 * SCORES, COSTS, KINDS, np.eye(3))


def test_one_candidate_per_prompt_learns_from_pairs_in_the_first_half() -> None:
    rule = make_preselector("linucb", PreselectionProblem(3, TABLE.n_features, seed=1))
    order = np.arange(400) % 4
    chosen = replay_table(rule, TABLE, order, 1)
    assert chosen.shape == (400, 1)
    assert 0 < rule.n_learnt <= 200
    assert TABLE.best_of(chosen, order)[200:].mean() > 0.9
