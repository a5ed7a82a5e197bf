from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from bestarm_agent.stats.history import Validation, learn

FloatArray = NDArray[np.float64]


def drawn(logits: FloatArray, seed: int) -> FloatArray:
    rng = np.random.default_rng([seed, 11])
    return (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(float)


def by_ease(n_rows: int, n_columns: int, seed: int) -> FloatArray:
    """Log-odds that differ between examples and not between candidates."""
    ease = np.random.default_rng([seed, 12]).normal(size=n_columns)
    return np.broadcast_to(2.5 * ease, (n_rows, n_columns))


def test_the_gain_is_the_variance_that_predictions_remove() -> None:
    """Candidates differ by chance alone: the best prediction is the chance p_j itself.

    It removes var(p) of var(p) + mean(p (1 - p)).
    """
    logits = by_ease(120, 300, seed=0)
    chance = 1 / (1 + np.exp(-logits[0]))
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
    scores = np.clip(
        1 / (1 + np.exp(-by_ease(60, 200, 4))) + 0.1 * rng.normal(size=(60, 200)), 0, 1
    )
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
    assert np.isfinite(learn(scores, ranks=(0, 1)).validation.gain)


def test_learning_is_reproducible() -> None:
    scores = drawn(by_ease(30, 80, 9), 10)
    first, second = learn(scores, ranks=(0, 1)), learn(scores, ranks=(0, 1))
    assert first.validation == second.validation
    np.testing.assert_array_equal(first.factors.loadings, second.factors.loadings)


def test_a_gain_within_its_error_is_no_gain() -> None:
    unsure = Validation(1, 4.0, gain=0.02, gain_se=0.03, n_candidates=9)
    assert not unsure.is_useful
