"""The one-factor model against dense Gaussian conditioning, and what it must not do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bestarm_agent.selectors.auto.factor_model import OneFactor
from bestarm_agent.stats.arrays import FloatArray


def model_of(
    scores: FloatArray, lengths: list[int], n_examples: int, most_active: int = 128
) -> OneFactor:
    model = OneFactor(len(lengths), n_examples, most_active)
    fill(model, scores, lengths)
    return model


def fill(model: OneFactor, scores: FloatArray, lengths: list[int]) -> None:
    for row, length in enumerate(lengths):
        for place in range(length):
            model.put(row, place, float(scores[row, place]))


def condition(
    scores: FloatArray, lengths: list[int], parameters: dict[str, Any]
) -> tuple[FloatArray, FloatArray]:
    """Means of all rows by conditioning one normal vector of all n x m cells on those seen."""
    n, m = scores.shape
    row, place = np.divmod(np.arange(n * m), m)
    loading, noise = parameters["loading"], parameters["noise"]
    same_row, same_place = row[:, None] == row, place[:, None] == place
    prior = same_row * parameters["spread"] + np.diag(noise[row])
    prior += np.outer(loading[row], loading[row]) * same_place
    seen = place < np.array(lengths)[row]
    gain = np.linalg.solve(prior[np.ix_(seen, seen)], prior[np.ix_(seen, ~seen)]).T
    cells = scores.ravel().copy()
    cells[~seen] = parameters["centre"] + gain @ (cells[seen] - parameters["centre"])
    rest = np.zeros((n * m, n * m))
    rest[np.ix_(~seen, ~seen)] = prior[np.ix_(~seen, ~seen)] - gain @ prior[np.ix_(seen, ~seen)]
    average = np.zeros((n, n * m))
    average[row, np.arange(n * m)] = 1 / m
    return average @ cells, average @ rest @ average.T


def parameters_of(model: OneFactor) -> dict[str, Any]:
    return {
        "centre": model._centre,
        "spread": model._spread,
        "loading": model._loading.copy(),
        "noise": model._noise.copy(),
    }


@pytest.mark.parametrize("lengths", [[12, 9, 9, 4, 2], [3, 3, 3, 3, 3], [1, 5, 0, 12, 7]])
def test_the_posterior_is_that_of_dense_conditioning(lengths: list[int]) -> None:
    scores = np.random.default_rng(3).random((5, 12))
    model = model_of(scores, lengths, 12)
    model.fit(sweeps=5)
    parameters = parameters_of(model)
    near = model.rows.blocks(model._active)
    variance = model._expect(near, [], all_rows=True)  # levels, easiness at these parameters
    outlook = model._outlook(variance)
    means, covariance = condition(scores, lengths, parameters)
    np.testing.assert_allclose(outlook.mean, means, atol=1e-12)
    off_diagonal = ~np.eye(5, dtype=bool)
    np.testing.assert_allclose(
        outlook.covariance[off_diagonal], covariance[off_diagonal], atol=1e-12
    )
    # what is not known of a row's own loading comes on top
    assert (outlook.covariance.diagonal() >= covariance.diagonal() - 1e-12).all()


def test_a_full_row_is_known() -> None:
    scores = np.random.default_rng(4).random((3, 20))
    outlook = model_of(scores, [20, 20, 5], 20).fit(sweeps=4)
    np.testing.assert_allclose(outlook.mean[:2], scores.mean(axis=1)[:2])
    np.testing.assert_allclose(outlook.sd[:2], 0.0, atol=1e-9)
    assert outlook.sd[2] > 0.01


def test_common_examples_make_a_difference_surer_than_its_ends() -> None:
    rng = np.random.default_rng(5)
    easiness, noise = rng.normal(0, 0.3, 200), rng.normal(0, 0.05, (4, 200))
    scores = np.clip(0.5 + easiness + noise, 0, 1)
    outlook = model_of(scores, [60] * 4, 200).fit(sweeps=10)
    assert outlook.gap_variance(0)[1] < 0.2 * (outlook.sd[0] ** 2 + outlook.sd[1] ** 2)


def test_a_row_ahead_of_the_others_lends_them_its_examples() -> None:
    """Rows are alike but for a shift; the short one saw easy examples only, and is put down."""
    rng = np.random.default_rng(6)
    easiness = rng.normal(0, 0.2, 100)
    easiness[:10] = 0.25
    scores = 0.5 + easiness + rng.normal(0, 0.02, (6, 100))
    lengths = [100, 100, 100, 100, 100, 10]
    outlook = model_of(scores, lengths, 100).fit(sweeps=10)
    assert scores[5, :10].mean() > scores[5].mean() + 0.2
    assert abs(outlook.mean[5] - scores[5].mean()) < 0.05


def test_bad_luck_at_the_start_leaves_room_for_doubt() -> None:
    """Four zeros look noiseless by themselves; the others say how noisy such a row would be."""
    rng = np.random.default_rng(7)
    scores = (rng.random((6, 200)) < 0.6).astype(float)
    scores[5, :4] = 0.0
    outlook = model_of(scores, [60, 60, 60, 60, 60, 4], 200).fit(sweeps=10)
    assert outlook.sd[5] > 0.1


def test_good_luck_at_the_start_does_not_look_noiseless() -> None:
    """A row of mean .9 gets 12 of 12 right with a chance of .28, so .9 must stay possible.

    Five such rows have no residuals at all; only the others show how noisy scores are.
    """
    scores = (np.random.default_rng(8).random((20, 12)) < 0.6).astype(float)
    scores[:5] = 1.0
    outlook = model_of(scores, [12] * 20, 400).fit(sweeps=8)
    assert (outlook.mean[:5] - 3.0 * outlook.sd[:5] < 0.9).all()
    # the same with graded scores, a tenth of the spread: doubt follows the scale of the scores
    graded = model_of(0.5 + scores / 10, [12] * 20, 400).fit(sweeps=8)
    assert (graded.sd[:5] < 0.5 * outlook.sd[:5]).all()


@pytest.mark.slow
def test_intervals_of_the_model_cover_what_the_model_generates() -> None:
    """Of 400 means the 90 % intervals should cover 360; at most 335 has a chance below 1e-4."""
    covered = 0
    for seed in range(80):
        rng = np.random.default_rng([seed, 8])
        level, loading = rng.normal(0.5, 0.15, (5, 1)), rng.normal(0.25, 0.05, (5, 1))
        scores = level + loading * rng.normal(size=300) + rng.normal(0, 0.3, (5, 300))
        outlook = model_of(scores, [150, 100, 100, 60, 40], 300).fit(sweeps=12)
        off = np.abs(outlook.mean - scores.mean(axis=1))
        covered += int((off <= 1.645 * outlook.sd).sum())
    assert covered > 335


@pytest.mark.slow
def test_a_guess_in_a_hole_says_nothing() -> None:
    """Fits go on until a pending cell holds what the model expects: as if it were unseen."""
    scores = np.random.default_rng(9).random((4, 30))
    model, plain = model_of(scores, [15] * 4, 30), model_of(scores, [15] * 4, 30)
    model.rows.open(2, 15, guess=1.0)
    for _ in range(200):
        filled, expected = model.fit(), plain.fit()
    np.testing.assert_allclose(filled.mean, expected.mean, atol=5e-3)
    known = model.rows.values(2)
    assert (model.rows.totals[2], model.rows.squares[2]) == (known.sum(), known @ known)


def test_peeking_changes_nothing() -> None:
    scores = np.random.default_rng(10).random((6, 40))
    model = model_of(scores, [20, 18, 12, 8, 8, 8], 40)
    model.fit(8)
    model.put(3, 8, 0.25)
    before = parameters_of(model)
    seen = model.peek()
    for name, value in parameters_of(model).items():
        np.testing.assert_array_equal(value, before[name])
    np.testing.assert_array_equal(model.fit().mean, seen.mean)


def test_rows_that_are_not_modelled_jointly_are_estimated_too() -> None:
    rng = np.random.default_rng(11)
    means = np.linspace(0.1, 0.9, 40)
    scores = (rng.random((40, 400)) < means[:, None]).astype(float)
    few, joint = (model_of(scores, [150] * 40, 400, most_active) for most_active in (8, 128))
    for _ in range(6):
        outlook, reference = few.fit(), joint.fit()
    assert len(outlook.active) == 8
    assert set(outlook.active.tolist()) >= set(np.argsort(reference.mean)[-4:].tolist())
    np.testing.assert_allclose(outlook.mean, reference.mean, atol=0.01)
    np.testing.assert_allclose(outlook.sd, reference.sd, rtol=0.25)


def test_a_complete_leader_stays_among_those_modelled_jointly() -> None:
    scores = np.random.default_rng(13).random((12, 10))
    scores[3] = 1.0
    model = model_of(scores, [10] * 12, 10, most_active=4)
    for _ in range(3):
        outlook = model.fit()
    assert 3 in outlook.active
    np.testing.assert_allclose(outlook.mean, scores.mean(axis=1))
