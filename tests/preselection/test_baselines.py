from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.preselection.linear_scores import LinUcb, ThompsonScores
from bestarm_agent.preselection.mm import Mm
from bestarm_agent.preselection.types import Feedback, PreselectionProblem, winner_feedback


def test_mm_by_hand() -> None:
    """Two arms, one win: wins 2 and 1; one step from utilities 1, 1 gives 2/1.5 and 1/1.5."""
    rule = Mm(PreselectionProblem(2, 1), steps=1)
    rule.learn(winner_feedback(np.zeros((2, 1)), [0, 1], winner=0))
    assert rule.utilities == pytest.approx([2 / 1.5, 1 / 1.5])


def test_mm_converges_to_the_maximum() -> None:
    """At the fixed point wins equal expected wins (Hunter 2004, the score equation)."""
    rule = Mm(PreselectionProblem(4, 1), steps=500)
    contexts = np.zeros((4, 1))
    for order in ([0, 1, 2, 3], [1, 0, 3, 2], [0, 2, 1, 3], [3, 0]):
        rule.learn(Feedback(contexts, np.array(order), len(order)))
    v = rule.utilities
    stages = [[0, 1, 2, 3], [1, 2, 3], [2, 3], [1, 0, 3, 2], [0, 3, 2], [3, 2]]
    stages += [[0, 2, 1, 3], [2, 1, 3], [1, 3], [3, 0]]
    expected = sum(np.isin(np.arange(4), s) * v / v[s].sum() for s in stages) + 2 * v / (v + 1)
    wins = np.array([1.0, 1, 1, 1])
    for stage in stages:
        wins[stage[0]] += 1
    assert expected == pytest.approx(wins, rel=1e-6)


def test_mm_counts_equal_sets_once() -> None:
    rule = Mm(PreselectionProblem(3, 1))
    for turn in range(10):
        rule.learn(winner_feedback(np.zeros((3, 1)), [0, 2], winner=2 * (turn % 2)))
    assert rule.state()["sets"].tolist() == [[1, 0, 1]]
    assert rule.state()["set_counts"].tolist() == [10]


def test_linucb_by_hand() -> None:
    """d = 1, ridge 1: x = 1 scored 1 and x = 2 scored 0 give theta = 1/6, error sqrt(1/6) x."""
    rule = LinUcb(PreselectionProblem(2, 1), width=2.0)
    contexts = np.array([[1.0], [2.0]])
    rule.learn(Feedback(contexts, np.array([0, 1]), 1, np.array([1.0, 0.0])))
    assert rule.theta == pytest.approx([1 / 6])
    index = rule._index(contexts, np.random.default_rng(0))
    assert index == pytest.approx([1 / 6 + 2 / 6**0.5, 2 / 6 + 4 / 6**0.5])


def test_winners_count_one_where_there_are_no_scores() -> None:
    problem = PreselectionProblem(2, 2)
    with_scores, without = LinUcb(problem), LinUcb(problem)
    with_scores.learn(Feedback(np.eye(2), np.array([1, 0]), 1, np.array([1.0, 0.0])))
    without.learn(Feedback(np.eye(2), np.array([1, 0]), 1))
    assert with_scores.theta.tolist() == without.theta.tolist()


def test_thompson_draws_have_the_posterior_covariance() -> None:
    rule = ThompsonScores(PreselectionProblem(2, 2), noise=0.5)
    mixed = np.array([[1.0, 0.5], [0.0, 1.0]])
    for _ in range(5):
        rule.learn(Feedback(mixed, np.array([0, 1])))
    rng = np.random.default_rng(8)
    draws = np.array([rule._index(np.eye(2), rng) for _ in range(20000)])
    gram = np.eye(2) + 5 * mixed.T @ mixed
    assert draws.mean(axis=0) == pytest.approx(rule.theta, abs=0.01)
    assert np.cov(draws.T) == pytest.approx(0.25 * np.linalg.inv(gram), abs=0.002)
