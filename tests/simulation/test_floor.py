"""The information floor: hand-computed cases, and that no simple rule passes below it."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from numpy.typing import ArrayLike

from bestarm_agent.simulation.floor import information_floor
from bestarm_agent.simulation.score_matrices import ScoreMatrix


def matrix(rows: ArrayLike, costs: list[float] | None = None) -> ScoreMatrix:
    scores = np.array(rows, dtype=np.float32)
    names = tuple(f"c{i}" for i in range(len(scores)))
    return ScoreMatrix(scores, names, None if costs is None else np.array(costs))


def best_against(wins: int, losses: int, n: int) -> list[list[int]]:
    """Two rows of n examples: the first wins some, loses some, and both are right on the rest."""
    ties = [1] * (n - wins - losses)
    return [[1] * wins + [0] * losses + ties, [0] * wins + [1] * losses + ties]


def test_two_candidates_by_hand() -> None:
    # w = 30.5 / 101, l = 10.5 / 101, KL = (w - l) ln(w / l) = .2111; n0 = 2.650 / .2111 = 12.55;
    # without replacement 12.55 / (1 + 12.55 / 100) = 11.15 examples, of both candidates
    kl = (20 / 101) * log(30.5 / 10.5)
    n0 = 0.9 * log(19) / kl
    assert n0 == pytest.approx(12.55, abs=0.01)
    floor = information_floor(matrix(best_against(30, 10, 100)))
    assert floor == pytest.approx(2 * n0 / (1 + n0 / 100) / 200)


def test_the_best_needs_as_many_as_its_closest_rival_and_the_others_their_own() -> None:
    close, far = best_against(30, 10, 100), best_against(80, 0, 100)
    rows = [close[0], close[1], [0] * 100]
    alone = 100 * information_floor(matrix(close))  # examples of each of the two
    shares = np.array([sum(close[0]) + 0.5, 0.5]) / 101
    n0 = 0.9 * log(19) / ((shares[0] - shares[1]) * log(shares[0] / shares[1]))
    hopeless = max(1.0, n0 / (1 + n0 / 100))
    assert information_floor(matrix(rows)) == pytest.approx((2 * alone + hopeless) / 300)
    assert information_floor(matrix(far)) < information_floor(matrix(close))


def test_graded_scores_by_hand() -> None:
    # differences .2, 0, .2, 0: mean .1, variance .01, KL = 2 * .01 / .01 = 2, n0 = 1.325;
    # of four examples 1.325 / (1 + 1.325 / 4) = .995, at least 1
    rows = [[0.7, 0.5, 0.9, 0.5], [0.5, 0.5, 0.7, 0.5]]
    assert information_floor(matrix(rows)) == pytest.approx(2 / 8, rel=1e-5)


def test_candidates_equal_to_the_best_and_a_constant_lead_count_least() -> None:
    assert information_floor(matrix([[1, 0, 1], [0, 1, 1]])) == pytest.approx(1 / 6)
    assert information_floor(matrix([[0.75, 0.75], [0.5, 0.5]])) == pytest.approx(2 / 4)


def test_money_counts_instead_of_calls() -> None:
    rows = best_against(30, 10, 100)
    n = 100 * information_floor(matrix(rows))
    dear = information_floor(matrix([*rows, [0] * 100], [1.0, 1.0, 8.0]), per_cost=True)
    hopeless = 300 * information_floor(matrix([*rows, [0] * 100])) - 2 * n
    assert dear == pytest.approx((2 * n + 8 * hopeless) / 1000)


def test_missing_scores_are_left_out_of_their_pair() -> None:
    full = best_against(30, 10, 100)
    holes = [row + [np.nan] * 20 for row in full]
    assert information_floor(matrix(holes)) == pytest.approx(
        information_floor(matrix(full)) * 100 / 120
    )


def test_half_of_the_floor_is_not_enough_for_the_more_frequent_winner() -> None:
    """Seeded: with half of the floor the best of two is named in under 95 % of the shuffles."""
    rows = np.array(best_against(60, 40, 400))
    n = round(400 * information_floor(matrix(rows)) / 2)
    rng = np.random.default_rng(5)
    leads = (rows[0] - rows[1])[np.argsort(rng.random((4_000, 400)), axis=1)][:, :n].sum(axis=1)
    right = (leads > 0).mean() + (leads == 0).mean() / 2
    # standard error at most .005 (4,000 shuffles): four of them below .95
    assert right < 0.93
