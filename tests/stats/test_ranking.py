from __future__ import annotations

from math import inf, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.stats.ranking import (
    aggregate_regret,
    hardness,
    isotonic_crossing,
    last_crossing,
    mcnemar_p,
    ndcg,
    not_significantly_worse,
    simple_regret,
    top_k_precision,
    within_gap,
)

MEANS = [0.40, 0.75, 0.80, 0.795, 0.80]


@pytest.mark.parametrize(
    ("gap", "marked"),
    [
        (0.0, {2, 4}),
        (0.001, {2, 4}),
        (0.01, {2, 3, 4}),
        (0.05, {1, 2, 3, 4}),
        (1.0, {0, 1, 2, 3, 4}),
    ],
)
def test_within_gap_marks_the_near_best(gap: float, marked: set[int]) -> None:
    assert set(np.flatnonzero(within_gap(MEANS, gap))) == marked


def test_within_gap_refuses_a_negative_gap() -> None:
    with pytest.raises(ValueError, match=r"gap must be >= 0, got -0\.1"):
        within_gap(MEANS, -0.1)


def test_mcnemar_by_hand() -> None:
    # against row 0: row 1 loses 5 and wins 1: p = 2 (C(6,0) + C(6,1)) / 2^6 = 14/64
    #                row 2 loses 6 and wins 0: p = 2 / 2^6;  row 3 never differs
    reference = [1, 1, 1, 1, 1, 0, 1, 1]
    scores = np.array(
        [
            reference,
            [0, 0, 0, 0, 0, 1, 1, 1],
            [0, 0, 0, 0, 0, 0, 0, 1],
            reference,
        ]
    )
    assert mcnemar_p(scores, 0) == pytest.approx([1.0, 14 / 64, 2 / 64, 1.0])


def test_mcnemar_of_graded_scores_is_the_sign_test_over_common_examples() -> None:
    scores = np.array([[0.9, 0.8, 0.7, np.nan, 0.5], [0.1, 0.2, 0.3, 0.4, np.nan]])
    assert mcnemar_p(scores, 0)[1] == pytest.approx(2 / 2**3)


def test_not_significantly_worse_depends_on_the_level() -> None:
    scores = np.zeros((3, 40))
    scores[0] = 1.0
    scores[1, 4:] = 1.0  # loses 4 of 4: p = 2/16 = .125
    scores[2, 6:] = 1.0  # loses 6 of 6: p = 2/64 = .03125
    means = scores.mean(axis=1)
    assert list(not_significantly_worse(scores, means, 0.1)) == [True, True, False]
    assert list(not_significantly_worse(scores, means, 0.01)) == [True, True, True]
    with pytest.raises(ValueError, match=r"level must be in \(0, 1\), got 1"):
        not_significantly_worse(scores, means, 1)


def test_ndcg_by_hand() -> None:
    means = [0.9, 0.7, 0.5, 0.3]  # depth 3: gains 3, 2, 1, 0
    ideal = 3 + 2 / log2(3) + 1 / 2
    assert ndcg(means, [0, 1, 2, 3], depth=3) == pytest.approx(1.0)
    assert ndcg(means, [3, 0, 1], depth=3) == pytest.approx((3 / log2(3) + 2 / 2) / ideal)
    assert ndcg(means, [2], depth=3) == pytest.approx(1 / ideal)


def test_ndcg_is_one_for_either_order_of_a_tie() -> None:
    assert ndcg([0.5, 0.9, 0.9], [1, 2, 0]) == pytest.approx(1.0)
    assert ndcg([0.5, 0.9, 0.9], [2, 1, 0]) == pytest.approx(1.0)


def test_ndcg_refuses_depth_zero() -> None:
    with pytest.raises(ValueError, match="depth must be at least 1"):
        ndcg(MEANS, [0], depth=0)


def test_regrets_by_hand() -> None:
    assert simple_regret([0.2, 0.9, 0.6], 2) == pytest.approx(0.3)
    assert aggregate_regret([0.9, 0.7, 0.4, 0.1], [0, 1]) == pytest.approx(0.0)
    assert aggregate_regret([0.9, 0.7, 0.4, 0.1], [2, 3]) == pytest.approx((1.6 - 0.5) / 2)
    assert top_k_precision([0.9, 0.7, 0.4, 0.1], [0, 3]) == 0.5
    assert top_k_precision([0.9, 0.7, 0.7, 0.1], [0, 2]) == 1.0  # tied with the second best


@pytest.mark.parametrize("metric", [aggregate_regret, top_k_precision])
def test_a_chosen_set_must_be_one(metric: object) -> None:
    assert callable(metric)
    with pytest.raises(ValueError, match="at least one"):
        metric([0.1, 0.2], [])
    with pytest.raises(ValueError, match="distinct"):
        metric([0.1, 0.2], [1, 1])


def test_hardness() -> None:
    assert hardness([0.5, 0.7, 0.6]) == pytest.approx(1 / 0.2**2 + 1 / 0.1**2)
    assert hardness([0.7, 0.7, 0.6]) == inf
    assert hardness([0.3]) == 0.0


def test_crossings_by_hand() -> None:
    budgets = [0.1, 0.2, 0.3, 0.4, 0.5]
    assert last_crossing(budgets, [0.96, 0.94, 0.97, 0.94, 0.99]) == 0.5
    assert last_crossing(budgets, [0.95, 0.95, 0.95, 0.95, 0.95]) == 0.1
    assert last_crossing(budgets, [1.0, 1.0, 1.0, 1.0, 0.94]) is None
    # pooling .96 and .90 gives .93, .93; then .97: crosses at .2 + .1 * (.95 - .93) / (.97 - .93)
    assert isotonic_crossing(budgets, [0.96, 0.90, 0.97, 0.98, 0.99]) == pytest.approx(0.25)
    assert isotonic_crossing(budgets, [0.96, 0.97, 0.98, 0.99, 1.0]) == 0.1
    assert isotonic_crossing(budgets, [0.2, 0.3, 0.4, 0.5, 0.94]) is None
    assert isotonic_crossing(budgets, [1.0, 1.0, 1.0, 1.0, 0.70]) is None  # pools to .94


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_crossings_agree_on_rising_curves(values: list[float]) -> None:
    precision = sorted(values)
    budgets = [0.1 * (i + 1) for i in range(len(precision))]
    sharp, smooth = last_crossing(budgets, precision), isotonic_crossing(budgets, precision)
    assert (sharp is None) == (smooth is None)
    if sharp is not None and smooth is not None:
        assert sharp - 0.1 - 1e-9 <= smooth <= sharp + 1e-9
