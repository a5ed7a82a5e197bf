"""The model of rows with axes, against dense Gaussian conditioning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from bestarm_agent.selectors.auto import axes_model
from bestarm_agent.selectors.auto.axes_model import CrossedEffects, Posterior
from bestarm_agent.stats.arrays import IntArray

Array = NDArray[np.float64]
AXES = np.indices((3, 2, 2)).reshape(3, -1).T
K, M = len(AXES), 9
ALONE = np.full((K, 1), -1)  # no levels are shared


Seen = list[tuple[int, int, float]]  # row, place of the order, score


def columns(seen: Seen) -> tuple[IntArray, IntArray, Array]:
    row, place, score = zip(*seen, strict=True)
    return np.array(row), np.array(place), np.array(score)


def filled(seed: int, axes: IntArray = AXES) -> tuple[CrossedEffects, Seen]:
    """Return a model, and scores at random prefixes, some of them empty."""
    rng = np.random.default_rng(seed)
    model, seen = CrossedEffects(axes, M), []
    for row in range(K):
        n_seen = int(rng.integers(0, 6))
        seen += [(row, place, float(rng.integers(0, 2))) for place in range(n_seen)]
    return model, seen


@dataclass
class Dense:
    """Means and covariances with every unknown written out."""

    unknown: Array  # b, d, z and r
    of_unknown: Array
    mean: Array  # of the rows
    covariance: Array


def dense(model: CrossedEffects, seen: Seen, places: int) -> Dense:
    effects, v = model.effects, model.variances
    n = len(effects)
    priors = [0.25, *(v.of(effects.families[f]) for f in effects.family[1:])]
    n_blocks = effects.n_blocks
    near = min(places, axes_model._MOST_SHARED // n_blocks) if n_blocks > 1 else 0
    priors += [v.own] * K + [v.easiness] * places + [v.shared] * (n_blocks * near)

    def unit(row: int, place: int) -> Array:
        x = np.zeros(len(priors))
        x[effects.of_row[row]] = 1.0
        x[n + row] = 1.0
        if place < places:
            x[n + K + place] = 1.0
        if place < near:
            x[n + K + places + effects.block[row] * near + place] = 1.0
        return x

    design = np.array([unit(row, place) for row, place, _ in seen])
    y = np.array([score for *_, score in seen]) - 0.5
    covariance = np.linalg.inv(np.diag(1.0 / np.array(priors)) + design.T @ design / v.noise)
    found = covariance @ design.T @ y / v.noise
    known = {(row, place): score - 0.5 for row, place, score in seen}
    unseen = [[j for j in range(M) if (row, j) not in known] for row in range(K)]
    loads = np.array([sum(unit(row, j) for j in unseen[row]) / M for row in range(K)])
    total = np.array([sum(known.get((row, j), 0.0) for j in range(M)) for row in range(K)])
    noise = np.array([len(left) for left in unseen]) * v.noise / M**2
    mean = 0.5 + total / M + loads @ found
    return Dense(found, covariance, mean, loads @ covariance @ loads.T + np.diag(noise))


@pytest.mark.parametrize("most_places", [512, 4, 3, 1])
@pytest.mark.parametrize(("axes", "most_shared"), [(AXES, 512), (AXES, 7), (ALONE, 512)])
def test_it_agrees_with_dense_conditioning(
    monkeypatch: pytest.MonkeyPatch, most_places: int, axes: IntArray, most_shared: int
) -> None:
    monkeypatch.setattr(axes_model, "_MOST_PLACES", most_places)
    monkeypatch.setattr(axes_model, "_MOST_SHARED", most_shared)
    for seed in range(3):
        model, seen = filled(seed, axes)
        places = min(1 + max(place for _, place, _ in seen), most_places)
        expected = dense(model, seen, places)
        covariance = expected.covariance
        posterior = model._swept(*columns(seen), sweeps=1)
        assert isinstance(posterior, Posterior)
        np.testing.assert_allclose(posterior.mean, expected.mean, atol=1e-12)
        np.testing.assert_allclose(posterior.sd, np.sqrt(covariance.diagonal()), atol=1e-12)
        for row in range(K):
            gaps = covariance.diagonal() + covariance[row, row] - 2.0 * covariance[row]
            others = np.arange(K) != row
            found = posterior.gap_variance(row)
            np.testing.assert_allclose(found[others], gaps[others], atol=1e-12)
        found = np.concatenate([model._b, model._level, model._z, model._r.ravel()])
        n = len(model._b)
        found[n : n + K] -= model._b[model.effects.of_row].sum(axis=1)
        np.testing.assert_allclose(found, expected.unknown, atol=1e-12)
        variances = [*map(model._of_steps, (model._sums[0], model._sums[1:, : model._near + 1]))]
        found = np.concatenate([np.ravel(one) for one in variances])
        np.testing.assert_allclose(found, expected.of_unknown.diagonal()[n + K :], atol=1e-12)


def test_two_rows_of_a_model_by_hand() -> None:
    # rows 0 and 1 share a level, so do rows 2 and 3; one score, 1, of row 0 on one of one example
    model = CrossedEffects(np.array([[0], [0], [1], [1]]), 1)
    posterior = model.fit(*columns([(0, 0, 1.0)]), sweeps=1)
    # prior variances: constant .25, level .02, own .01, easiness .05, that of a level's own .03,
    # noise .12; the score has variance .48, and the mean of row 1 shares with it
    # .25 + .02 + .05 + .03 = .35, that of row 2 the constant and the easiness, .3; the score is .5
    # above its expectation
    np.testing.assert_allclose(
        posterior.mean, [1.0, 0.5 + 0.5 * 0.35 / 0.48, *[0.5 + 0.5 * 0.3 / 0.48] * 2]
    )
    np.testing.assert_allclose(posterior.sd[:2], [0.0, np.sqrt(0.48 - 0.35**2 / 0.48)], atol=1e-8)


def test_variances_are_found_again() -> None:
    rng = np.random.default_rng(1)
    axes = np.indices((12, 20)).reshape(2, -1).T
    one, two = rng.normal(0.0, 0.2, 12), rng.normal(0.0, 0.1, 20)
    level = one[axes[:, 0]] + two[axes[:, 1]] + rng.normal(0.0, 0.05, len(axes))
    model = CrossedEffects(axes, 400)
    easiness, seen = rng.normal(0.0, 0.15, 400), []
    for row in range(len(axes)):
        for place in range(20):
            noise = rng.normal(0.0, 0.2)
            seen.append((row, place, 0.5 + level[row] + easiness[place] + noise))
    posterior = model.fit(*columns(seen), sweeps=30)
    found = model.variances
    np.testing.assert_allclose(found.noise, 0.04, rtol=0.1)
    np.testing.assert_allclose(found.own, 0.0025, rtol=0.4)
    np.testing.assert_allclose(found.of((0,)), one.var(), rtol=0.25)
    np.testing.assert_allclose(found.of((1,)), two.var(), rtol=0.35)
    errors = posterior.mean - 0.5 - level - easiness.mean()
    assert 0.7 < np.sqrt(np.mean((errors - errors.mean()) ** 2)) / np.sqrt(found.noise / 20) < 1.1


def test_levels_that_no_two_rows_share_are_left_out() -> None:
    rows = np.arange(6)
    model = CrossedEffects(np.column_stack([rows, rows * 0, rows // 3]), 5)
    assert model.effects.families == ((2,),)
    assert CrossedEffects(np.full((6, 2), -1), 5).effects.families == ()


def test_a_look_changes_nothing() -> None:
    model, seen = filled(4)
    model.fit(*columns(seen))
    seen.append((0, sum(row == 0 for row, *_ in seen), 1.0))
    before = model.variances
    looked = model.peek(*columns(seen)).mean
    assert model.variances is before
    np.testing.assert_array_equal(model.fit(*columns(seen)).mean, looked)


def test_a_pending_pull_moves_no_estimate_but_counts_as_seen() -> None:
    model, seen = filled(5)
    before = model.fit(*columns(seen), sweeps=60)
    seen.append((2, sum(row == 2 for row, *_ in seen), np.nan))
    after = model.fit(*columns(seen), sweeps=1)
    np.testing.assert_allclose(after.mean, before.mean, atol=2e-3)
    assert after.sd[2] < before.sd[2]


@pytest.mark.parametrize("most_places", [512, 3])
def test_a_place_without_a_score_counts_with_what_is_expected(
    monkeypatch: pytest.MonkeyPatch, most_places: int
) -> None:
    """Pending pairs and skipped places: the same sums as with every cell written out."""
    monkeypatch.setattr(axes_model, "_MOST_PLACES", most_places)
    model, seen = filled(6)
    model.fit(*columns(seen))
    level = model._level
    easiness = np.pad(model._easiness, ((0, 0), (0, M)))[model.effects.block, :M]
    seen = [*seen[::2], (1, 7, 1.0), (3, 8, np.nan), (4, 6, np.nan)]  # later than any before
    length = np.zeros(K, dtype=int)
    for row, place, _ in seen:
        length[row] = max(length[row], place + 1)
    cells = np.where(np.arange(M) < length[:, None], level[:, None] + easiness, 0.0)
    for row, place, score in seen:
        cells[row, place] = cells[row, place] if np.isnan(score) else score - 0.5
    model._sum_up(*columns(seen))
    reach = min(9, most_places)
    np.testing.assert_array_equal(model._length, length)
    np.testing.assert_allclose(model._total, cells.sum(axis=1), atol=1e-12)
    of_blocks = np.array([cells[model.effects.block == block].sum(axis=0) for block in range(3)])
    np.testing.assert_allclose(model._at_place, of_blocks[:, :reach], atol=1e-12)
    np.testing.assert_allclose(model._square, (cells**2).sum(), atol=1e-12)
