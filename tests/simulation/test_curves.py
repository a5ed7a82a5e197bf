from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from bestarm_agent.simulation.curves import Truth, describe, summarise
from bestarm_agent.simulation.replay import Answer, Replay
from bestarm_agent.simulation.score_matrices import ScoreMatrix


def three_candidates(costs: bool = False) -> ScoreMatrix:
    scores = np.array([[0.9] * 4, [0.895] * 4, [0.5] * 4], dtype=np.float32)
    return ScoreMatrix(scores, ("a", "b", "c"), np.array([1.0, 2.0, 3.0]) if costs else None)


def answer(budget: int, ranking: tuple[int, ...], highest: int | None = None) -> Answer:
    top = ranking[0] if highest is None else highest
    return Answer(
        budget, budget, ranking[0], top, ranking, cost=2.0 * budget, seconds=0.0, most_pulls=1
    )


def test_metrics_of_single_answers() -> None:
    metrics = Truth.of(three_candidates(costs=True), top_k=2, gaps=(0.01,)).metrics
    right, near, wrong = answer(3, (0, 1, 2)), answer(3, (1, 2, 0)), answer(3, (2, 0, 1), highest=0)
    assert [metrics["top1"](a) for a in (right, near, wrong)] == [1, 0, 0]
    assert [metrics["top1_eps0.01"](a) for a in (right, near, wrong)] == [1, 1, 0]
    assert [metrics["top1_p0.1"](a) for a in (right, near, wrong)] == [1, 1, 1]  # 4 examples
    assert [metrics["highest_estimate_top1"](a) for a in (right, near, wrong)] == [1, 0, 1]
    assert metrics["regret"](near) == pytest.approx(0.005)
    assert metrics["aggregate_regret"](near) == pytest.approx((0.9 + 0.895 - 0.895 - 0.5) / 2)
    assert metrics["top_k_precision"](near) == 0.5
    assert metrics["ndcg10"](right) == pytest.approx(1.0)
    assert metrics["cost"](right) == 6.0


def test_sets_and_costs_are_measured_where_they_exist() -> None:
    metrics = Truth.of(three_candidates()).metrics
    assert "cost" not in metrics
    assert "aggregate_regret" not in metrics


def test_averages_errors_and_crossings_by_hand() -> None:
    truth = Truth.of(three_candidates())
    right, wrong = (0, 1, 2), (2, 1, 0)
    # of four seeds, 2 are right at 3 pairs, 3 at 6 and all at 9 and at 12
    runs = [
        (right, right, right, right),
        (right, right, right, right),
        (wrong, right, right, right),
        (wrong, wrong, right, right),
    ]
    replays = [
        Replay(tuple(answer(b, r) for b, r in zip((3, 6, 9, 12), run, strict=True)), 12, 0.6)
        for run in runs
    ]
    curve = summarise(truth, replays)
    assert curve.budget_fraction == (0.25, 0.5, 0.75, 1.0)
    assert list(curve.mean["top1"]) == [0.5, 0.75, 1.0, 1.0]
    half = sqrt(4 * 0.25 / 3) / sqrt(4)
    assert list(curve.se["top1"]) == pytest.approx([half, sqrt(0.75 / 3) / 2, 0.0, 0.0])
    assert curve.budget_to_95["top1"] == 0.75
    assert curve.budget_to_95_isotonic["top1"] == pytest.approx(0.5 + 0.25 * 0.2 / 0.25)
    low, high = curve.budget_to_95_range["top1"]
    assert low is not None
    assert high is not None
    assert 0.25 <= low <= 0.7 <= high <= 0.75
    assert curve.seconds_per_decision == pytest.approx(0.05)


def test_a_target_that_is_missed_is_null() -> None:
    curve = summarise(Truth.of(three_candidates()), [Replay((answer(3, (2, 1, 0)),), 3, 0.0)])
    plain = curve.as_dict()
    assert plain["budget_to_95"] is None
    assert plain["budget_to_95_isotonic"] is None
    assert plain["budget_to_95_range"] == [None, None]
    assert plain["top1_se"] == [0.0]  # one seed


def test_the_matrix_is_described() -> None:
    found = describe(Truth.of(three_candidates(costs=True)))
    assert found["shape"] == [3, 4]
    assert found["best"] == "a"
    assert found["gap"] == pytest.approx(0.005, abs=1e-6)
    assert found["full_cost"] == 24.0
    assert found["h1"] == pytest.approx(1 / 0.005**2 + 1 / 0.4**2, rel=1e-4)
    tied = ScoreMatrix(np.ones((2, 2), dtype=np.float32), ("a", "b"))
    assert describe(Truth.of(tied))["h1"] is None
