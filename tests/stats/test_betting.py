from __future__ import annotations

import math
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.stats.betting import (
    Bets,
    LowerBound,
    Wealth,
    bet_grid,
    early_bets,
    lower_bound,
    lower_bounds,
)
from bestarm_agent.stats.paired_sequences import pair_bets
from tests.stats.one_by_one import wealth_path

values_in_unit = st.lists(
    st.one_of(st.sampled_from([0.0, 1.0, 0.5]), st.floats(0, 1)), min_size=1, max_size=30
)


def test_two_draws_by_hand() -> None:
    # N = 4, m = 1/2, one bet b = 1/2: c = 1/2, stake = .5 sqrt(.5), gain = 1; then c = (2 - 1) / 3,
    # stake = .5 sqrt(1/3) 4/3 = .3849, gain = -1
    path = wealth_path([1.0, 0.0], 0.5, Bets((0.5,), (1.0,)), 4)
    assert path == pytest.approx([1.353553, 1.353553 * (1 - 0.384900)], abs=1e-6)
    # with replacement: c = 1/4, stakes .25 and .5, gain = 3: 1.75 and 2.5
    path = wealth_path([1.0, 0.0], 0.25, Bets((0.5, 1.0), (0.5, 0.5)))
    assert path == pytest.approx([2.125, (1.75 * 0.75 + 2.5 * 0.5) / 2])


def test_a_refuted_hypothesis_makes_rich() -> None:
    path = wealth_path([1.0] * 3, 0.5, bet_grid(4, 0.1), 4)
    assert math.isfinite(path[1])  # two ones among four: the mean may still be 1/2
    assert path[2] == math.inf


POPULATIONS = [
    (0.0, 0.0, 1.0, 1.0, 1.0),
    (0.0, 0.0, 0.0, 0.0, 1.0),
    (0.2, 0.4, 0.4, 0.9, 1.0),
    (0.3, 0.3, 0.3, 0.3, 0.3),
]


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("bets", [bet_grid(5, 0.1), early_bets(5, 0.1), pair_bets(5, 0.1)])
def test_wealth_is_a_fair_game_over_all_orders(population: tuple[float, ...], bets: Bets) -> None:
    # Exact, not simulated: the mean over all 120 orders is 1 at every time under the true mean.
    true_mean = sum(population) / 5
    paths = np.array([wealth_path(order, true_mean, bets, 5) for order in permutations(population)])
    fair = paths.mean(axis=0)
    np.testing.assert_allclose(fair, 1.0, rtol=1e-3)  # odds of 0 are raised to 1e-9
    assert (fair <= 1 + 1e-9).all()


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("alpha", [0.5, 0.2])
def test_ville_over_all_orders(population: tuple[float, ...], alpha: float) -> None:
    bets = bet_grid(5, alpha)
    true_mean = sum(population) / 5
    peaks = [max(wealth_path(order, true_mean, bets, 5)) for order in permutations(population)]
    assert np.mean(np.array(peaks) >= 1 / alpha) <= alpha


@pytest.mark.parametrize("hide", ["low", "high", "after_a_one", "places"])
def test_understating_never_pays(hide: str) -> None:
    # Whatever hides a value (here: as 0), the expected wealth stays at most 1, at every time.
    population = (0.0, 0.1, 0.6, 1.0, 1.0)
    bets = bet_grid(5, 0.1)
    paths = []
    for order in permutations(population):
        hidden = {
            "low": [x < 0.5 for x in order],
            "high": [x > 0.5 for x in order],
            "after_a_one": [1.0 in order[:t] for t in range(5)],
            "places": [t % 2 == 0 for t in range(5)],
        }[hide]
        known = tuple(0.0 if h else x for x, h in zip(order, hidden, strict=True))
        paths.append(wealth_path(known, sum(population) / 5, bets, 5))
    assert (np.mean(paths, axis=0) <= 1 + 1e-9).all()


@given(values=values_in_unit, spare=st.integers(0, 20), mean=st.floats(0.01, 1.0))
def test_blocks_of_draws_equal_one_by_one(values: list[float], spare: int, mean: float) -> None:
    for size in (None, len(values) + spare):
        one, many = (Wealth(1, mean, bet_grid(100, 0.05), size) for _ in range(2))
        path = [float(one.extend(np.array([[value]]))[0, 0]) for value in values]
        cut = len(values) // 3
        parts = [many.extend(np.array([part])) for part in (values[:cut], values[cut:])]
        assert np.concatenate(parts, axis=1)[0].tolist() == path
        assert (many.n, many.now, many.highest) == (one.n, one.now, one.highest)


def test_stakes_that_learn_do_not_depend_on_the_blocks() -> None:
    rng, cuts = np.random.default_rng(9), [0, 1, 7, 8, 30]
    values, idle = rng.random((2, 30)), rng.random((2, 30)) < 0.2
    one, many = (Wealth(2, 0.5, bet_grid(40, 0.05), None, 0.1) for _ in range(2))
    expected = one.extend(values, idle=idle)
    blocks = [many.extend(values[:, a:b], idle=idle[:, a:b]) for a, b in pairwise(cuts)]
    assert np.array_equal(np.concatenate(blocks, axis=1), expected)


def test_rows_do_not_touch_each_other() -> None:
    values = np.random.default_rng(0).random((3, 20))
    means = np.array([0.3, 0.5, 0.7])
    together = Wealth(3, means, bet_grid(30, 0.05), 30)
    paths = together.extend(values)
    together.extend(values[:1, :5], rows=np.array([1]))
    for row in range(3):
        alone = Wealth(1, float(means[row]), bet_grid(30, 0.05), 30)
        assert paths[row] == pytest.approx(alone.extend(values[row : row + 1])[0])
        assert together.n.tolist() == [20, 25, 20]


@given(values=values_in_unit, spare=st.integers(0, 20), means=st.tuples(*[st.floats(0.01, 1)] * 2))
def test_wealth_falls_as_the_hypothesis_rises(
    values: list[float], spare: int, means: tuple[float, float]
) -> None:
    bets = bet_grid(50, 0.05)
    for size in (None, len(values) + spare):
        low, high = (wealth_path(values, mean, bets, size)[-1] for mean in sorted(means))
        assert low >= high * (1 - 1e-9)


@pytest.mark.parametrize("kind", ["coin", "rare", "beta"])
@pytest.mark.parametrize("size", [200, None])
def test_bound_is_the_edge_of_what_is_rejected(kind: str, size: int | None) -> None:
    # Against a brute-force search over 2,000 means after every draw.
    rng = np.random.default_rng(5)
    share = rng.beta(9, 4, 150) if kind == "beta" else rng.random(150)
    draws = {"coin": (share < 0.6) * 1.0, "rare": (share < 0.04) * 1.0, "beta": share}[kind]
    alpha, bets = 0.05, bet_grid(200, 0.05)
    bound, edge = LowerBound(alpha, bets, size), 0.0
    for t in range(1, 151):
        bound.extend(np.asarray(draws[t - 1 : t], dtype=np.float64))
        for mean in np.arange(edge, 1.0, 1 / 2000)[1:]:
            if wealth_path(draws[:t], float(mean), bets, size)[-1] < 1 / alpha:
                break
            edge = float(mean)
        step = math.sqrt(math.log(1 / alpha) / 2 / t) / 128
        assert edge - 1 / 2000 - step <= bound.lower <= edge + 1 / 2000 + 1e-9


def test_a_rare_success_is_bounded_away_from_zero() -> None:
    # The first probes are far above the mean of 1/50 and must come down.
    bound = LowerBound(0.05, bet_grid(10_000, 0.05), 10_000)
    bound.extend((np.arange(5_000) % 50 == 0) * 1.0)
    assert 0.014 < bound.lower < 0.02


@pytest.mark.parametrize("size", [100, None])
@pytest.mark.parametrize("chance", [0.03, 0.5, 0.9, 1.0])
def test_the_bound_does_not_depend_on_the_blocks(chance: float, size: int | None) -> None:
    rng = np.random.default_rng(3)
    values = (rng.random(90) < chance).astype(float)
    bets = early_bets(100, 0.01)
    bound, cuts = LowerBound(0.01, bets, size), [0, 1, 2, 7, 40, 41, 90]
    for start, stop in pairwise(cuts):
        bound.extend(values[start:stop])
        once = LowerBound(0.01, bets, size)
        once.extend(values[:stop])
        assert bound.lower == once.lower
    certain = 0.0 if size is None else values.sum() / size
    assert lower_bound(values, 0.01, size, bets) == max(bound.lower, certain)


@pytest.mark.parametrize("size", [3000, None])
def test_bounds_of_many_rows_are_the_edges_of_what_each_rejects(size: int | None) -> None:
    rng, bets, alpha = np.random.default_rng(4), early_bets(3000, 0.01), 0.01
    lengths = rng.integers(0, 400, 60)
    lengths[:3] = 0, 1, 3000  # nothing, one value, all there are
    rows = [
        (rng.random(n) < chance) * 1.0 for n, chance in zip(lengths, rng.random(60), strict=True)
    ]
    rows[5:30] = [row * rng.random(len(row)) for row in rows[5:30]]  # scores between 0 and 1
    for row, bound in zip(rows, lower_bounds(rows, alpha, size, bets), strict=True):
        in_two, half = LowerBound(alpha, bets, size), len(row) // 2
        in_two.extend(row[:half])
        in_two.extend(row[half:])
        assert bound == max(in_two.lower, 0.0 if size is None else in_two.total / size)
        if in_two.lower:  # the next multiple of the finest step that 400 values have is not
            assert max(wealth_path(row, in_two.lower, bets, size)) >= 1 / alpha
        if 0 < len(row) < 3000:
            step = math.sqrt(math.log(1 / alpha) / 2 / len(row)) / 128
            assert max(wealth_path(row, min(1.0, in_two.lower + step), bets, size)) < 1 / alpha


def test_the_sizes_and_shares_of_bets() -> None:
    sizes, shares = bet_grid(1000, 0.01)  # spans what the horizon allows
    assert sizes[-1] == 1.0
    assert sizes[0] == pytest.approx(0.5 * math.sqrt(2 * math.log(100) / 1000))
    ratios = np.array(sizes[1:]) / np.array(sizes[:-1])
    assert ratios == pytest.approx(ratios[0])
    assert ratios[0] <= 3.0
    assert shares == pytest.approx([1 / len(sizes)] * len(sizes))
    assert len(bet_grid(1, 0.5).sizes) == 2
    sizes, shares = early_bets(500, 0.025)  # most on the largest
    assert sizes[0] == pytest.approx(math.sqrt(2 * math.log(40) / 500))
    assert sizes[-1] == 1.0
    assert max(b / a for a, b in pairwise(sizes)) <= 2.0
    assert shares == pytest.approx([0.38 / 3, 0.38 / 3, 0.38 / 3, 0.22, 0.4])
    assert early_bets(60, 0.05).shares == pytest.approx([0.3, 0.3, 0.4])  # few bets have more
    assert early_bets(1, 0.05).shares == pytest.approx([0.6, 0.4])
    sizes, shares = pair_bets(500, 0.025)  # in proportion to the sizes
    assert sizes == bet_grid(500, 0.025).sizes
    assert shares == pytest.approx(np.array(sizes) / sum(sizes))


@pytest.mark.parametrize(("horizon", "alpha"), [(0, 0.1), (10, 0.0), (10, 1.0), (10, math.nan)])
def test_bad_arguments_are_named(horizon: int, alpha: float) -> None:
    with pytest.raises(ValueError, match=r"(horizon|alpha) must be"):
        bet_grid(horizon, alpha)
