"""Factors of examples from a history: their fit, where they place a candidate, what they gain."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq, minimize

from bestarm_agent.stats.arrays import FloatArray
from bestarm_agent.stats.history import (
    Factors,
    Validation,
    _turned,
    fit_factors,
    learn,
)


def sigmoid(x: FloatArray) -> FloatArray:
    return 1 / (1 + np.exp(-x))


def planted(n_rows: int, n_columns: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Chances of a rank-2 logistic model, and 0/1 scores drawn from them."""
    rng = np.random.default_rng([seed, 1])
    people, things = rng.normal(size=(n_rows, 2)), rng.normal(size=(n_columns, 2))
    chances = sigmoid(rng.normal(size=n_columns) + 1.5 * people @ things.T)
    return chances, (rng.random(chances.shape) < chances).astype(float)


def test_without_directions_each_offset_is_a_ridge_logistic_mean() -> None:
    """The minimiser of 3 log(1 + e^b) - 2 b + 0.05 b^2 solves 3 sigmoid(b) - 2 + 0.1 b = 0."""
    scores = np.array([[1.0, 0.5], [1.0, np.nan], [0.0, np.nan]])
    factors = fit_factors(scores, 0, sweeps=60)
    root = brentq(lambda b: 3 / (1 + np.exp(-b)) - 2 + 0.1 * b, -5, 5)
    assert factors.rank == 0
    np.testing.assert_allclose(factors.offset, [root, 0.0], atol=1e-4)


def test_it_finds_the_chances_behind_the_scores() -> None:
    chances, scores = planted(150, 120, seed=0)
    scores[np.random.default_rng(3).random(scores.shape) < 0.3] = np.nan
    factors = fit_factors(scores, 2)
    known = ~np.isnan(scores)
    at = [factors.locate(np.flatnonzero(k), row[k]) for row, k in zip(scores, known, strict=True)]
    found = np.array([factors.predict(place) for place in at])
    flat = np.broadcast_to(np.nanmean(scores, axis=0), chances.shape)
    hidden = ~known  # cells that the fit never saw
    assert np.mean((found - chances)[hidden] ** 2) < 0.2 * np.mean((flat - chances)[hidden] ** 2)


def test_past_candidates_are_centred_and_of_unit_spread() -> None:
    rng = np.random.default_rng(4)
    sizes = 7, (7, 3), (20, 3)
    offset, loadings, people = (rng.normal(size=size).astype(np.float32) for size in sizes)
    turned = _turned(offset, loadings, people)
    logits = offset + people @ loadings.T - turned.offset
    positions = logits @ np.linalg.pinv(turned.loadings).T
    np.testing.assert_allclose(positions @ turned.loadings.T, logits, atol=1e-4)
    np.testing.assert_allclose(positions.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(positions.T @ positions / 20, np.eye(3), atol=1e-3)


def test_the_rank_cannot_exceed_what_the_history_holds() -> None:
    assert fit_factors(np.eye(3), 8).rank == 2
    with pytest.raises(ValueError, match=r"1\.5"):
        fit_factors(np.full((2, 2), 1.5), 1)
    with pytest.raises(ValueError, match="at least 1"):
        fit_factors(np.zeros((0, 2)), 1)


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


def test_what_nothing_is_known_of_is_the_average_one() -> None:
    factors = random_factors(5, 3, seed=7)
    nothing = factors.locate(np.empty(0, dtype=int), np.empty(0))
    np.testing.assert_array_equal(nothing, 0)
    np.testing.assert_allclose(factors.predict(nothing), sigmoid(factors.offset), rtol=1e-5)
    moved, offset = factors.at(np.array([3, -1, 0])), factors.offset
    np.testing.assert_allclose(moved.offset, [offset[3], offset.mean(), offset[0]])
    np.testing.assert_allclose(moved.loadings[1], factors.loadings.mean(axis=0))
    np.testing.assert_array_equal(factors.cut(1).loadings, factors.loadings[:, :1])
    with pytest.raises(ValueError, match="loadings"):
        Factors(np.zeros(3), np.zeros((2, 1)))


# what past candidates say of new ones


def drawn(logits: FloatArray, seed: int) -> FloatArray:
    rng = np.random.default_rng([seed, 11])
    return (rng.random(logits.shape) < sigmoid(logits)).astype(float)


def by_ease(n_rows: int, n_columns: int, seed: int) -> FloatArray:
    """Log-odds that differ between examples and not between candidates."""
    ease = np.random.default_rng([seed, 12]).normal(size=n_columns)
    return np.broadcast_to(2.5 * ease, (n_rows, n_columns))


def test_the_gain_is_the_variance_that_predictions_remove() -> None:
    """Candidates differ by chance alone: the best prediction is the chance p_j itself.

    It removes var(p) of var(p) + mean(p (1 - p)).
    """
    logits = by_ease(120, 300, seed=0)
    chance = sigmoid(logits[0])
    best = chance.var() / (chance.var() + (chance * (1 - chance)).mean())
    found = learn(drawn(logits, 1), ranks=(0, 2)).validation
    assert found.rank == 0  # the smallest model that is as good
    assert found.gain == pytest.approx(best, abs=0.03)
    assert found.is_useful


def test_directions_are_used_where_candidates_differ() -> None:
    rng = np.random.default_rng(2)
    logits = 2 * rng.normal(size=(120, 2)) @ rng.normal(size=(2, 300))
    found = learn(drawn(logits, 3), ranks=(0, 2, 4)).validation
    assert found.rank == 2
    assert found.gain > 0.3


@pytest.mark.parametrize("seed", range(5))
def test_history_without_structure_is_of_no_use(seed: int) -> None:
    scores = drawn(np.zeros((40, 100)), seed)
    found = learn(scores, ranks=(0, 1, 2)).validation
    assert not found.is_useful
    assert found.gain < 0


def test_history_with_gaps_and_graded_scores() -> None:
    rng = np.random.default_rng(4)
    scores = np.clip(sigmoid(by_ease(60, 200, 4)) + 0.1 * rng.normal(size=(60, 200)), 0, 1)
    scores[rng.random(scores.shape) < 0.7] = np.nan
    found = learn(scores, ranks=(0, 1)).validation
    assert found.is_useful
    assert found.gain > 0.5


@pytest.mark.parametrize("n_rows", [1, 2])
def test_too_few_candidates_cannot_be_judged(n_rows: int) -> None:
    lesson = learn(drawn(by_ease(n_rows, 50, 5), 6))
    assert lesson.factors.n_examples == 50
    assert not lesson.validation.is_useful


def test_a_candidate_that_solves_everything_has_no_variance_to_remove() -> None:
    scores = drawn(by_ease(20, 60, 7), 8)
    scores[3] = 1.0
    first, second = learn(scores, ranks=(0, 1)), learn(scores, ranks=(0, 1))
    assert np.isfinite(first.validation.gain)
    assert first.validation == second.validation, "it is reproducible"
    np.testing.assert_array_equal(first.factors.loadings, second.factors.loadings)


def test_a_gain_within_its_error_is_no_gain() -> None:
    assert not Validation(1, 4.0, gain=0.02, gain_se=0.03, n_candidates=9).is_useful
