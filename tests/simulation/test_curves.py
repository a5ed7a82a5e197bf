from __future__ import annotations

from collections.abc import Sequence
from math import inf, log2, sqrt
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.errors import ConfigError
from bestarm_agent.simulation.curves import (
    TOP1,
    Curve,
    check_figure_path,
    describe,
    draw_study,
    hardness,
    isotonic_crossing,
    ndcg,
    summarise,
)
from bestarm_agent.simulation.replay import Replay, ReplayAnswer
from bestarm_agent.simulation.score_matrices import ScoreMatrix

MATRIX = ScoreMatrix(
    np.array([[0.9] * 4, [0.895] * 4, [0.5] * 4], dtype=np.float32), ("a", "b", "c")
)
RIGHT, NEAR, WRONG = (0, 1, 2), (1, 2, 0), (2, 1, 0)  # rankings


def replay_of(rankings: Sequence[tuple[int, ...]]) -> Replay:
    """Answers at 3, 6, 9, ... pairs."""
    answers = [ReplayAnswer(3 * i, 3 * i, one[0], one) for i, one in enumerate(rankings, start=1)]
    return Replay(tuple(answers), pulls=12, cpu_seconds=0.6)


def test_metrics_of_single_answers() -> None:
    mean = summarise(MATRIX, [replay_of([RIGHT, NEAR, WRONG])]).mean
    assert list(mean["top1"]) == [1, 0, 0]
    assert list(mean["top1_eps0.001"]) == [1, 0, 0]
    assert list(mean["top1_eps0.01"]) == [1, 1, 0]
    assert list(mean["regret"]) == pytest.approx([0, 0.005, 0.4])
    assert mean["ndcg10"][0] == pytest.approx(1.0)


def test_averages_errors_and_crossings_by_hand() -> None:
    # of four seeds, 2 are right at 3 pairs, 3 at 6 and all at 9 and at 12
    runs = [[RIGHT] * 4, [RIGHT] * 4, [WRONG, RIGHT, RIGHT, RIGHT], [WRONG, WRONG, RIGHT, RIGHT]]
    curve = summarise(MATRIX, [replay_of(run) for run in runs])
    assert curve.budget_fraction == (0.25, 0.5, 0.75, 1.0)
    assert list(curve.mean["top1"]) == [0.5, 0.75, 1.0, 1.0]
    half = sqrt(4 * 0.25 / 3) / sqrt(4)
    assert list(curve.se["top1"]) == pytest.approx([half, sqrt(0.75 / 3) / 2, 0.0, 0.0])
    assert curve.budget_to_95["top1"] == pytest.approx(0.5 + 0.25 * 0.2 / 0.25)
    low, high = curve.budget_to_95_range["top1"]
    assert low is not None
    assert high is not None
    assert 0.25 <= low <= 0.7 <= high <= 0.75
    assert curve.seconds_per_decision == pytest.approx(0.05)


def test_a_target_that_is_missed_is_null() -> None:
    plain = summarise(MATRIX, [replay_of([WRONG])]).as_dict()
    assert plain["budget_to_95"] is None
    assert plain["budget_to_95_range"] == [None, None]
    assert plain["top1_se"] == [0.0]  # one seed


def test_the_matrix_is_described() -> None:
    found = describe(MATRIX)
    assert found["shape"] == [3, 4]
    assert found["best"] == "a"
    assert found["gap"] == pytest.approx(0.005, abs=1e-6)
    assert found["h1"] == pytest.approx(1 / 0.005**2 + 1 / 0.4**2, rel=1e-4)
    tied = ScoreMatrix(np.ones((2, 2), dtype=np.float32), ("a", "b"))
    assert describe(tied)["h1"] is None


def test_ndcg_by_hand() -> None:
    means = np.array([0.9, 0.7, 0.5, 0.3])  # depth 3: gains 3, 2, 1, 0
    ideal = 3 + 2 / log2(3) + 1 / 2
    assert ndcg(means, [0, 1, 2, 3], depth=3) == pytest.approx(1.0)
    assert ndcg(means, [3, 0, 1], depth=3) == pytest.approx((3 / log2(3) + 2 / 2) / ideal)
    assert ndcg(means, [2], depth=3) == pytest.approx(1 / ideal)


@pytest.mark.parametrize("ranking", [[1, 2, 0], [2, 1, 0]])
def test_ndcg_is_one_for_either_order_of_a_tie(ranking: list[int]) -> None:
    assert ndcg(np.array([0.5, 0.9, 0.9]), ranking) == pytest.approx(1.0)


def test_hardness() -> None:
    assert hardness(np.array([0.5, 0.7, 0.6])) == pytest.approx(1 / 0.2**2 + 1 / 0.1**2)
    assert hardness(np.array([0.7, 0.7, 0.6])) == inf
    assert hardness(np.array([0.3])) == 0.0


@pytest.mark.parametrize(
    ("precision", "crossing"),
    [
        # pooling .96 and .90 gives .93, .93; then .97: crosses at .2 + .1 * (.95 - .93) / .04
        ([0.96, 0.90, 0.97, 0.98, 0.99], 0.25),
        ([0.96, 0.97, 0.98, 0.99, 1.0], 0.1),
        ([0.2, 0.3, 0.4, 0.5, 0.94], None),
        ([1.0, 1.0, 1.0, 1.0, 0.70], None),  # pools to .94
    ],
)
def test_crossings_by_hand(precision: list[float], crossing: float | None) -> None:
    found = isotonic_crossing([0.1, 0.2, 0.3, 0.4, 0.5], precision, 0.95)
    assert found == (None if crossing is None else pytest.approx(crossing))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_a_rising_curve_is_crossed_just_before_the_first_budget_that_is_enough(
    values: list[float],
) -> None:
    precision = sorted(values)
    budgets = [0.1 * (i + 1) for i in range(len(precision))]
    enough = [budget for budget, p in zip(budgets, precision, strict=True) if p >= 0.95 - 1e-9]
    found = isotonic_crossing(budgets, precision, 0.95)
    assert (found is None) == (not enough)
    if found is not None:
        assert enough[0] - 0.1 - 1e-9 <= found <= enough[0] + 1e-9


# figures


def curve() -> Curve:
    values = {name: np.array([0.2, 0.9]) for name in (*TOP1, "ndcg10", "regret")}
    errors = {name: np.array([0.05, 0.01]) for name in values}
    return Curve((0.01, 0.1), values, errors, {}, {}, 1e-5)


def test_a_panel_per_metric_and_one_legend_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    files = [tmp_path / "1.svg", tmp_path / "2.svg"]
    for path in files:
        draw_study(path, {"ucb-e": curve(), "uniform": curve()}, title="a matrix")
    assert files[0].read_bytes() == files[1].read_bytes()
    texts = [e.text for e in ElementTree.parse(files[0]).iter() if e.tag.endswith("}text")]
    for text in ("a matrix", "Top-1 precision", "Simple regret", "ucb-e", "uniform"):
        assert texts.count(text) == 1


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_other_formats(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"f.{suffix}"
    draw_study(path, {"a": curve()}, title="t")
    assert path.read_bytes()[:4] == {"png": b"\x89PNG", "pdf": b"%PDF"}[suffix]


def test_unknown_formats_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"written as \.svg, \.png, \.pdf, got 'f\.gif'"):
        check_figure_path(Path("f.gif"))
