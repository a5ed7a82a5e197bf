from __future__ import annotations

import numpy as np
import pytest
from benchmarks.preselection.rules import Mm

from bestarm_agent.preselection.cppl import Cppl
from bestarm_agent.preselection.linucb import LinUcb
from bestarm_agent.preselection.rule import RankedArms, score_feedback
from tests.support.feedback import winner_feedback


def test_mm_by_hand() -> None:
    """Two arms, one win: wins 2 and 1; one step from utilities 1, 1 gives 2/1.5 and 1/1.5."""
    rule = Mm(2, 1, steps=1)
    rule.learn(winner_feedback(np.zeros((2, 1)), [0, 1], winner=0))
    assert rule.utilities == pytest.approx([2 / 1.5, 1 / 1.5])


def test_mm_converges_to_the_maximum() -> None:
    """At the fixed point wins equal expected wins (Hunter 2004, the score equation)."""
    rule = Mm(4, 1, steps=500)
    contexts = np.zeros((4, 1))
    for order in ([0, 1, 2, 3], [1, 0, 3, 2], [0, 2, 1, 3], [3, 0]):
        rule.learn(RankedArms(contexts, np.array(order), len(order)))
    v = rule.utilities
    stages = [[0, 1, 2, 3], [1, 2, 3], [2, 3], [1, 0, 3, 2], [0, 3, 2], [3, 2]]
    stages += [[0, 2, 1, 3], [2, 1, 3], [1, 3], [3, 0]]
    expected = sum(np.isin(np.arange(4), s) * v / v[s].sum() for s in stages) + 2 * v / (v + 1)
    wins = np.array([1.0, 1, 1, 1])
    for stage in stages:
        wins[stage[0]] += 1
    assert expected == pytest.approx(wins, rel=1e-6)


def test_mm_counts_equal_sets_once() -> None:
    rule = Mm(3, 1)
    for turn in range(10):
        rule.learn(winner_feedback(np.zeros((3, 1)), [0, 2], winner=2 * (turn % 2)))
    [(members, count)] = rule._sets.values()
    assert (members.tolist(), count) == ([1, 0, 1], 10)


def test_linucb_by_hand() -> None:
    """d = 1, ridge 1: x = 1 scored 1 and x = 2 scored 0 give theta = 1/6, error sqrt(1/6) x."""
    rule = LinUcb(2, 1)
    rule.width = 2.0
    contexts = np.array([[1.0], [2.0]])
    rule.learn(RankedArms(contexts, np.array([0, 1]), 1, np.array([1.0, 0.0])))
    assert rule.theta == pytest.approx([1 / 6])
    index = rule.index(contexts, np.random.default_rng(0))
    assert index == pytest.approx([1 / 6 + 2 / 6**0.5, 2 / 6 + 4 / 6**0.5])


def test_winners_count_one_where_there_are_no_scores() -> None:
    with_scores, without = LinUcb(2, 2), LinUcb(2, 2)
    with_scores.learn(RankedArms(np.eye(2), np.array([1, 0]), 1, np.array([1.0, 0.0])))
    without.learn(RankedArms(np.eye(2), np.array([1, 0]), 1))
    assert with_scores.theta.tolist() == without.theta.tolist()


def test_a_tie_teaches_nothing() -> None:
    rule = LinUcb(3, 3)
    assert not rule.learn(RankedArms(np.eye(3), np.array([0, 1]), 0, np.array([0.0, 0.0])))
    assert rule.learn(RankedArms(np.eye(3), np.array([0, 1]), 1, np.array([1.0, 0.0])))
    assert rule.theta == pytest.approx([1 / 2, 0, 0])  # (1 + n)^-1 times the sum of scores
    assert (rule.n_learnt, rule.n_ties) == (1, 0)


def test_a_rule_whose_arms_always_tie_explores_after_a_while() -> None:
    """Arms 0 and 1 are always wrong together; arm 2 is always right."""
    rule = Cppl(3, 3, spread=0.0)
    rule.omega = 0.0
    contexts = np.eye(3)
    for _ in range(5):  # 0 and 1 beat 2 by bad luck
        for winner in (0, 1):
            rule.learn(winner_feedback(contexts, [winner, 2], winner))
    scores = np.array([0.0, 0.0, 1.0])
    for turn in range(1500):
        chosen = rule.choose(contexts, 2, turn)
        assert turn >= 100 or 2 not in chosen
        rng = np.random.default_rng(turn)
        rule.learn(score_feedback(contexts, chosen.tolist(), scores[chosen], rng))
    assert rule.choose(contexts, 1, 0).tolist() == [2]
    other = Cppl(3, 3, spread=0.0)
    other.restore(rule.state())
    assert other.n_ties == rule.n_ties
