from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from math import exp, log
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import binomtest

from bestarm_agent.preselection.cppl import gradient, hessian
from bestarm_agent.preselection.rule import FloatArray
from tests.support.bandit_model import draw_ranking, weak_regret


def log_likelihood(theta: FloatArray, ordered: FloatArray, n_ranked: int = 1) -> float:
    """Return the log-probability that ``n_ranked`` arms take the first places in this order."""
    utilities = ordered @ theta
    return float(sum(utilities[i] - logsumexp(utilities[i:]) for i in range(n_ranked)))


def test_by_hand() -> None:
    """Utilities 1, 2, 3: the order 3, 1, 2 has probability 3/6 * 1/3 * 1."""
    ordered = np.log([[3.0], [1.0], [2.0]])
    theta = np.ones(1)
    assert log_likelihood(theta, ordered, 1) == pytest.approx(log(3 / 6))
    assert log_likelihood(theta, ordered, 2) == pytest.approx(log(3 / 6 * 1 / 3))
    assert log_likelihood(theta, ordered, 3) == pytest.approx(log(3 / 6 * 1 / 3))


def test_gradient_and_hessian_by_hand() -> None:
    """Two arms with x = 1 and 0: a logistic regression."""
    ordered, theta = np.array([[1.0], [0.0]]), np.array([0.7])
    share = exp(0.7) / (1 + exp(0.7))
    assert gradient(theta, ordered) == pytest.approx([1 - share])
    assert hessian(theta, ordered)[0, 0] == pytest.approx(-share * (1 - share))


def test_rankings_have_total_probability_one() -> None:
    rng = np.random.default_rng(1)
    contexts, theta = rng.normal(size=(4, 3)), rng.normal(size=3)
    for n_ranked in (1, 2, 4):
        orders = {p[:n_ranked]: p for p in permutations(range(4))}
        total = sum(
            exp(log_likelihood(theta, contexts[list(p)], n_ranked)) for p in orders.values()
        )
        assert total == pytest.approx(1)


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


def test_weak_regret_is_zero_with_the_best_arm_and_bounded_by_one() -> None:
    logs = np.array([1.0, 900.0, -800.0])
    assert weak_regret(logs, np.array([1, 2])) == 0
    assert weak_regret(logs, np.array([2])) == 1
