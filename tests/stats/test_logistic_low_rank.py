from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq

from bestarm_agent.stats.history import _Cells, _turned, fit_factors

FloatArray = NDArray[np.float64]


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
    found = np.array(
        [
            factors.predict(factors.locate(np.flatnonzero(k), row[k]))
            for row, k in zip(scores, known, strict=True)
        ]
    )
    flat = np.broadcast_to(np.nanmean(scores, axis=0), chances.shape)
    hidden = ~known  # cells that the fit never saw
    assert np.mean((found - chances)[hidden] ** 2) < 0.2 * np.mean((flat - chances)[hidden] ** 2)


def test_every_half_step_lowers_the_objective() -> None:
    _, scores = planted(40, 30, seed=1)
    cells = _Cells(scores.astype(np.float32), np.ones(scores.shape, dtype=bool))
    offset, loadings, people = cells.start(3)
    losses = []
    for _ in range(6):
        offset, loadings = cells.examples_step(offset, loadings, people, 4.0)
        losses.append(objective(scores, offset, loadings, people))
        people = cells.candidates_step(offset, loadings, people)
        losses.append(objective(scores, offset, loadings, people))
    assert (np.diff(losses) < 1e-3).all()
    assert losses[-1] < losses[0]


def objective(
    scores: FloatArray,
    offset: NDArray[np.float32],
    loadings: NDArray[np.float32],
    people: NDArray[np.float32],
) -> float:
    logits = (offset + people @ loadings.T).astype(float)
    loss = np.logaddexp(0, logits) - scores * logits
    ridge = 4.0 * (loadings**2).sum() + (people**2).sum() + 0.1 * (offset**2).sum()
    return float(loss.sum() + ridge / 2)


def test_turning_keeps_the_log_odds_and_standardises_the_candidates() -> None:
    rng = np.random.default_rng(4)
    offset, loadings, people = (
        rng.normal(size=size).astype(np.float32) for size in (7, (7, 3), (20, 3))
    )
    turned = _turned(offset, loadings, people)
    logits = offset + people @ loadings.T
    positions = (logits - turned.offset) @ np.linalg.pinv(turned.loadings).T
    np.testing.assert_allclose(turned.offset + positions @ turned.loadings.T, logits, atol=1e-4)
    np.testing.assert_allclose(positions.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(positions.T @ positions / 20, np.eye(3), atol=1e-3)
    strength = (turned.loadings**2).sum(axis=0)
    assert (np.diff(strength) <= 0).all()


def test_the_rank_cannot_exceed_what_the_history_holds() -> None:
    assert fit_factors(np.eye(3), 8).rank == 2


@pytest.mark.parametrize(
    ("scores", "message"), [(np.full((2, 2), 1.5), "1.5"), (np.zeros((0, 2)), "at least 1")]
)
def test_senseless_scores_are_refused(scores: FloatArray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_factors(scores, 1)
