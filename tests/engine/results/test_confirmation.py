"""The winner's mean: the bias of the naive one, and the coverage of what is said instead."""

from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.engine.confirm import mean_of_new
from tests.support.confirm_worlds import World, missed, simulate
from tests.support.rates import RateCheck

WORLDS = 10_000
TIES = World((0.8,) * 10)
CLOSE = World((0.82, 0.8, 0.8, 0.78, 0.78, 0.7, 0.6, 0.5))
APART = World((0.9, 0.5, 0.5))


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize(("world", "bias"), [(TIES, 0.06), (CLOSE, 0.04), (APART, 0.0)])
def test_the_naive_mean_of_a_winner_is_too_high_and_intervals_hold(
    world: World,
    bias: float,
    check_rate: RateCheck,
) -> None:
    # Binomial tests at 1e-6 of the rate .05 at which an interval may ever miss the true mean.
    found = simulate(world, WORLDS, np.random.default_rng(21))
    error = found.naive.std() / WORLDS**0.5
    assert found.naive.mean() > bias - 5 * error
    if not bias:
        assert abs(found.naive.mean()) < 5 * error
    assert abs(found.confirmed.mean()) < 5 * found.confirmed.std() / WORLDS**0.5
    check_rate(int(found.corrected_missed.sum()), WORLDS, 0.05)
    check_rate(int(found.confirmed_missed.sum()), WORLDS, 0.05)


@pytest.mark.coverage
def test_the_rate_check_sees_an_interval_that_ignores_the_choice(
    check_rate: RateCheck,
) -> None:
    found = simulate(TIES, 1_000, np.random.default_rng(22))
    unseen = 1 - TIES.n_seen / TIES.n_examples
    fooled = np.abs(found.naive) > 1.96 * np.sqrt(0.8 * 0.2 / TIES.n_seen * unseen)
    with pytest.raises(AssertionError, match="misses in 1000 runs"):
        check_rate(int(fooled.sum()), 1_000, 0.05)


def test_the_interval_on_examples_kept_back_misses_where_the_vectorised_one_does() -> None:
    rng = np.random.default_rng(23)
    values = (rng.random((40, 60)) < 0.35).astype(np.float64)
    at_once = missed(values, np.full(40, 0.6), 0.05, 10**9, 60)
    for row, is_missed in zip(values, at_once, strict=True):
        found = mean_of_new(row, row, 60, 0.05)
        assert found.value == pytest.approx(row.mean())
        if found.upper < 0.6:  # rounded outwards, so it may still hold the mean
            assert is_missed
    assert at_once.any()


def test_a_pair_that_could_not_be_measured_widens_the_interval() -> None:
    known = np.array([1.0, 0.0] * 20)
    low, high = (np.append(np.full(10, end), known) for end in (0.0, 1.0))
    sure, vague = mean_of_new(known, known, 50, 0.05), mean_of_new(low, high, 50, 0.05)
    assert sure.value == vague.value == 0.5
    assert vague.upper - vague.lower > sure.upper - sure.lower
