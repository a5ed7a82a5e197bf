from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example as with_example
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bestarm_agent.stats import betting
from bestarm_agent.stats.betting import (
    Bets,
    MeanInterval,
    MeanIntervals,
    Wealth,
    bet_grid,
    early_bets,
    lower_bound,
    lower_bounds,
    mean_interval,
)
from tests.stats.one_by_one import ends
from tests.support.rates import RateCheck

DATA = Path(__file__).parents[2] / "../shared/data"
SLACK = 1e-9
Cells = list[tuple[float, float]]


@st.composite
def cells(draw: st.DrawFn) -> Cells:
    """Values known as ranges, most of them points."""
    point = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1)).map(lambda x: (x, x))
    void = st.just((0.0, 1.0))
    vague = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(lambda ab: (min(ab), max(ab)))
    return draw(st.lists(st.one_of(point, point, point, void, vague), min_size=1, max_size=25))


@pytest.mark.parametrize(
    ("low", "high", "alpha", "found"),
    [
        ([0.1, 0.2, 0.3, 0.8], None, 0.1, (0.35, 0.35)),  # every value is known
        # at a level as low as this only what is certain counts: unseen values are in [0, 1]
        ([1.0, 0.0], None, 1e-9, (0.25, 0.75)),
        ([1.0, 0.0, 0.0], [1.0, 0.0, 1.0], 1e-9, (0.25, 0.75)),  # void: nothing is learnt
        ([], [], 0.1, (0.0, 1.0)),
        ([0.0, 1.0, 0.5, 1.0], [1.0] * 4, 0.1, (0.625, 1.0)),
    ],
)
def test_what_is_certain_by_hand(
    low: list[float], high: list[float] | None, alpha: float, found: tuple[float, float]
) -> None:
    assert ends(low, 4, alpha, high) == pytest.approx(found)
    arrays = np.array(low, dtype=float), np.array(low if high is None else high, dtype=float)
    assert mean_interval(*arrays, alpha, 4) == pytest.approx(found)


def test_a_first_rejection_by_hand() -> None:
    # N = 100, alpha = .8: each side rejects at wealth 2.5. The bets are early_bets(100, .4). After
    # a first draw of 1 each at m is worth its share times 1 + min(b sqrt(m), .98) (1 / m - 1).
    lower, _ = ends([1.0], 100, 0.8)
    smallest = math.sqrt(2 * math.log(2.5) / 100)
    bets = [smallest, smallest ** (2 / 3), smallest ** (1 / 3), 1.0]
    shares = [0.19, 0.19, 0.22, 0.4]

    def wealth(m: float) -> float:
        return float(np.dot(shares, [1 + b * math.sqrt(m) * (1 / m - 1) for b in bets]))

    assert wealth(lower) >= 2.5  # rejected
    assert wealth(lower + 1 / 32) < 2.5  # and little more could be


@settings(max_examples=60)
@given(row=cells(), spare=st.integers(0, 10), alpha=st.sampled_from([0.01, 0.2, 0.8]))
@with_example(row=[(1.0, 1.0), (1.0, 1.0), (0.0, 0.0), (0.0, 1.0), (0.0, 0.0)], spare=0, alpha=0.8)
def test_ends_move_inwards_and_stay_within_what_is_certain(
    row: Cells, spare: int, alpha: float
) -> None:
    n = len(row) + spare
    interval = MeanInterval(n, alpha)
    before, least, most = (0.0, 1.0), 0.0, float(n)
    for example, (low, high) in enumerate(row):
        interval.extend(np.array([low]), np.array([high]))
        now = interval.lower, interval.upper
        least, most = least + low, most - (1 - high)
        assert least / n - SLACK <= now[0] <= now[1] <= most / n + SLACK
        if example == n - 1:  # nothing but what is certain counts in the end
            assert now == pytest.approx((least / n, most / n), abs=SLACK)
            assert now[0] == now[1] or any(low < high for low, high in row)
            break
        # Ends move inwards, unless the bounds contradict each other: then they are what is certain.
        if now != pytest.approx((least / n, most / n), abs=SLACK):
            assert before[0] - SLACK <= now[0] <= now[1] <= before[1] + SLACK
        before = now


def test_rows_of_equal_values_tie_exactly_in_any_order() -> None:
    rng = np.random.default_rng(0)
    values = np.round(rng.random(300), 1)
    found = [ends(rng.permutation(values), 300, 0.05) for _ in range(20)]
    assert len({end for pair in found for end in pair}) == 1


def test_rows_share_the_error_probability_and_nothing_else() -> None:
    values = np.random.default_rng(1).random((3, 40))
    together = MeanIntervals(3, 60, 0.15)
    for start, stop in pairwise((0, 1, 20, 40)):
        for row in (2, 0, 1):
            together.extend(row, values[row, start:stop], values[row, start:stop])
    for row in range(3):
        assert (together.lower[row], together.upper[row]) == ends(values[row], 60, 0.05)


def test_mirrored_values_give_mirrored_bounds() -> None:
    values = np.random.default_rng(2).beta(2, 5, 60).round(3)
    lower, upper = ends(1 - values, 100, 0.05)
    assert ends(values, 100, 0.05) == pytest.approx((1 - upper, 1 - lower), abs=1e-3)


def test_a_void_cell_enters_each_bound_at_its_worst() -> None:
    rng = np.random.default_rng(3)
    values, void = rng.random(80).round(2), rng.random(80) < 0.2
    low, high = np.where(void, 0.0, values), np.where(void, 1.0, values)
    assert ends(low, 120, 0.05, high) == (ends(low, 120, 0.05)[0], ends(high, 120, 0.05)[1])


@pytest.mark.parametrize("ones", [400, 450, 475])
def test_early_bets_are_narrower_after_few_of_many(ones: int) -> None:
    # Beside equal shares of the wealth, at 10 to 50 of 500 coins.
    rng = np.random.default_rng(21)
    draws = rng.permutation((np.arange(500) < ones) * 1.0)[:50]
    for n in range(10, 51, 4):
        early, plain = ends(draws[:n], 500, 0.05), mean_interval(draws[:n], draws[:n], 0.05, 500)
        assert early[1] - early[0] < plain[1] - plain[0]


@pytest.mark.parametrize("kind", ["beta", "constant", "rare"])
def test_narrower_than_hoeffding_on_populations_of_low_variance(kind: str) -> None:
    # Hoeffding-Serfling at n = 300 alone (Bardenet and Maillard 2015, corollary 2.5), against
    # bounds that hold at all times.
    rng = np.random.default_rng(6)
    population = {
        "beta": rng.beta(30, 10, 1000),
        "constant": np.full(1000, 0.7),
        "rare": (np.arange(1000) < 20) * 1.0,
    }[kind]
    lower, upper = ends(rng.permutation(population)[:300], 1000, 0.05)
    once = 2 * math.sqrt((1 - 299 / 1000) * math.log(2 / 0.05) / (2 * 300))
    assert upper - lower < 0.75 * once


def test_close_to_a_normal_interval_on_coins() -> None:
    # At alpha = .05 and half of 1,000 coins a normal interval for this time alone is +-.031.
    rng = np.random.default_rng(7)
    coins = (np.arange(1000) < 500) * 1.0
    found = [ends(rng.permutation(coins)[:500], 1000, 0.05) for _ in range(10)]
    assert np.mean([upper - lower for lower, upper in found]) < 2 * 0.031 * 1.6


def ever_misses(
    values: NDArray[np.float64], alpha: float, void: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """(R,) whether the bounds of each row of (R, N) values in ask order ever miss its mean.

    A bound never falls, and the blocks in which values come change nothing. So what it misses at
    any time it misses after the last value but one, where all rows are worked out together. Every
    tenth row also comes in blocks, and its interval must be theirs.
    """
    runs, n = values.shape
    void = np.zeros(values.shape, dtype=bool) if void is None else void
    low, high = np.where(void, 0.0, values), np.where(void, 1.0, values)
    bets, level, means = early_bets(n, alpha / 2), alpha / 2, values.mean(axis=1)
    below, gaps = (lower_bounds([*side[:, :-1]], level, n, bets) for side in (low, 1.0 - high))
    for row in range(0, runs, 10):
        interval = MeanInterval(n, alpha)
        for start in range(0, n - 1, 6):
            part = slice(start, min(start + 6, n - 1))
            interval.extend(low[row, part], high[row, part])
        if below[row] <= 1.0 - gaps[row]:  # else the bounds contradict each other
            assert (interval.lower, interval.upper) == (below[row], 1.0 - gaps[row])
    return np.asarray((below > means + SLACK) | (1.0 - gaps < means - SLACK))


def populations(n: int) -> dict[str, NDArray[np.float64]]:
    rng = np.random.default_rng(8)
    return {
        "coins": (np.arange(n) < n // 2) * 1.0,
        "mostly_ones": (np.arange(n) < n - 6) * 1.0,
        "one_success": (np.arange(n) < 1) * 1.0,
        "two_points_inside": np.where(np.arange(n) < n // 10, 0.9, 0.45),
        "constant": np.full(n, 0.3),
        "u_shaped": rng.beta(0.2, 0.3, n),
        "bell": rng.beta(20, 30, n),
    }


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize("name", list(populations(8)))
def test_the_mean_is_ever_missed_at_most_at_level_alpha(name: str, check_rate: RateCheck) -> None:
    # 200 runs at alpha = .2, a miss at any time counts: stopping when it suits does not help.
    values = np.tile(populations(40)[name], (200, 1))
    missed = ever_misses(np.random.default_rng(9).permuted(values, axis=1), 0.2)
    check_rate(int(missed.sum()), 200, 0.2)


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize("mechanism", ["low_scores", "high_scores", "after_a_success"])
def test_missing_values_may_depend_on_the_scores(mechanism: str, check_rate: RateCheck) -> None:
    # 200 runs at alpha = .2.
    rng = np.random.default_rng(10)
    values = rng.permuted(np.tile(populations(40)["u_shaped"], (200, 1)), axis=1)
    chance = {
        "low_scores": values < 0.3,
        "high_scores": values > 0.7,
        "after_a_success": np.roll(values, 1, axis=1) > 0.9,
    }[mechanism]
    void = chance & (rng.random(values.shape) < 0.5)
    check_rate(int(ever_misses(values, 0.2, void).sum()), 200, 0.2)


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize("name", ["zeroeval_gsm8k", "alpaca_eval2_real_subset"])
def test_real_rows(name: str, check_rate: RateCheck) -> None:
    # Every fourth row of a real matrix at 120 of its examples, 10 orders each, at alpha = .2.
    if not DATA.is_dir():
        pytest.skip("the shared score matrices are not here")
    with np.load(DATA / f"{name}.npz") as file:
        scores = file["scores"].astype(float)
    scores = scores[np.isfinite(scores).all(axis=1)][::4]
    rng = np.random.default_rng(13)
    sample = scores[:, rng.choice(scores.shape[1], 120, replace=False)].clip(0, 1)
    values = rng.permuted(np.repeat(sample, 10, axis=0), axis=1)
    check_rate(int(ever_misses(values, 0.2).sum()), len(values), 0.2)


def test_a_failed_pair_of_bounds_never_crosses() -> None:
    # Values in an order that is anything but random: both bounds fail.
    interval = MeanInterval(400, 0.5)
    for value in [1.0] * 200 + [0.0] * 200:
        interval.extend(np.array([value]), np.array([value]))
        assert 0 <= interval.lower <= interval.upper <= 1
    assert interval.lower == interval.upper == 0.5


@pytest.mark.parametrize(
    ("size", "alpha", "low", "high", "message"),
    [
        *((3, alpha, 0.5, 0.5, r"alpha must be in \(0, 1\)") for alpha in (0, 1, -0.1, math.nan)),
        *(
            (3, 0.1, low, high, "0 <= low <= high <= 1 must hold")
            for low, high in [(-0.1, 0.5), (0.5, 1.1), (0.6, 0.5), (math.nan, 1.0)]
        ),
        (1, 0.1, [0.5, 0.5], [0.5, 0.5], "there are 1 values in all, got 2"),
        (0, 0.1, 0.5, 0.5, "size must be >= 1, got 0"),
    ],
)
def test_what_cannot_be_is_refused(
    size: int, alpha: float, low: float, high: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ends(np.atleast_1d(low), size, alpha, np.atleast_1d(high))


@settings(max_examples=60)
@given(row=cells(), cuts=st.lists(st.integers(0, 25), max_size=4), spare=st.integers(0, 10))
@with_example(row=[(1.0, 1.0)] * 12 + [(0.0, 0.0)] * 12, cuts=[20], spare=6)  # both bounds fail
def test_the_ends_do_not_depend_on_when_one_looks(row: Cells, cuts: list[int], spare: int) -> None:
    low, high = np.array(row).T
    n, places = len(row), [0, *sorted(min(cut, len(row)) for cut in cuts), len(row)]
    for alpha in (0.01, 0.8):
        often, singly = (MeanInterval(n + spare, alpha) for _ in range(2))
        for interval, starts in ((often, places), (singly, range(n + 1))):
            for start, stop in pairwise(starts):
                interval.extend(low[start:stop], high[start:stop])
        once = ends(low, n + spare, alpha, high)
        assert once == (often.lower, often.upper) == (singly.lower, singly.upper)


@settings(max_examples=60)
@given(
    rows=st.lists(st.tuples(cells(), st.integers(0, 25)), min_size=1, max_size=8),
    spare=st.integers(0, 10),
    alpha=st.sampled_from([0.05, 0.8]),
)
@with_example(  # both bounds of the second row fail
    rows=[([(1.0, 1.0)] * 30, 25), ([(1.0, 1.0)] * 12 + [(0.0, 0.0)] * 12, 24)],
    spare=6,
    alpha=0.8,
)
def test_rows_at_once_are_those_one_by_one(
    rows: list[tuple[Cells, int]], spare: int, alpha: float
) -> None:
    size = max(len(row) for row, _ in rows) + spare
    alone, together = (MeanIntervals(len(rows), size, alpha) for _ in range(2))
    known = [(np.array(row).T, cut) for row, cut in rows]  # one cut at most before the end
    halves = [row[:, :cut] for row, cut in known], [row[:, cut:] for row, cut in known]
    for half in halves:
        together.extend_all((k, low, high) for k, (low, high) in enumerate(half))
        for k, values in enumerate(half):
            for low, high in values.T:
                alone.extend(k, np.array([low]), np.array([high]))
        assert together.lower.tolist() == alone.lower.tolist()
        assert together.upper.tolist() == alone.upper.tolist()
        assert together.length.tolist() == alone.length.tolist()


@pytest.mark.parametrize(
    "values",
    [
        np.repeat([1.0, 0.0], [200, 190]),
        np.repeat([0.0, 1.0], [190, 200]),
        np.repeat([1.0, 0.0], [380, 5]),
        np.tile([0.0, 1.0], 195),
    ],
    ids=["fell", "rose", "fell at last", "in turns"],
)
def test_a_bound_is_found_in_a_dozen_tries(
    values: NDArray[np.float64], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each replays all values: where these had fallen it took thousands, step by step."""
    tried: list[float] = []

    def tries(n_rows: int, mean: NDArray[np.float64], bets: Bets, size: int | None) -> Wealth:
        tried.extend(mean)
        return Wealth(n_rows, mean, bets, size)

    monkeypatch.setattr(betting, "Wealth", tries)
    found = lower_bound(values, 0.25, 400, early_bets(400, 0.25))
    assert found > values.sum() / 400 - 2**-12
    assert 0 < len(tried) <= 12


def test_rows_at_once_have_ranges_within_0_and_1() -> None:
    intervals, low = MeanIntervals(2, 5, 0.1), np.array([0.2, 0.6])
    with pytest.raises(ValueError, match=r"low=0\.6, high=0\.3"):
        intervals.extend_all([(0, low, low), (1, low, np.array([0.2, 0.3]))])
    assert not intervals.length.any()


def test_each_end_has_half_of_the_error_probability() -> None:
    low = np.tile([0.0, 0.6, 1.0], 20)
    high = low + 0.2 * (low < 1.0)
    bets = bet_grid(200, 0.05)
    halves = lower_bound(low, 0.05, 200, bets), 1.0 - lower_bound(1.0 - high, 0.05, 200, bets)
    assert mean_interval(low, high, 0.1, 200) == halves


def test_an_interval_says_nothing_at_first_and_what_its_bets_say_later() -> None:
    interval = MeanInterval(200, 0.05, bet_grid(200, 0.025))
    assert (interval.lower, interval.upper) == (0.0, 1.0)
    values = (np.random.default_rng(3).random(80) < 0.9).astype(float)
    interval.extend(values, values)
    assert mean_interval(values, values, 0.05, 200) == (interval.lower, interval.upper)
    assert 0.7 < interval.lower < 0.9 < interval.upper < 1.0
