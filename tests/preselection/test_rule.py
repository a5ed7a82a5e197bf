"""Every rule, and the baselines of the paper, against what all rules must do."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.preselection.rules import RULES

from bestarm_agent.preselection.cppl import Cppl
from bestarm_agent.preselection.rule import Preselector, RankedArms, score_feedback
from tests.support.preselector_suite import PreselectorSuite


class TestEveryRule(PreselectorSuite):
    @pytest.fixture(autouse=True, params=["cppl", "linucb", "max-theta", "random"])
    def _rule(self, request: pytest.FixtureRequest) -> None:
        self.name = request.param
        self.learns = self.name != "random"

    def make(self, n_arms: int, n_features: int, seed: int) -> Preselector:
        return RULES[self.name](n_arms, n_features, seed)


@pytest.mark.parametrize("sizes", [(1, 1), (2, 0)])
def test_sizes_without_a_choice_are_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"n_arms={sizes[0]}, n_features={sizes[1]}"):
        Cppl(*sizes)


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
        RankedArms(np.zeros((3, 2)), np.array(order), n_ranked)
    with pytest.raises(ValueError, match="scores of shape"):
        RankedArms(np.zeros((3, 2)), np.array([0, 1]), 1, np.zeros(3))


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
