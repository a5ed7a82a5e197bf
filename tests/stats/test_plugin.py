from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from bestarm_agent.stats.intervals import hoeffding
from bestarm_agent.stats.plugin import (
    EmpiricalBernsteinSequences,
    HoeffdingSequences,
    PlugInSequences,
)

RateCheck = Callable[[int, int, float], None]
BOTH: list[type[PlugInSequences]] = [HoeffdingSequences, EmpiricalBernsteinSequences]


def closed_form(
    kind: type[PlugInSequences], x: NDArray[np.float64], alpha: float, size: int | None
) -> tuple[float, float]:
    """The theorems' formulas over all draws at once."""
    t, log = np.arange(1, len(x) + 1), math.log(2 / alpha)
    growth = np.ones(len(x)) if size is None else size / (size - t + 1)
    past = np.zeros(len(x)) if size is None else (np.cumsum(x) - x) / (size - t + 1)
    if kind is HoeffdingSequences:
        weight = np.minimum(1, np.sqrt(8 * log / (t * np.log(t + 1))))
        penalty = weight**2 / 8
    else:
        mean = (0.5 + np.cumsum(x)) / (t + 1)
        variance = (0.25 + np.cumsum((x - mean) ** 2)) / (t + 1)
        mean, variance = np.r_[0.5, mean[:-1]], np.r_[0.25, variance[:-1]]
        weight = np.minimum(0.5, np.sqrt(2 * log / (variance * t * np.log(t + 1))))
        penalty = 4 * (x - mean) ** 2 * (-np.log(1 - weight) - weight) / 4
    center = np.cumsum(weight * (x + past)) / np.cumsum(weight * growth)
    radius = (log + np.cumsum(penalty)) / np.cumsum(weight * growth)
    return float((center - radius).max()), float((center + radius).min())


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("size", [None, 400])
def test_one_by_one_is_the_closed_form(kind: type[PlugInSequences], size: int | None) -> None:
    x = np.random.default_rng(0).beta(4, 3, 120)
    sequences = kind(2, 0.05, size)
    for value in x.tolist():
        sequences.push(1, value)
    low, high = closed_form(kind, x, 0.05, size)
    assert sequences.lower[1] == pytest.approx(low)
    assert sequences.upper[1] == pytest.approx(high)
    assert (sequences.lower[0], sequences.upper[0]) == (0.0, 1.0)


@pytest.mark.parametrize("kind", BOTH)
def test_rows_may_move_together_or_alone(kind: type[PlugInSequences]) -> None:
    x = np.random.default_rng(1).random((3, 20))
    together, alone = kind(3, 0.1, 30), kind(3, 0.1, 30)
    for t in range(20):
        together.push(slice(None), x[:, t])
    for row in (2, 0, 1):
        for t in range(20):
            alone.push(np.array([row]), x[row, t : t + 1])
    np.testing.assert_allclose(together.lower, alone.lower)
    np.testing.assert_allclose(together.upper, alone.upper)


@pytest.mark.parametrize("kind", BOTH)
def test_all_seen_leaves_no_width(kind: type[PlugInSequences]) -> None:
    x = np.random.default_rng(2).random(50)
    sequences = kind(1, 0.05, 50)
    for value in x.tolist():
        sequences.push(0, value)
    assert sequences.lower[0] == pytest.approx(x.mean())
    assert sequences.upper[0] == pytest.approx(x.mean())


def test_low_variance_pays_off() -> None:
    x = np.random.default_rng(3).beta(30, 20, 800)
    flat, wide = (kind(1, 0.05, 1000) for kind in BOTH[::-1])
    for value in x.tolist():
        flat.push(0, value)
        wide.push(0, value)
    assert flat.upper[0] - flat.lower[0] < 0.5 * (wide.upper[0] - wide.lower[0])
    once = hoeffding(x.mean(), 800, 0.05)
    assert flat.upper[0] - flat.lower[0] < once.upper - once.lower


@pytest.mark.coverage
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("size", [None, 100])
@pytest.mark.parametrize("share", [0.5, 0.03])
def test_the_mean_is_ever_missed_at_most_at_level_alpha(
    kind: type[PlugInSequences], size: int | None, share: float, check_rate: RateCheck
) -> None:
    # 4,000 runs of 99 draws at alpha = .5 (these bounds are far from tight); any time counts.
    rng = np.random.default_rng(4)
    population = (np.arange(100) < 100 * share) * 1.0
    if size is None:
        values = rng.choice(population, (4000, 99))
    else:
        values = rng.permuted(np.tile(population, (4000, 1)), axis=1)[:, :99]
    sequences = kind(4000, 0.5, size)
    for t in range(99):
        sequences.push(slice(None), values[:, t])
    missed = (sequences.lower > share + 1e-9) | (sequences.upper < share - 1e-9)
    check_rate(int(missed.sum()), 4000, 0.5)


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match=r"alpha must be in \(0, 1\), got 1"):
        HoeffdingSequences(1, 1.0)
    with pytest.raises(ValueError, match="size must be >= 1, got 0"):
        HoeffdingSequences(1, 0.1, 0)
    sequences = EmpiricalBernsteinSequences(2, 0.1, 1)
    with pytest.raises(ValueError, match=r"values must be in \[0, 1\]"):
        sequences.push(slice(None), [0.5, math.nan])
    sequences.push(0, 0.5)
    with pytest.raises(ValueError, match="all 1 values of a row"):
        sequences.push(slice(None), [0.5, 0.5])
    assert sequences.n.tolist() == [1, 0]
