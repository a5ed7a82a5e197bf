"""Every rule, and the baselines of the paper, against what all rules must do."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from benchmarks.preselection.rules import RULES

from bestarm_agent.preselection.rule import (
    Feedback,
    PreselectionProblem,
    Preselector,
    score_feedback,
)
from tests.support.preselector_suite import PROBLEM, PreselectorSuite


class TestCppl(PreselectorSuite):
    name: ClassVar[str] = "cppl"

    def make(self, problem: PreselectionProblem) -> Preselector:
        return RULES[self.name](problem)


class TestMaxTheta(TestCppl):
    name = "max-theta"


class TestLinUcb(TestCppl):
    name = "linucb"


class TestRandom(TestCppl):
    name = "random"
    learns = False


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("cppl", {"omega": -1.0}, "omega must be >= 0, got -1"),
        ("cppl", {"ridge": 0.0}, "ridge must be > 0, got 0"),
        ("cppl", {"alpha": 0.5}, r"alpha must be in \(1/2, 1\), got 0.5"),
        ("cppl", {"gamma": 0.0}, "gamma must be > 0"),
        ("cppl", {"spread": -1.0}, "spread must be >= 0"),
        ("linucb", {"width": -1.0}, "width must be >= 0"),
        ("linucb", {"ridge": 0.0}, "ridge must be > 0"),
    ],
)
def test_bad_parameters_are_refused(name: str, params: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RULES[name](PROBLEM, **params)


@pytest.mark.parametrize(
    ("n_arms", "n_features", "seed", "message"),
    [
        (1, 1, 0, "n_arms must be >= 2, got 1"),
        (2, 0, 0, "n_features must be >= 1, got 0"),
        (2, 1, -1, "seed must be >= 0, got -1"),
    ],
)
def test_bad_problems_are_refused(n_arms: int, n_features: int, seed: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PreselectionProblem(n_arms, n_features, seed)


@pytest.mark.parametrize(
    ("order", "n_ranked", "message"),
    [
        ([0], 1, "at least 2 arms"),
        ([0, 0], 1, "distinct arms"),
        ([0, 3], 1, r"distinct arms in 0\.\.2"),
        ([0, -1], 1, "distinct arms"),
        ([0, 1], 3, r"n_ranked must be in 0\.\.2, got 3"),
        ([0, 1], -1, "n_ranked"),
    ],
)
def test_bad_feedback_is_refused(order: list[int], n_ranked: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Feedback(np.zeros((3, 2)), np.array(order), n_ranked)
    with pytest.raises(ValueError, match="scores of shape"):
        Feedback(np.zeros((3, 2)), np.array([0, 1]), 1, np.zeros(3))


def test_scores_become_a_ranking_whose_lowest_are_not_told_apart() -> None:
    rng = np.random.default_rng(0)
    scores = np.array([0.2, 0.9, 0.2, 0.5])
    feedback = score_feedback(np.zeros((9, 1)), [4, 7, 1, 3], scores, rng)
    assert feedback is not None
    assert feedback.order[:2].tolist() == [7, 3]
    assert feedback.n_ranked == 2
    assert feedback.scores is not None
    assert feedback.scores.tolist() == [0.9, 0.5, 0.2, 0.2]


def test_equal_scores_say_nothing_and_upper_ties_are_broken_evenly() -> None:
    rng = np.random.default_rng(1)
    assert score_feedback(np.zeros((3, 1)), [0, 1], np.array([0.5, 0.5]), rng).n_ranked == 0
    first = []
    for _ in range(200):
        feedback = score_feedback(np.zeros((3, 1)), [0, 1, 2], np.array([1.0, 1.0, 0.0]), rng)
        assert feedback is not None
        first.append(int(feedback.order[0]))
    assert set(first) == {0, 1}
    assert 60 < first.count(0) < 140  # 100 expected, 5.6 standard deviations
    with pytest.raises(ValueError, match="finite scores"):
        score_feedback(np.zeros((3, 1)), [0, 1], np.array([np.nan, 1.0]), rng)
