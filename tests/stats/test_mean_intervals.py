from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example as with_example
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bestarm_agent.stats.betting import MeanInterval, bet_grid, lower_bound, mean_interval
from tests.stats.one_by_one import Intervals

DATA = Path(__file__).parents[2] / "../shared/data"
SLACK = 1e-9
RateCheck = Callable[[int, int, float], None]


@st.composite
def cells(draw: st.DrawFn) -> list[tuple[float, float]]:
    """Values known as ranges, most of them points."""
    point = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1)).map(lambda x: (x, x))
    void = st.just((0.0, 1.0))
    vague = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(lambda ab: (min(ab), max(ab)))
    return draw(st.lists(st.one_of(point, point, point, void, vague), min_size=1, max_size=25))


def test_every_value_known_by_hand() -> None:
    sequences = Intervals(1, 4, 0.1)
    sequences.extend(0, np.array([0.1, 0.2, 0.3, 0.8]))
    assert sequences.lower[0] == sequences.upper[0] == pytest.approx(0.35)


def test_certain_bounds_by_hand() -> None:
    # At a level as low as this only what is certain counts: unseen values are in [0, 1].
    sequences = Intervals(1, 4, 1e-9)
    sequences.push(0, 1.0, 1.0)
    sequences.push(0, 0.0, 0.0)
    assert (sequences.lower[0], sequences.upper[0]) == (0.25, 0.75)
    sequences.push(0, 0.0, 1.0)  # void: nothing is learnt
    assert (sequences.lower[0], sequences.upper[0]) == (0.25, 0.75)


def test_a_first_rejection_by_hand() -> None:
    # N = 100, alpha = .8: each side rejects at wealth 2.5. The bets are early_bets(100, .4). After
    # a first draw of 1 each at m is worth its share times 1 + min(b sqrt(m), .98) (1 / m - 1).
    sequences = Intervals(1, 100, 0.8)
    sequences.push(0, 1.0, 1.0)
    smallest = math.sqrt(2 * math.log(2.5) / 100)
    bets = [smallest, smallest ** (2 / 3), smallest ** (1 / 3), 1.0]
    shares = [0.19, 0.19, 0.22, 0.4]

    def wealth(m: float) -> float:
        return float(np.dot(shares, [1 + b * math.sqrt(m) * (1 / m - 1) for b in bets]))

    assert wealth(float(sequences.lower[0])) >= 2.5  # rejected
    assert wealth(float(sequences.lower[0]) + 1 / 32) < 2.5  # and little more could be


@settings(max_examples=150)
@given(row=cells(), spare=st.integers(0, 10), alpha=st.sampled_from([0.01, 0.2, 0.8]))
@with_example(row=[(1.0, 1.0), (1.0, 1.0), (0.0, 0.0), (0.0, 1.0), (0.0, 0.0)], spare=0, alpha=0.8)
def test_ends_move_inwards_and_stay_within_what_is_certain(
    row: list[tuple[float, float]], spare: int, alpha: float
) -> None:
    n = len(row) + spare
    sequences = Intervals(1, n, alpha)
    before = (0.0, 1.0)
    least, most = 0.0, float(n)
    for example, (low, high) in enumerate(row):
        sequences.push(0, low, high)
        now = float(sequences.lower[0]), float(sequences.upper[0])
        least, most = least + low, most - (1 - high)
        assert least / n - SLACK <= now[0] <= now[1] <= most / n + SLACK
        if example == n - 1:  # nothing but what is certain counts in the end
            assert now == pytest.approx((least / n, most / n), abs=SLACK)
            break
        # Ends move inwards, unless the bounds contradict each other: then they are what is certain.
        if now != pytest.approx((least / n, most / n), abs=SLACK):
            assert before[0] - SLACK <= now[0] <= now[1] <= before[1] + SLACK
        before = now


@given(row=cells())
def test_width_at_the_end_is_what_was_void(row: list[tuple[float, float]]) -> None:
    sequences = Intervals(1, len(row), 0.5)
    for low, high in row:
        sequences.push(0, low, high)
    void = sum(high - low for low, high in row) / len(row)
    width = float(sequences.upper[0] - sequences.lower[0])
    assert width == pytest.approx(void, abs=SLACK)
    if all(low == high for low, high in row):
        assert width == 0.0


def test_rows_of_equal_values_tie_exactly_in_any_order() -> None:
    rng = np.random.default_rng(0)
    values = np.round(rng.random(300), 1)
    sequences = Intervals(20, 300, 0.05)
    for row in range(20):
        sequences.extend(row, rng.permutation(values))
    assert len(set(sequences.lower.tolist())) == 1
    assert (sequences.lower == sequences.upper).all()


def test_rows_do_not_touch_each_other() -> None:
    rng = np.random.default_rng(1)
    values = rng.random((3, 40))
    together, swapped = (Intervals(3, 40, 0.05) for _ in range(2))
    for row in range(3):
        together.extend(row, values[row])
    for example in range(40):  # interleaved, and rows in another order
        for row in (2, 0, 1):
            value = float(values[row, example])
            swapped.push((row + 1) % 3, value, value)
    np.testing.assert_array_equal(together.lower, np.roll(swapped.lower, -1))
    np.testing.assert_array_equal(together.upper, np.roll(swapped.upper, -1))


def test_mirrored_values_give_mirrored_bounds() -> None:
    values = np.random.default_rng(2).beta(2, 5, 60).round(3)
    sequences = Intervals(2, 100, 0.05)
    sequences.extend(0, values)
    sequences.extend(1, 1 - values)
    assert sequences.lower[0] == pytest.approx(1 - sequences.upper[1], abs=1e-3)
    assert sequences.upper[0] == pytest.approx(1 - sequences.lower[1], abs=1e-3)


def test_a_void_cell_enters_each_bound_at_its_worst() -> None:
    rng = np.random.default_rng(3)
    values, void = rng.random(80).round(2), rng.random(80) < 0.2
    ranged, low, high = (Intervals(1, 120, 0.05) for _ in range(3))
    for value, hidden in zip(values.tolist(), void, strict=True):
        ends = (0.0, 1.0) if hidden else (value, value)
        ranged.push(0, *ends)
        low.push(0, ends[0], ends[0])
        high.push(0, ends[1], ends[1])
    assert ranged.lower[0] == low.lower[0]
    assert ranged.upper[0] == high.upper[0]


@pytest.mark.parametrize("ones", [400, 450, 475])
def test_early_bets_are_narrower_after_few_of_many(ones: int) -> None:
    # Beside equal shares of the wealth, at 10 to 50 of 500 coins.
    rng = np.random.default_rng(21)
    draws = rng.permutation((np.arange(500) < ones) * 1.0)[:50]
    for n in range(10, 51):
        early = MeanInterval(500, 0.05)
        early.extend(draws[:n], draws[:n])
        lower, upper = mean_interval(draws[:n], draws[:n], 0.05, 500)
        assert early.upper - early.lower < upper - lower


@pytest.mark.parametrize("kind", ["beta", "constant", "rare"])
def test_narrower_than_hoeffding_on_populations_of_low_variance(kind: str) -> None:
    # Hoeffding-Serfling at one time only, against bounds that hold at all times.
    rng = np.random.default_rng(6)
    population = {
        "beta": rng.beta(30, 10, 1000),
        "constant": np.full(1000, 0.7),
        "rare": (np.arange(1000) < 20) * 1.0,
    }[kind]
    sequences = Intervals(1, 1000, 0.05)
    draws = rng.permutation(population)[:300]
    sequences.extend(0, draws)
    # Hoeffding-Serfling at n = 300 alone (Bardenet and Maillard 2015, corollary 2.5)
    once = 2 * math.sqrt((1 - 299 / 1000) * math.log(2 / 0.05) / (2 * 300))
    assert sequences.upper[0] - sequences.lower[0] < 0.75 * once


def test_close_to_a_normal_interval_on_coins() -> None:
    # At alpha = .05 and half of 1,000 coins a normal interval for this time alone is +-.031.
    rng = np.random.default_rng(7)
    widths = []
    for _ in range(10):
        sequences = Intervals(1, 1000, 0.05)
        sequences.extend(0, rng.permutation((np.arange(1000) < 500) * 1.0)[:500])
        widths.append(float(sequences.upper[0] - sequences.lower[0]))
    assert np.mean(widths) < 2 * 0.031 * 1.6


def ever_misses(
    values: NDArray[np.float64], void: NDArray[np.bool_], alpha: float
) -> NDArray[np.bool_]:
    """(R,) whether the bounds of each row of (R, N) values in ask order ever miss its mean.

    Every fifth value is looked at, and the last but one: ends move inwards, so a miss stays.
    """
    runs, n = values.shape
    missed = np.zeros(runs, dtype=bool)
    low, high = np.where(void, 0.0, values), np.where(void, 1.0, values)
    for row, mean in enumerate(values.mean(axis=1).tolist()):
        interval = MeanInterval(n, alpha)
        for start in range(0, n - 1, 5):
            part = slice(start, min(start + 5, n - 1))
            interval.extend(low[row, part], high[row, part])
            missed[row] |= interval.lower > mean + SLACK or interval.upper < mean - SLACK
    return missed


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
    # 400 runs at alpha = .2, a miss at any time counts: stopping when it suits does not help.
    rng = np.random.default_rng(9)
    values = rng.permuted(np.tile(populations(80)[name], (400, 1)), axis=1)
    missed = ever_misses(values, np.zeros(values.shape, dtype=bool), 0.2)
    check_rate(int(missed.sum()), 400, 0.2)


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize("mechanism", ["low_scores", "high_scores", "after_a_success"])
def test_missing_values_may_depend_on_the_scores(mechanism: str, check_rate: RateCheck) -> None:
    # 400 runs at alpha = .2.
    rng = np.random.default_rng(10)
    values = rng.permuted(np.tile(populations(80)["u_shaped"], (400, 1)), axis=1)
    chance = {
        "low_scores": values < 0.3,
        "high_scores": values > 0.7,
        "after_a_success": np.roll(values, 1, axis=1) > 0.9,
    }[mechanism]
    void = chance & (rng.random(values.shape) < 0.5)
    check_rate(int(ever_misses(values, void, 0.2).sum()), 400, 0.2)


@pytest.mark.slow
@pytest.mark.coverage
def test_joint_over_rows_that_are_sampled_adaptively(check_rate: RateCheck) -> None:
    # 150 runs, 8 rows at alpha = .2 / 8 each, the row with the highest upper end is pulled next.
    rng = np.random.default_rng(12)
    misses = 0
    for _ in range(150):
        rows = rng.permuted((np.arange(60) < np.arange(20, 52, 4)[:, None]) * 1.0, axis=1)
        sequences, seen = Intervals(8, 60, 0.2 / 8), np.zeros(8, dtype=int)
        missed = False
        for _ in range(200):
            row = int(np.argmax(np.where(seen < 60, sequences.upper, -1.0)))
            value = float(rows[row, seen[row]])
            sequences.push(row, value, value)
            seen[row] += 1
            mean = rows[row].mean()
            missed |= not sequences.lower[row] - SLACK <= mean <= sequences.upper[row] + SLACK
        misses += missed
    check_rate(misses, 150, 0.2)


def completion_order(scores: NDArray[np.float64], rng: np.random.Generator) -> list[int]:
    """Trials by time of completion, 64 in flight, where wrong answers take five times as long."""
    running: list[tuple[float, int]] = []
    order: list[int] = []
    for trial, score in enumerate(scores.tolist()):
        now = 0.0
        if len(running) == 64:
            now, done = heapq.heappop(running)
            order.append(done)
        heapq.heappush(running, (now + rng.exponential(1.0 if score else 5.0), trial))
    return order + [trial for _, trial in sorted(running)]


@pytest.mark.slow
@pytest.mark.coverage
def test_why_values_are_fed_in_the_order_of_asking(check_rate: RateCheck) -> None:
    # 100 runs of 200 coins at alpha = .2. In completion order, right answers come first: the same
    # bounds then miss far more often. In the order of asking they hold.
    rng = np.random.default_rng(16)
    asked = rng.permuted(np.tile((np.arange(200) < 100) * 1.0, (100, 1)), axis=1)
    completed = np.array([scores[completion_order(scores, rng)] for scores in asked])
    nothing = np.zeros(asked.shape, dtype=bool)
    check_rate(int(ever_misses(asked, nothing, 0.2).sum()), 100, 0.2)
    assert ever_misses(completed, nothing, 0.2).mean() > 0.5


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize("name", ["zeroeval_gsm8k", "alpaca_eval2_real_subset"])
def test_real_rows(name: str, check_rate: RateCheck) -> None:
    # Every fourth row of a real matrix at 120 of its examples, 20 orders each, at alpha = .2.
    if not DATA.is_dir():
        pytest.skip("the shared score matrices are not here")
    with np.load(DATA / f"{name}.npz") as file:
        scores = file["scores"].astype(float)
    scores = scores[np.isfinite(scores).all(axis=1)][::4]
    rng = np.random.default_rng(13)
    sample = scores[:, rng.choice(scores.shape[1], 120, replace=False)].clip(0, 1)
    values = rng.permuted(np.repeat(sample, 20, axis=0), axis=1)
    missed = ever_misses(values, np.zeros(values.shape, dtype=bool), 0.2)
    check_rate(int(missed.sum()), len(values), 0.2)


def test_a_failed_pair_of_bounds_never_crosses() -> None:
    # Values in an order that is anything but random: both bounds fail.
    population = Intervals(1, 400, 0.5)
    for value in [1.0] * 200 + [0.0] * 200:
        population.push(0, value, value)
        assert 0 <= population.lower[0] <= population.upper[0] <= 1
    assert population.lower[0] == population.upper[0] == 0.5


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, math.nan])
def test_alpha_is_checked(alpha: float) -> None:
    with pytest.raises(ValueError, match=r"alpha must be in \(0, 1\)"):
        Intervals(1, 3, alpha)


@pytest.mark.parametrize(("low", "high"), [(-0.1, 0.5), (0.5, 1.1), (0.6, 0.5), (math.nan, 1.0)])
def test_values_are_checked(low: float, high: float) -> None:
    sequences = Intervals(1, 3, 0.1)
    with pytest.raises(ValueError, match="0 <= low <= high <= 1 must hold"):
        sequences.push(0, low, high)
    assert (sequences.lower[0], sequences.upper[0]) == (0.0, 1.0)


def test_values_too_many_are_refused() -> None:
    interval = MeanInterval(1, 0.1)
    interval.extend(np.array([0.5]), np.array([0.5]))
    with pytest.raises(ValueError, match="there are 1 values in all, got 2"):
        interval.extend(np.array([0.5]), np.array([0.5]))
    with pytest.raises(ValueError, match="size must be >= 1, got 0"):
        MeanInterval(0, 0.1)


def state(interval: MeanInterval) -> tuple[float, float]:
    return interval.lower, interval.upper


@settings(max_examples=150)
@given(row=cells(), cuts=st.lists(st.integers(0, 25), max_size=4), spare=st.integers(0, 10))
@with_example(row=[(1.0, 1.0)] * 12 + [(0.0, 0.0)] * 12, cuts=[20], spare=6)  # both bounds fail
def test_the_ends_do_not_depend_on_when_one_looks(
    row: list[tuple[float, float]], cuts: list[int], spare: int
) -> None:
    low, high = np.array(row).T
    for alpha in (0.01, 0.8):
        once, often, singly = (MeanInterval(len(row) + spare, alpha) for _ in range(3))
        once.extend(low, high)
        places = [0, *sorted(min(cut, len(row)) for cut in cuts), len(row)]
        for start, stop in pairwise(places):
            often.extend(low[start:stop], high[start:stop])
        for i in range(len(row)):
            singly.extend(low[i : i + 1], high[i : i + 1])
        assert state(once) == state(often) == state(singly)


def test_all_values_give_the_mean_and_none_give_nothing() -> None:
    values = np.array([0.0, 1.0, 0.5, 1.0])
    assert mean_interval(values, values, 0.05, 4) == (0.625, 0.625)
    assert mean_interval(values[:0], values[:0], 0.05, 4) == (0.0, 1.0)
    assert mean_interval(values, np.ones(4), 0.05, 4) == (0.625, 1.0)


def test_each_end_has_half_of_the_error_probability() -> None:
    low = np.tile([0.0, 0.6, 1.0], 20)
    high = low + 0.2 * (low < 1.0)
    bets = bet_grid(200, 0.05)
    ends = lower_bound(low, 0.05, 200, bets), 1.0 - lower_bound(1.0 - high, 0.05, 200, bets)
    assert mean_interval(low, high, 0.1, 200) == ends
