from __future__ import annotations

from math import exp, log, sqrt

import numpy as np
import pytest
from benchmarks.preselection.rules import EpsilonGreedy, MaxTheta

from bestarm_agent.preselection.cppl import Cppl
from bestarm_agent.preselection.rule import Preselector, RankedArms
from tests.support.bandit_model import draw_ranking, weak_regret
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
    seen = {}
    for t in range(1, 4001):
        contexts = rng.random((4, 3))
        rule.learn(RankedArms(contexts, draw_ranking(contexts @ theta, rng)))
        seen[t] = rule.variances(probe) if t in (1000, 4000) else None
    first, last = seen[1000], seen[4000]
    assert first is not None
    assert last is not None
    assert last / first == pytest.approx(np.full(3, 0.25), rel=0.15)


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


def test_regret_falls_below_that_of_random_arms() -> None:
    rng = np.random.default_rng(7)
    theta = np.array([-3.0, 3.0, 0.0, 1.0, -1.0])
    rule = Cppl(20, 5, seed=3)
    regrets = []
    for turn in range(600):
        contexts = rng.random((20, 5))
        chosen = rule.choose(contexts, 3, turn)
        utilities = contexts @ theta
        regrets.append(weak_regret(utilities, chosen))
        rule.learn(RankedArms(contexts, chosen[draw_ranking(utilities[chosen], rng)]))
    assert np.mean(regrets[-100:]) < 0.2 * np.mean(regrets[:20])
