from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example as with_example
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bestarm_agent.stats.betting import MeanIntervals
from bestarm_agent.stats.paired_sequences import PairedSequences, pair_bets
from tests.stats.one_by_one import compared, feed, push, wealth, wealth_path
from tests.support.rates import RateCheck


def correlated(
    rng: np.random.Generator, n: int, gaps: list[float], noise: float = 0.05
) -> NDArray[np.float64]:
    """(K, n) scores that share most of their noise: the examples are easy or hard."""
    difficulty = np.clip(rng.random(n), 0.2, 0.8)
    return np.asarray(
        np.clip(
            difficulty - np.array(gaps)[:, None] + noise * rng.normal(size=(len(gaps), n)), 0, 1
        )
    )


def test_wealth_by_hand_and_on_common_examples_only() -> None:
    # z = (1 + x_0 - x_1) / 2: 1, then 1/2, against "at most 1/2" among N = 4.
    pairs = compared([[1.0, 0.3], [0.0, 0.3]], 4, 0.5)
    by_hand = wealth_path([1.0, 0.5], 0.5, pair_bets(4, 0.5), 4)[-1]
    assert wealth(pairs, 0, 1) == pytest.approx(by_hand)
    assert wealth(pairs, 1, 0) < 1 < wealth(pairs, 0, 1)
    feed(pairs, 0, [1.0], start=2)
    assert wealth(pairs, 0, 1) == pytest.approx(by_hand)
    assert wealth(PairedSequences(2, 4, 0.5), 0, 1) == 1.0


def test_a_leader_beats_who_is_worse_and_no_other() -> None:
    rng = np.random.default_rng(0)
    values = correlated(rng, 200, [0.0, 0.0, 0.15, 0.2])
    pairs = compared(values[:, :120], 200, 0.05)
    assert pairs.beaten_by(0).tolist() == [False, False, True, True]
    assert pairs.beaten_by(1).tolist() == [False, False, True, True]
    assert pairs.beaten_by(0, among=np.arange(4) == 2).tolist() == [False, False, True, False]


@settings(max_examples=40)
@given(
    seed=st.integers(0, 1000),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    kind=st.sampled_from(["coin", "real"]),
)
def test_results_do_not_depend_on_when_one_looks(seed: int, cuts: list[int], kind: str) -> None:
    values = correlated(np.random.default_rng(seed), 60, [0.0, 0.06, 0.1], noise=0.1)
    if kind == "coin":
        values = np.round(values)
    once, often = compared(values, 80, 0.3), PairedSequences(3, 80, 0.3)
    for start, stop in pairwise([0, *sorted(cuts), 60]):
        for row in range(3):
            feed(often, row, values[row, start:stop], start)
        wealth(often, 0, 1)
        often.beaten_by(start % 3, among=np.arange(3) != stop % 3)
    if not once.beaten_by(0)[1]:
        assert wealth(often, 0, 1) == pytest.approx(wealth(once, 0, 1), rel=1e-6)
    for leader in range(3):
        assert often.beaten_by(leader).tolist() == once.beaten_by(leader).tolist()


def test_who_was_beaten_once_stays_beaten() -> None:
    pairs = compared(np.repeat([[1.0, 0.0], [0.0, 1.0]], [30, 25], axis=1), 500, 0.05)
    assert wealth(pairs, 0, 1) < 1 / 0.05  # by now; on the way it was higher
    assert pairs.beaten_by(0).tolist() == [False, True]


def test_the_shortfall_by_hand() -> None:
    """Least e such that a wager against "mean z <= (1 - e) / 2" wins, z = 1/2: here by a scan."""
    pairs = PairedSequences(3, 300, alpha=0.1)
    for row in range(2):
        feed(pairs, row, np.linspace(0, 1, 200))
    found = pairs.shortfall(0, 1)
    bets, draws = pair_bets(300, 0.05), np.full(200, 0.5)
    leads = np.arange(0, 1, 2**-11)
    wins = [wealth_path(draws, (1 - lead) / 2, bets, 300)[-1] >= 20 for lead in leads]
    assert wins == sorted(wins)
    assert found == pytest.approx(wins.index(True) * 2**-11, abs=2**-11)
    assert 0 < found < 1 / 3  # below what is certain
    assert pairs.shortfall(0, 1, least=found) == found
    assert pairs.shortfall(0, 1, least=0.4) == 0.4
    assert pairs.shortfall(0, 1, least=found / 2) == 1.0
    assert pairs.shortfall(0, 2) == 1.0
    assert PairedSequences(2, 300, alpha=0.6).shortfall(0, 1) == 1.0, "nothing is known"


def test_the_shortfall_vanishes_where_a_row_is_beaten() -> None:
    values = correlated(np.random.default_rng(9), 200, [0.0, 0.2])
    pairs = compared(values[:, :100], 200, 0.05)
    assert pairs.beaten_by(0)[1]
    assert pairs.shortfall(0, 1) == 0.0
    assert pairs.shortfall(1, 0) > 0.15


def test_pairing_needs_fewer_examples_than_separate_intervals() -> None:
    rng = np.random.default_rng(1)
    values = correlated(rng, 400, [0.0, 0.08])
    pairs, separate = PairedSequences(2, 400, 0.05), MeanIntervals(2, 400, 0.05)
    needs: dict[str, int] = {}
    for example in range(400):
        for row in range(2):
            value = float(values[row, example])
            push(pairs, row, example, value, value)
            separate.extend(row, values[row, [example]], values[row, [example]])
        if pairs.beaten_by(0)[1]:
            needs.setdefault("paired", example)
        if separate.lower[0] > separate.upper[1]:
            needs.setdefault("separate", example)
    assert needs["paired"] < 0.5 * needs["separate"]


def test_equal_rows_are_never_separated_even_when_all_is_seen() -> None:
    rng = np.random.default_rng(2)
    values = np.round(rng.random(100), 1)
    pairs = compared([values, np.roll(values, 1)], 100, 0.3)
    assert not pairs.beaten_by(0).any()
    assert not pairs.beaten_by(1).any()


def test_the_smallest_lead_is_certain_when_all_is_seen() -> None:
    values = np.random.default_rng(3).random(100)
    worse = values.copy()
    worse[99] = max(0.0, worse[99] - 0.01)
    pairs = compared([values, worse], 100, 1e-6)
    assert wealth(pairs, 0, 1) == math.inf
    assert pairs.beaten_by(0).tolist() == [False, True]
    assert pairs.shortfall(1, 0) < 2**-10


def test_state_grows_with_the_leaders_not_with_the_pairs() -> None:
    pairs = compared(np.full((300, 2), 0.5), 50, 0.05)
    pairs.beaten_by(7)
    pairs.beaten_by(8)
    pairs.rejected()
    opponents = sorted(test.opponent for test in pairs._wealth)
    assert opponents == [-1, 7, 8]  # the committed leaders, and two rows


def test_void_cells_count_at_their_worst_for_the_challenger() -> None:
    hidden, known = PairedSequences(2, 10, 0.1), PairedSequences(2, 10, 0.1)
    for example, (x, y) in enumerate([(1.0, 0.0), (1.0, 0.5), (0.8, 0.1)]):
        push(hidden, 0, example, *((0.0, 1.0) if example == 1 else (x, x)))
        push(hidden, 1, example, *((0.0, 1.0) if example == 2 else (y, y)))
        push(known, 0, example, *((0.0, 0.0) if example == 1 else (x, x)))
        push(known, 1, example, *((1.0, 1.0) if example == 2 else (y, y)))
    assert wealth(hidden, 0, 1) == wealth(known, 0, 1)


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), seen=st.integers(0, 40))
@with_example(seed=5, seen=40)
def test_difference_is_antisymmetric_and_within_what_is_certain(seed: int, seen: int) -> None:
    values = np.random.default_rng(seed).random((2, 40))
    pairs = PairedSequences(2, 40, 0.1)
    feed(pairs, 0, values[0])
    feed(pairs, 1, values[1, :seen])
    low, high = pairs.difference(0, 1, 0.1)
    assert pairs.difference(1, 0, 0.1) == pytest.approx((-high, -low))
    certain = (values[0, :seen] - values[1, :seen]).sum() / 40
    unseen = 1 - seen / 40
    assert certain - unseen - 1e-9 <= low <= high + 1e-9 <= certain + unseen + 2e-9
    if seen == 40:
        assert low == pytest.approx(high)


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize("noise", [0.02, 0.5])
def test_the_best_row_is_lost_at_most_at_level_alpha(noise: float, check_rate: RateCheck) -> None:
    # 120 runs at alpha = .2: five rows of which three tie for best, pulled and challenged by what
    # was seen (always the leader and its closest rival), each at its own pace.
    rng = np.random.default_rng(6)
    lost = 0
    for _ in range(120):
        values = correlated(rng, 60, [0.0, 0.0, 0.0, 0.03, 0.1], noise)
        values[:3] += (values[:3].mean() - values[:3].mean(axis=1))[:, None]  # means tie
        values = np.clip(values, 0, 1)[:, rng.permutation(60)]
        best = int(np.argmax(values.mean(axis=1).round(12)))
        pairs, seen, total = PairedSequences(5, 60, 0.2), np.zeros(5, int), np.zeros(5)
        beaten = np.zeros(5, dtype=bool)
        for _ in range(120):
            index = np.where(beaten | (seen == 60), -1, total / (seen + 0.1) + 1 / (seen + 1))
            row = int(np.argmax(index))
            if index[row] < 0:
                break
            value = float(values[row, seen[row]])
            push(pairs, row, int(seen[row]), value, value)
            seen[row] += 1
            total[row] += value
            beaten |= pairs.beaten_by(int(np.argmax(total / np.maximum(seen, 1))))
        lost += bool(beaten[best])
    check_rate(lost, 120, 0.2)


@pytest.mark.slow
@pytest.mark.coverage
def test_difference_is_ever_missed_at_most_at_level_alpha(check_rate: RateCheck) -> None:
    # 150 runs of 50 examples at alpha = .2, looked at after every fifth example.
    rng = np.random.default_rng(8)
    misses = 0
    for _ in range(150):
        x, y = rng.permuted((np.arange(50) < np.array([[30], [24]])) * 1.0, axis=1)
        pairs, missed = PairedSequences(2, 50, 0.2), False
        for example in range(50):
            push(pairs, 0, example, x[example], x[example])
            push(pairs, 1, example, y[example], y[example])
            if example % 5 == 4:
                low, high = pairs.difference(0, 1, 0.2)
                missed |= not low - 1e-9 <= 0.12 <= high + 1e-9
        misses += missed
    check_rate(misses, 150, 0.2)


@pytest.mark.parametrize(
    ("row", "example", "low", "message"),
    [
        (1, 5, 1.0, "row 1 must take example 4 next"),
        (0, 4, 1.0, "example 4 has its place"),
        (0, 10, 1.0, r"example must be in 0\.\.9, got 10"),
        (1, 4, 1.1, "0 <= low <= high <= 1 must hold"),
    ],
)
def test_what_cannot_come_next_is_refused(row: int, example: int, low: float, message: str) -> None:
    pairs = PairedSequences(2, 10, 0.1)
    push(pairs, 0, 4, 1.0, 1.0)
    with pytest.raises(ValueError, match=message):
        push(pairs, row, example, low, 1.0)


@pytest.mark.parametrize("alpha", [0.0, 1.0, math.nan])
def test_the_level_is_checked(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha must be"):
        PairedSequences(3, 10, alpha)
    with pytest.raises(ValueError, match="alpha must be"):
        PairedSequences(3, 10, 0.1, pair_alpha=alpha)
    with pytest.raises(ValueError, match="alpha must be"):
        PairedSequences(3, 10, alpha, pair_alpha=0.1)
    with pytest.raises(ValueError, match="alpha must be"):
        PairedSequences(2, 10, 0.1).difference(0, 1, 2 * alpha)
