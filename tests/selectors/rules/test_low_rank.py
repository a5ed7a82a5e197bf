from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bestarm_agent.selectors.rules.ucb_e_lrf import LowRankEnsemble, bernoulli_places
from tests.support.selector_suite import NO_CELLS

Array = NDArray[np.float64]


# the slow, obvious way


class Reference:
    """Equations 1 and 2 by loops: one least-squares problem per member, row and column."""

    def __init__(self, scores: Array, kept: NDArray[np.bool_], rows: Array) -> None:
        """``scores`` (K, N), NaN if unseen; ``kept`` (E, K, N); ``rows`` (E, K, r)."""
        self.scores, self.kept, self.rows = scores, kept, rows.copy()
        self.columns = np.zeros((len(rows), scores.shape[1], rows.shape[2]))

    def sweep(self) -> None:
        for e, kept in enumerate(self.kept):
            for j in range(kept.shape[1]):
                self.columns[e, j] = self.solve(self.rows[e], self.scores[:, j], kept[:, j])
            for i in range(kept.shape[0]):
                self.rows[e, i] = self.solve(self.columns[e], self.scores[i], kept[i])

    def solve(self, factors: Array, scores: Array, kept: NDArray[np.bool_]) -> Array:
        return np.asarray(np.linalg.lstsq(factors[kept], scores[kept], rcond=None)[0])

    def predictions(self) -> Array:
        return np.stack([u @ v.T for u, v in zip(self.rows, self.columns, strict=True)])


def predictions(model: LowRankEnsemble) -> NDArray[np.float64]:
    """Return the (K, N) mean predictions of the ensemble, seen cells included."""
    return np.asarray(np.einsum("ier,jer->ij", model.rows, model.columns) / model.n_members)


def matrix(k: int, n: int, seen: float, seed: int) -> tuple[Array, csr_array]:
    """A noisy rank-2 matrix, NaN where unseen, and its seen cells; six of each row and column."""
    rng = np.random.default_rng(seed)
    left, right = rng.uniform(0.3, 1, (k, 2)), rng.uniform(0, 1, (n, 2))
    full = np.clip(left @ right.T / 2 + rng.normal(0, 0.1, (k, n)), 0, 1)
    mask = rng.random((k, n)) < seen
    for shift in range(6):
        mask[np.arange(k), (np.arange(k) * 6 + shift) % n] = True
        mask[(np.arange(n) * 6 + shift) % k, np.arange(n)] = True
    i, j = np.nonzero(mask)
    return np.where(mask, full, np.nan), csr_array((full[i, j], (i, j)), shape=(k, n))


def dropped_masks(model: LowRankEnsemble, cells: csr_array, seed: int) -> NDArray[np.bool_]:
    """(E, K, N) what members keep, drawn as the model draws it."""
    n = cells.nnz * model.n_members
    places = bernoulli_places(n, model.drop, np.random.default_rng(seed))
    cell, member = np.divmod(places, model.n_members)
    kept = np.zeros((model.n_members, *cells.shape), dtype=bool)
    rows, columns = cells.tocoo().coords
    kept[:, rows, columns] = True
    kept[member, rows[cell], columns[cell]] = False
    return kept


@pytest.mark.parametrize("rank", [1, 2])
def test_it_matches_least_squares_by_loops(rank: int) -> None:
    scores, cells = matrix(12, 18, 0.6, seed=rank)
    model = LowRankEnsemble(
        *cells.shape, np.random.default_rng(4), rank=rank, n_members=6, drop=0.1
    )
    kept = dropped_masks(model, cells, seed=9)
    reference = Reference(scores, kept, model.rows.transpose(1, 0, 2))
    model.fit(cells, 4, np.random.default_rng(9))
    for _ in range(4):
        reference.sweep()
    wanted = reference.predictions()
    size = max(1.0, np.abs(wanted).max())
    found = np.einsum("ier,jer->eij", model.rows, model.columns)
    np.testing.assert_allclose(found, wanted, atol=1e-5 * size)
    np.testing.assert_allclose(predictions(model), wanted.mean(axis=0), atol=1e-5 * size)
    spreads = wanted.std(axis=0)
    np.testing.assert_allclose(model.spreads(), spreads, atol=1e-5 * size)
    seen = ~np.isnan(scores)
    filled = np.where(seen, scores, wanted.mean(axis=0))
    np.testing.assert_allclose(
        model.means(np.asarray(cells.sum(axis=1)), *NO_CELLS), filled.mean(axis=1), atol=1e-5 * size
    )
    np.testing.assert_allclose(model.spread_totals(), spreads.sum(axis=1), atol=1e-4 * size)
    cell = (np.array([3, 0]), np.array([5, 17]))
    np.testing.assert_allclose(model.cell_spreads(*cell), spreads[cell], atol=1e-5 * size)


def test_fitting_on_goes_on_from_the_last_factors_and_members_that_drop_nothing_agree() -> None:
    _, cells = matrix(12, 18, 0.6, seed=3)
    at_once, in_steps = (
        LowRankEnsemble(12, 18, np.random.default_rng(1), n_members=5, drop=0.0) for _ in range(2)
    )
    at_once.fit(cells, 6, np.random.default_rng(2))
    for _ in range(3):
        in_steps.fit(cells, 2, np.random.default_rng(2))
    np.testing.assert_allclose(at_once.rows, in_steps.rows)
    assert at_once.spreads().max() < 1e-7


def test_a_rank_one_matrix_is_completed_exactly() -> None:
    rng = np.random.default_rng(5)
    full = np.outer(rng.uniform(0.2, 1, 15), rng.uniform(0.2, 1, 20))
    mask = rng.random(full.shape) < 0.5
    i, j = np.nonzero(mask)
    model = LowRankEnsemble(15, 20, np.random.default_rng(1), n_members=8)
    model.fit(csr_array((full[i, j], (i, j)), shape=(15, 20)), 300, np.random.default_rng(2))
    np.testing.assert_allclose(predictions(model), full, atol=1e-5)
    assert model.spreads().max() < 1e-4


def test_cells_that_are_in_no_fit_yet_count_with_their_scores() -> None:
    full, cells = matrix(12, 18, 0.6, seed=1)
    model = LowRankEnsemble(12, 18, np.random.default_rng(4), n_members=4)
    model.fit(cells, 4, np.random.default_rng(9))
    filled = predictions(model)
    known = cells.tocoo()
    filled[known.row, known.col] = known.data
    totals = np.bincount(known.row, known.data, 12).astype(np.float64)
    np.testing.assert_allclose(model.means(totals, *NO_CELLS), filled.mean(axis=1), atol=1e-9)
    seen = np.full(full.shape, False)
    seen[known.row, known.col] = True
    i, j = (int(places[0]) for places in np.nonzero(~seen))
    filled[i, j] = 0.25
    totals[i] += 0.25
    found = model.means(totals, np.array([i]), np.array([j]))
    np.testing.assert_allclose(found, filled.mean(axis=1), atol=1e-9)


@pytest.mark.parametrize("rank", [1, 2])
def test_what_was_never_seen_is_average(rank: int) -> None:
    scores, _ = matrix(12, 18, 0.9, seed=6)
    i, j = np.nonzero(~np.isnan(scores))
    fewer = (i != 4) & (j != 7)
    seen = csr_array((scores[i, j][fewer], (i[fewer], j[fewer])), shape=(12, 18))
    model = LowRankEnsemble(12, 18, np.random.default_rng(1), rank=rank, n_members=8)
    model.fit(seen, 10, np.random.default_rng(2))
    others = np.arange(12) != 4
    np.testing.assert_allclose(predictions(model)[4], predictions(model)[others].mean(axis=0))
    others = np.arange(18) != 7
    np.testing.assert_allclose(predictions(model)[:, 7], predictions(model)[:, others].mean(axis=1))
    assert np.isfinite(model.means(np.asarray(seen.sum(axis=1)), *NO_CELLS)).all()


@pytest.mark.coverage
def test_every_cell_is_dropped_with_the_given_probability() -> None:
    """Binomial(4000, .05) for each of 300 places, and the total: 5.5 standard errors."""
    counts = np.zeros(300)
    for seed in range(4000):
        counts[bernoulli_places(300, 0.05, np.random.default_rng(seed))] += 1
    error = np.sqrt(4000 * 0.05 * 0.95)
    assert np.abs(counts - 200).max() < 5.5 * error
    assert abs(counts.sum() - 60_000) < 5.5 * error * np.sqrt(300)


def test_rare_and_certain_successes() -> None:
    rng = np.random.default_rng(1)
    assert len(bernoulli_places(0, 0.5, rng)) == 0
    assert len(bernoulli_places(10, 0.0, rng)) == 0
    assert bernoulli_places(1000, 1 - 1e-12, rng).tolist() == list(range(1000))
    assert max(len(bernoulli_places(5, 1e-9, rng)) for _ in range(50)) == 0


def test_nothing_of_members_times_cells_is_made() -> None:
    """1000 x 2000 with 64 members would be 1 GB; all of it takes less than 150 MB."""
    rng = np.random.default_rng(0)
    mask = rng.random((1000, 2000)) < 0.1
    i, j = np.nonzero(mask)
    scores = (rng.random(len(i)) < 0.5).astype(float)
    tracemalloc.start()
    try:
        model = LowRankEnsemble(1000, 2000, np.random.default_rng(1))
        model.fit(csr_array((scores, (i, j)), shape=(1000, 2000)), 1, np.random.default_rng(2))
        model.spread_totals()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 150e6
