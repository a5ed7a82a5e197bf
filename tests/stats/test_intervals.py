from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from bestarm_agent.stats.intervals import (
    Bounds,
    bernstein,
    empirical_bernstein,
    freedman,
    freedman_radius,
    hoeffding,
    level_at,
)

RateCheck = Callable[[int, int, float], None]
KAPPA = 7 / 3 + 3 / math.sqrt(2)


def test_hoeffding_by_hand() -> None:
    low, high = hoeffding(0.5, 200, 0.05)
    assert high - 0.5 == pytest.approx(math.sqrt(math.log(40) / 400)) == pytest.approx(0.5 - low)


@pytest.mark.parametrize(("n", "shrinkage"), [(20, 1 - 19 / 100), (80, 0.2 * (1 + 1 / 80))])
def test_serfling_forms_by_hand(n: int, shrinkage: float) -> None:
    high = hoeffding(0.5, n, 0.1, size=100).upper
    assert high - 0.5 == pytest.approx(math.sqrt(shrinkage * math.log(20) / (2 * n)))
    low = empirical_bernstein(0.9, 0.1, n, 0.1, size=100).lower
    log = math.log(100)
    radius = 0.1 * math.sqrt(2 * shrinkage * log / n) + KAPPA * log / n
    assert low == pytest.approx(max(0, 0.9 - radius))


@pytest.mark.parametrize(
    ("n", "shrinkage", "kappa"),
    [
        (40, 1 - 39 / 100, 4 / 3 + math.sqrt(0.4 / (100 / 39 - 1))),
        (80, 0.2 * (1 + 1 / 80), 4 / 3 + math.sqrt((100 / 81 - 1) * 0.2)),
    ],
)
def test_bernstein_serfling_by_hand(n: int, shrinkage: float, kappa: float) -> None:
    log = math.log(40)
    radius = 0.2 * math.sqrt(2 * shrinkage * log / n) + kappa * log / n
    low, high = bernstein(0.5, 0.2, n, 0.1, size=100)
    assert high - 0.5 == pytest.approx(radius) == pytest.approx(0.5 - low)


def test_maurer_and_pontil_by_hand() -> None:
    values = np.array([0.1, 0.2, 0.2, 0.4, 0.1, 0.3] * 100)
    log, n = math.log(80), 600
    radius = math.sqrt(2 * values.var(ddof=1) * log / n) + 7 * log / (3 * (n - 1))
    bounds = empirical_bernstein(values.mean(), values.std(), n, 0.05)
    assert bounds.upper == pytest.approx(values.mean() + radius)


def test_freedman_radius_solves_its_equation() -> None:
    for variance, bound, log in [(3.0, 1.0, 2.0), (0.0, 2.0, 5.0), (100.0, 0.5, 0.1)]:
        x = float(freedman_radius(variance, bound, log))
        assert x**2 / (2 * (variance + bound * x / 3)) == pytest.approx(log)


def test_freedman_is_the_theorem_of_pulse() -> None:
    # 2 exp(-e^2 / (2 (v / (K n^2) + 2 e / (3 K)))) = alpha at the end of the interval.
    v, k, n, alpha = 30.0, 400, 50, 0.05
    e = float(freedman(0.5, v / n**2, k, alpha, bound=2.0).upper) - 0.5
    exponent = e**2 / (2 * (v / (k * n**2) + 2 * e / (3 * k)))
    assert 2 * math.exp(-exponent) == pytest.approx(alpha)


def test_freedman_at_all_variances_shares_out_its_level() -> None:
    # A total variance of 10 is in (8, 16], the fifth of the intervals: level alpha / (5 * 6).
    radius = freedman_radius(16.0, 1.0, math.log(2 * 30 / 0.05)) / 40
    assert freedman(0.5, 0.25, 40, 0.05, floor=1.0).upper == pytest.approx(min(1, 0.5 + radius))
    shares = [1 / ((k + 1) * (k + 2)) for k in range(10_000)]
    assert sum(shares) == pytest.approx(1, abs=1e-3)
    assert sum(level_at(np.arange(1, 10_000), 0.3)) == pytest.approx(0.3, abs=1e-3)


ALL: dict[str, Callable[..., Bounds]] = {
    "hoeffding": lambda mean, std, n, alpha, **size: hoeffding(mean, n, alpha, **size),
    "bernstein": bernstein,
    "empirical_bernstein": empirical_bernstein,
}


@pytest.mark.parametrize("name", list(ALL))
def test_nothing_seen_and_everything_seen(name: str) -> None:
    n = np.array([0, 1, 50, 99, 100])
    low, high = ALL[name](0.4, 0.2, n, 0.05, size=100)
    assert (low[0], high[0]) == (0.0, 1.0)
    assert low[-1] == high[-1] == 0.4
    assert (np.diff(high - low) <= 0).all()
    low, high = ALL[name](0.4, 0.2, 0, 0.05)
    assert (float(low), float(high)) == (0.0, 1.0)


@pytest.mark.parametrize("name", list(ALL))
def test_shapes_broadcast(name: str) -> None:
    low, high = ALL[name](np.full((3, 1), 0.5), 0.1, np.array([10, 20]), 0.05)
    assert low.shape == high.shape == (3, 2)
    assert (low[:, 1] >= low[:, 0]).all()


def test_variance_pays_off() -> None:
    flat = empirical_bernstein(0.5, 0.02, 2000, 0.05)
    assert flat.upper - flat.lower < 0.5 * np.subtract(*hoeffding(0.5, 2000, 0.05)[::-1])
    known, guessed = bernstein(0.5, 0.1, 200, 0.05), empirical_bernstein(0.5, 0.1, 200, 0.05)
    assert known.upper < guessed.upper


@pytest.mark.coverage
@pytest.mark.parametrize("share", [0.5, 0.04])
@pytest.mark.parametrize("n", [15, 60, 90])
@pytest.mark.parametrize("name", list(ALL))
def test_fixed_time_coverage(name: str, n: int, share: float, check_rate: RateCheck) -> None:
    # 4,000 samples of n from a population of 100 two-point values, and with replacement, at .2.
    rng = np.random.default_rng(0)
    population = (np.arange(100) < 100 * share) * 0.9
    mean, std = population.mean(), population.std()
    without = rng.permuted(np.tile(population, (4000, 1)), axis=1)[:, :n]
    for draws, size in ((without, {"size": 100}), (rng.choice(population, (4000, n)), {})):
        spread: NDArray[np.float64] = draws.std(axis=1)
        if name == "bernstein":
            spread = np.full(4000, std)
        low, high = ALL[name](draws.mean(axis=1), spread, n, 0.2, **size)
        missed = (low > mean + 1e-9) | (high < mean - 1e-9)
        check_rate(int(missed.sum()), 4000, 0.2)


@pytest.mark.coverage
@pytest.mark.parametrize("name", ["hoeffding", "empirical_bernstein"])
def test_union_over_time(name: str, check_rate: RateCheck) -> None:
    # 2,000 runs over all n = 1..99 of a population of 100 at alpha = .5; a miss at any n counts.
    rng = np.random.default_rng(1)
    values = rng.permuted(np.tile((np.arange(100) < 30) * 1.0, (2000, 1)), axis=1)[:, :99]
    n = np.arange(1, 100)
    means = np.cumsum(values, axis=1) / n
    low, high = ALL[name](means, np.sqrt(means - means**2), n, level_at(n, 0.5), size=100)
    missed = (low > 0.3 + 1e-9) | (high < 0.3 - 1e-9)
    check_rate(int(missed.any(axis=1).sum()), 2000, 0.5)


@pytest.mark.coverage
def test_freedman_for_a_martingale_that_chooses_its_variance(check_rate: RateCheck) -> None:
    # 2,000 runs of 150 steps at alpha = .2; the next spread depends on how the sum stands, and a
    # miss at any time counts.
    rng = np.random.default_rng(2)
    total, variance = np.zeros(2000), np.zeros(2000)
    missed = np.zeros(2000, dtype=bool)
    for t in range(1, 151):
        spread = np.where(total > 0, 0.2, 0.9)
        total += spread * rng.choice([-1.0, 1.0], 2000)
        variance += spread**2
        low, high = freedman(0.5 + total / t, variance / t, t, 0.2, bound=1.0, floor=1.0)
        missed |= (low > 0.5) | (high < 0.5)
    check_rate(int(missed.sum()), 2000, 0.2)


@pytest.mark.coverage
def test_freedman_at_one_time(check_rate: RateCheck) -> None:
    # 20,000 sums of 60 skewed steps (within 1 of their mean, variance .09) at alpha = .2.
    rng = np.random.default_rng(3)
    steps = (rng.random((20_000, 60)) < 0.1) * 1.0
    low, high = freedman(steps.mean(axis=1), 0.09, 60, 0.2)
    check_rate(int(((low > 0.1) | (high < 0.1)).sum()), 20_000, 0.2)


@pytest.mark.parametrize("alpha", [0.0, 1.0, math.nan])
def test_alpha_is_checked(alpha: float) -> None:
    with pytest.raises(ValueError, match=r"alpha must be in \(0, 1\)"):
        hoeffding(0.5, 10, alpha)
    with pytest.raises(ValueError, match=r"alpha must be in \(0, 1\)"):
        freedman(0.5, 0.1, 10, alpha)


def test_numbers_of_draws_are_checked() -> None:
    with pytest.raises(ValueError, match="n must be >= 0, got"):
        hoeffding(0.5, -1, 0.1)
    with pytest.raises(ValueError, match="n must be >= 0 and at most size=10, got"):
        empirical_bernstein(0.5, 0.1, 11, 0.1, size=10)
    with pytest.raises(ValueError, match="floor must be > 0, got 0"):
        freedman(0.5, 0.1, 10, 0.1, floor=0.0)
