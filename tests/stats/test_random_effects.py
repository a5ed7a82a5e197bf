"""Variance within and between examples: by hand, and over many drawn worlds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import f_oneway

from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.stats.random_effects import DrawSpread, DrawSums


def spread_of(scores: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> DrawSpread:
    sums = DrawSums()
    for row in scores.tolist():
        sums.push(row)
    found = sums.spread()
    assert found is not None
    return found


def test_by_hand() -> None:
    """Means 1/3 and 2/3: SSW = 4/3, MSW = 1/3; MSB = 3 * 1/18 = 1/6 < MSW."""
    found = spread_of(np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]))
    assert (found.n_examples, found.n_draws) == (2, 3)
    assert found.within == pytest.approx(math.sqrt(1 / 3))
    assert found.between == 0.0
    assert found.of_mean == pytest.approx(math.sqrt(1 / 18))
    assert found.share_if_drawn_once == 1.0, "draws say as much as examples that are all alike"


def test_draws_that_never_vary_are_wasted() -> None:
    found = spread_of(np.array([[1.0, 1.0], [0.0, 0.0]]))
    assert (found.within, found.of_mean) == (0.0, 0.0)
    assert found.between == pytest.approx(math.sqrt(0.5))
    assert found.share_if_drawn_once == 0.5


@pytest.mark.parametrize("rows", [[], [[1.0, 0.0]], [[1.0], [0.0]]])
def test_nothing_is_known_of_one_example_or_of_one_draw(rows: list[list[float]]) -> None:
    sums = DrawSums()
    for row in rows:
        sums.push(row)
    assert sums.spread() is None


def test_mean_squares_are_those_of_scipy() -> None:
    scores = KeyedRandom(3, "anova").at(0).random((30, 4)) + np.linspace(0, 1, 30)[:, None]
    found = spread_of(scores)
    ratio = (4 * found.between**2 + found.within**2) / found.within**2
    assert ratio == pytest.approx(f_oneway(*scores).statistic)


def test_estimates_are_unbiased_and_the_means_spread_is_right() -> None:
    """Chances p of right answers from Beta(2, 2): b^2 = 1/20, w^2 = E p (1 - p) = 1/5.

    The means over 2,000 worlds lie within 4.5 standard errors: wrong in 1 of 70,000 seeds each.
    """
    rng = KeyedRandom(1, "worlds").at(0)
    within, between, of_mean, errors = [], [], [], []
    for _ in range(2_000):
        chances = rng.beta(2, 2, size=20)
        scores = (rng.random((20, 5)) < chances[:, None]).astype(float)
        found = spread_of(scores)
        within.append(found.within**2)
        between.append(found.between**2)
        of_mean.append(found.of_mean**2)
        errors.append(scores.mean() - chances.mean())

    def near(values: list[float], truth: float, slack: float = 0.0) -> bool:
        off = abs(float(np.mean(values)) - truth)
        return off < 4.5 * float(np.std(values)) / math.sqrt(len(values)) + slack

    assert near(within, 0.2)
    assert near(between, 0.05, slack=1e-4)  # cut off at 0 in few worlds
    assert near([error**2 for error in errors], 0.2 / 100)
    assert near(of_mean, 0.2 / 100)
