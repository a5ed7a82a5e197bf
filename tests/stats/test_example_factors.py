from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from bestarm_agent.stats.history import Factors

FloatArray = NDArray[np.float64]


def sigmoid(x: FloatArray) -> FloatArray:
    return 1 / (1 + np.exp(-x))


def random_factors(n: int, rank: int, seed: int) -> Factors:
    rng = np.random.default_rng([seed, 2])
    return Factors(rng.normal(size=n), rng.normal(size=(n, rank)))


@pytest.mark.parametrize("binary", [True, False])
def test_a_candidate_is_located_at_the_minimum(binary: bool) -> None:
    factors = random_factors(50, 3, seed=5)
    rng = np.random.default_rng(6)
    examples = rng.permutation(50)[:20]
    scores = rng.random(20).round(0 if binary else 2)

    def loss(u: FloatArray) -> float:
        logits = factors.offset[examples] + factors.loadings[examples] @ u
        return float((np.logaddexp(0, logits) - scores * logits).sum() + u @ u / 2)

    found = factors.locate(examples, scores)
    np.testing.assert_allclose(found, minimize(loss, np.zeros(3), tol=1e-10).x, atol=1e-4)
    far = factors.locate(examples, scores, start=np.full(3, 40.0))
    np.testing.assert_allclose(found, far, atol=1e-4)


def test_a_candidate_without_scores_is_the_average_one() -> None:
    factors = random_factors(5, 2, seed=7)
    nothing = factors.locate(np.empty(0, dtype=int), np.empty(0))
    np.testing.assert_array_equal(nothing, 0)
    np.testing.assert_allclose(factors.predict(nothing), sigmoid(factors.offset), rtol=1e-5)


def test_an_unknown_example_is_the_average_one() -> None:
    factors = random_factors(4, 2, seed=8)
    moved = factors.at(np.array([3, -1, 0]))
    np.testing.assert_allclose(
        moved.offset, [factors.offset[3], factors.offset.mean(), factors.offset[0]]
    )
    np.testing.assert_allclose(moved.loadings[1], factors.loadings.mean(axis=0))


def test_cutting_keeps_the_leading_directions() -> None:
    factors = random_factors(4, 3, seed=9)
    np.testing.assert_array_equal(factors.cut(1).loadings, factors.loadings[:, :1])


def test_factors_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="loadings"):
        Factors(np.zeros(3), np.zeros((2, 1)))
