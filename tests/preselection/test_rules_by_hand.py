"""What CPPL, LinUCB and the baselines learn, by hand."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from math import exp, log, sqrt
from typing import Any

import numpy as np
import pytest
from benchmarks.preselection.rules import EpsilonGreedy, MaxTheta, Mm
from scipy.special import logsumexp
from scipy.stats import binomtest

from bestarm_agent.preselection.cppl import Cppl, gradient, hessian
from bestarm_agent.preselection.linucb import LinUcb
from bestarm_agent.preselection.rule import FloatArray, Preselector, RankedArms, score_feedback
from tests.support.bandit_model import draw_ranking
from tests.support.feedback import winner_feedback


def test_one_step_by_hand() -> None:
    """d = 1, contexts 1 and 0, theta starts at 0: the first winner pulls by 2 * (1 - 1/2)."""
    rule = Cppl(2, 1, spread=0.0)
    contexts = np.array([[1.0], [0.0]])
    rule.learn(winner_feedback(contexts, [0, 1], winner=0))
    assert rule.theta == pytest.approx([1.0])
    rule.learn(winner_feedback(contexts, [0, 1], winner=1))
    share = exp(1) / (1 + exp(1))
    latest = 1.0 - 2 * 2**-0.6 * share
    assert rule.theta == pytest.approx([(1.0 + latest) / 2])


def test_the_bound_by_hand() -> None:
    """After one winner of contexts 1 and 0: S = 1 + p (1 - p), V = 1 + (1 - p)^2 at theta = 1."""
    rule = Cppl(2, 1, spread=0.0)
    contexts = np.array([[1.0], [0.0]])
    rule.learn(winner_feedback(contexts, [0, 1], winner=0))
    p = exp(1) / (1 + exp(1))
    sigma = (1 + (1 - p) ** 2) / (1 + p * (1 - p)) ** 2
    width = 2 * log(1) + 1 + 2 * sqrt(1 * log(1))
    v = exp(1)
    c = sqrt(width * v**2 * sigma)
    index = rule.index(contexts, np.random.default_rng(0))
    assert np.exp(index) == pytest.approx([v + c, 1.0])


def test_the_rank_one_form_is_the_operator_norm() -> None:
    rng = np.random.default_rng(4)
    rule = Cppl(4, 5)
    for _ in range(40):
        rule.learn(RankedArms(rng.normal(size=(4, 5)), np.arange(4)))
    inverse = np.linalg.inv(rule.information)
    sigma = inverse @ rule.scatter @ inverse
    values, vectors = np.linalg.eigh(sigma)
    root = vectors @ np.diag(np.sqrt(values)) @ vectors.T
    contexts = rng.normal(size=(7, 5))
    norms = [np.linalg.norm(root @ np.outer(x, x) @ root, ord=2) for x in contexts]
    assert rule.variances(contexts) == pytest.approx(norms)


def test_variances_shrink_as_one_over_t() -> None:
    rng = np.random.default_rng(5)
    theta, probe = np.array([1.0, 0.0, -1.0]), np.eye(3)
    rule = Cppl(4, 3)
    seen = []
    for n in (1000, 3000):
        for _ in range(n):
            contexts = rng.random((4, 3))
            rule.learn(RankedArms(contexts, draw_ranking(contexts @ theta, rng)))
        seen.append(rule.variances(probe))
    assert seen[1] / seen[0] == pytest.approx(np.full(3, 0.25), rel=0.15)


def test_learning_with_a_known_model_finds_theta() -> None:
    rng = np.random.default_rng(6)
    theta = np.array([2.0, -1.0, 0.5])
    rule = Cppl(5, 3, seed=1)
    for _ in range(4000):
        contexts = rng.random((5, 3))
        order = draw_ranking(contexts @ theta, rng)
        rule.learn(RankedArms(contexts, order, 5))
    assert rule.theta == pytest.approx(theta, abs=0.15)


def test_an_arm_that_nobody_tried_is_explored() -> None:
    """Disjoint features: Max-Theta sticks to the arms it knows, CPPL tries the third."""
    contexts = np.eye(3)
    tried = {}
    for make in (MaxTheta, Cppl):
        rule: Preselector = make(3, 3, spread=0.0)
        for turn in range(40):
            rule.learn(winner_feedback(contexts, [0, 1], winner=turn % 2))
        rule.learn(winner_feedback(contexts, [1, 2], winner=1))
        tried[rule.name] = 2 in rule.choose(contexts, 1, 0)
    assert tried == {"max-theta": False, "cppl": True}


def test_epsilon_one_is_random_and_zero_is_max_theta() -> None:
    contexts = np.eye(5)
    always, never = EpsilonGreedy(5, 5, seed=2), EpsilonGreedy(5, 5, seed=2)
    always.epsilon, never.epsilon = 1.0, 0.0
    counts = np.bincount([always.choose(contexts, 1, t)[0] for t in range(500)], minlength=5)
    assert counts.min() > 60  # 100 expected; the chance of 60 or fewer in a place is 2e-6
    greedy = MaxTheta(5, 5, seed=2)
    assert never.choose(contexts, 3, 0).tolist() == greedy.choose(contexts, 3, 0).tolist()


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


# the Plackett-Luce model


def log_likelihood(theta: FloatArray, ordered: FloatArray, n_ranked: int = 1) -> float:
    """Return the log-probability that ``n_ranked`` arms take the first places in this order."""
    utilities = ordered @ theta
    return float(sum(utilities[i] - logsumexp(utilities[i:]) for i in range(n_ranked)))


def test_gradient_and_hessian_by_hand() -> None:
    """Two arms with x = 1 and 0: a logistic regression."""
    ordered, theta = np.array([[1.0], [0.0]]), np.array([0.7])
    share = exp(0.7) / (1 + exp(0.7))
    assert gradient(theta, ordered) == pytest.approx([1 - share])
    assert hessian(theta, ordered)[0, 0] == pytest.approx(-share * (1 - share))


@pytest.mark.parametrize("n_ranked", [1, 2, 5])
@pytest.mark.parametrize("seed", range(5))
def test_derivatives_agree_with_finite_differences(n_ranked: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ordered, theta, h = rng.normal(size=(5, 4)), rng.normal(size=4), 1e-5
    steps = h * np.eye(4)

    def slopes(f: Callable[..., Any]) -> FloatArray:
        ends = [[f(theta + s, ordered, n_ranked) for s in (step, -step)] for step in steps]
        return np.array([(above - below) / (2 * h) for above, below in ends])

    assert gradient(theta, ordered, n_ranked) == pytest.approx(slopes(log_likelihood), abs=1e-8)
    bend = hessian(theta, ordered, n_ranked)
    assert bend == pytest.approx(slopes(gradient), abs=1e-8)
    assert np.linalg.eigvalsh(bend).max() < 1e-12


def test_extreme_utilities_stay_finite() -> None:
    ordered = np.array([[1000.0], [-1000.0], [0.0]])
    assert log_likelihood(np.ones(1), ordered, 3) == pytest.approx(-1000)
    assert np.isfinite(gradient(np.ones(1), ordered, 3)).all()
    assert np.isfinite(hessian(np.ones(1), ordered, 3)).all()


@pytest.mark.coverage
def test_rankings_are_drawn_from_the_model() -> None:
    rng = np.random.default_rng(3)
    logs = np.log([3.0, 1.0, 2.0])
    draws = [tuple(draw_ranking(logs, rng).tolist()) for _ in range(4000)]
    for order in permutations(range(3)):
        expected = exp(log_likelihood(np.ones(1), logs[list(order), None], 3))
        # six two-sided tests at 1e-6 each: a right sampler fails once in 170,000 seeds
        assert binomtest(draws.count(order), 4000, expected).pvalue > 1e-6
