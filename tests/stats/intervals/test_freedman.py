from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from bestarm_agent.stats.intervals.freedman import freedman, freedman_radius

RateCheck = Callable[[int, int, float], None]


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


def test_a_single_step_counts_as_one() -> None:
    # without variance exp(-3 e / (2 bound)) = alpha / 2 at either end
    low, high = freedman(0.5, 0.0, 1, 0.5, bound=0.1)
    radius = 0.1 * 2 / 3 * math.log(4)
    assert (float(low), float(high)) == pytest.approx((0.5 - radius, 0.5 + radius))


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
        freedman(0.5, 0.1, 10, alpha)


def test_nothing_seen_says_nothing_and_wrong_numbers_are_refused() -> None:
    low, high = freedman(0.4, 0.1, 0, 0.05)
    assert (float(low), float(high)) == (0.0, 1.0)
    with pytest.raises(ValueError, match="n must be >= 0, got"):
        freedman(0.5, 0.1, -1, 0.1)
