"""Past candidates' scores as control variate: levels at the boundary, and what they are worth.

Worlds: rows of 0 or 1 on 120 examples in a random order. The limit of a count of errors is that
which chance passes with probability 1/1000 at the level of .05; an order that knows what is
predicted must pass it, so the worlds would show it.
"""

from __future__ import annotations

from itertools import pairwise
from math import exp

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom

from bestarm_agent.stats.arrays import FloatArray, IntArray
from bestarm_agent.stats.betting import LowerBound, MeanInterval, early_bets
from bestarm_agent.stats.control import Controls
from bestarm_agent.stats.history import Factors

WORLDS, SIZE, ALPHA = 300, 120, 0.05
LIMIT = int(binom.ppf(0.999, WORLDS, ALPHA))


def errors(predicted: str, share: float, *, is_sorted: bool = False) -> int:
    """Count the worlds in which a lower bound ever passes the mean, after half of the examples."""
    rng, wrong, bets = np.random.default_rng(3), 0, early_bets(SIZE, ALPHA)
    for _ in range(WORLDS):
        scores = (rng.permutation(SIZE) < share * SIZE).astype(float)
        right, noise = 2.0 * scores - 1.0, rng.normal(0.0, 1.0, SIZE)
        offset = {"right": right, "inverted": -right, "noise": noise}[predicted] * 3.0
        order = rng.permutation(SIZE)
        if is_sorted:
            order = order[np.argsort(offset[order], kind="stable")]
        seen = order[: SIZE // 2]
        controls = Controls(Factors(offset, rng.normal(0.0, 1.0, (SIZE, 1))))
        values = scores[seen]
        bound = LowerBound(ALPHA, bets, SIZE)
        bound.extend(values, controls.next(0, seen, values, values)[[0, 2]])
        wrong += bound.lower > scores.mean()
    return wrong


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("predicted", ["right", "inverted", "noise"])
def test_bounds_hold_whatever_is_predicted(predicted: str, share: float) -> None:
    assert errors(predicted, share) <= LIMIT


def test_an_order_that_knows_what_is_predicted_breaks_the_bounds() -> None:
    assert errors("inverted", 0.5, is_sorted=True) > LIMIT


def world(rng: np.random.Generator, size: int) -> tuple[FloatArray, Factors]:
    """Return a row's scores, and what a history that predicts them well has learned."""
    offset = rng.normal(0.0, 3.0, size)
    loadings = rng.uniform(0.5, 1.5, (size, 1))
    return (rng.random(size) < expit(offset + loadings[:, 0])).astype(float), Factors(
        offset, loadings
    )


def width(values: FloatArray, seen: IntArray, factors: Factors | None) -> float:
    interval, scores = MeanInterval(len(values), 0.002), values[seen]
    control = None if factors is None else Controls(factors).next(0, seen, scores, scores)
    interval.extend(scores, scores, control)
    return interval.upper - interval.lower


@pytest.mark.parametrize("n_seen", [60, 240])
def test_a_good_history_narrows_intervals_and_one_of_other_examples_costs_little(
    n_seen: int,
) -> None:
    rng = np.random.default_rng(4)
    widths = []
    for _ in range(30):
        values, factors = world(rng, 1000)
        places = rng.permutation(1000)
        other = Factors(factors.offset[places], factors.loadings[places])
        seen = rng.permutation(1000)[:n_seen]
        widths.append([width(values, seen, told) for told in (None, factors, other)])
    plain, good, useless = np.mean(widths, axis=0)
    assert good < (0.95 if n_seen == 60 else 0.8) * plain
    assert useless < plain / 0.98


def test_what_is_taken_is_as_by_hand() -> None:
    chance = [1.0 / (1.0 + exp(-offset)) for offset in (1.0, -2.0, 0.5, 0.0)]
    controls = Controls(Factors(np.array([1.0, -2.0, 0.5, 0.0]), np.zeros((4, 0))))
    seen, scores = np.array([2, 0]), np.array([1.0, 0.0])
    first, second = controls.next(0, seen, scores, scores).T

    # Before anything is seen the slope is not relied on. Then it is that of the first score, .5
    # above its own mean of .5, beside the prior of .25 / .5.
    taken = chance[2] - sum(chance) / 4
    slope = (0.25 + 0.5 * taken) / (0.5 + taken**2) / 21
    mean = (chance[0] + chance[1] + chance[3]) / 3
    assert first == pytest.approx([0.0, 0.0, 0.0], abs=1e-12)
    ends = chance[0] - mean, chance[1] - mean, chance[0] - mean
    assert second == pytest.approx([slope * end for end in ends], rel=1e-5)


def test_a_row_is_placed_by_its_scores_after_four_and_half_as_many_again() -> None:
    """What is taken from the places 4 and 5, and from 6 on, is predicted by four and six scores."""
    rng = np.random.default_rng(6)
    factors = Factors(np.zeros(20), rng.normal(0.0, 2.0, (20, 2)))
    seen, scores = rng.permutation(20)[:8], np.array([1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0])
    taken = Controls(factors).next(0, seen, scores, scores)[0]
    product, square = 0.25, 0.5  # of the slope
    for place, score in enumerate(scores.tolist()):
        n_fitted = 0 if place < 4 else 4 if place < 6 else 6
        position = factors.locate(seen[:n_fitted], scores[:n_fitted])
        expected = factors.predict(position).astype(float)
        off = expected[seen[place]] - np.delete(expected, seen[:place]).mean()
        slope = min(1.0, max(0.0, product / square)) * place / (place + 20)
        assert taken[place] == pytest.approx(slope * off, abs=1e-4)
        product += (score - (scores[:place].sum() + 0.5) / (place + 1)) * off
        square += off**2
    assert np.abs(taken[4:]).min() > 0.002


def test_blocks_change_nothing_and_ends_hold_what_is_taken() -> None:
    rng = np.random.default_rng(5)
    values, factors = world(rng, 200)
    order, n_cuts = rng.permutation(200), [0, 1, 5, 6, 40, 200]
    low = values[order]
    high = np.where(rng.random(200) < 0.1, 1.0, low)
    controls, at_once = Controls(factors), Controls(factors).next(0, order, low, high)
    blocks = [controls.next(7, order[a:b], low[a:b], high[a:b]) for a, b in pairwise(n_cuts)]
    assert np.array_equal(np.concatenate(blocks, axis=1), at_once)
    taken, least, most = at_once
    assert (least <= taken).all()
    assert (taken <= most).all()
    one, many = MeanInterval(300, 0.05), MeanInterval(300, 0.05)
    one.extend(low, high, at_once)
    for place in range(200):
        now = slice(place, place + 1)
        many.extend(low[now], high[now], at_once[:, now])
    assert (one.lower, one.upper) == (many.lower, many.upper)
