from __future__ import annotations

import numpy as np
import pytest
from benchmarks.baselines.row_mean import RowMean

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import Problem
from tests.support.selector_suite import SelectorSuite


class TestRowMean(SelectorSuite):
    learns = False

    def make(self, problem: Problem) -> Rule:
        return RowMean(problem)


@pytest.mark.slow
@pytest.mark.coverage
def test_every_unseen_pair_is_equally_likely() -> None:
    """Chi-square of the first pair over 3 x 4 cells, 6,000 seeds: 99.9999 % point of chi2(11)."""
    counts = np.zeros((3, 4))
    for seed in range(6000):
        [ask] = Pairs(RowMean(Problem(3, 4, seed=seed, stop_when_separated=False))).ask()
        counts[ask.pair] += 1
    assert ((counts - 500) ** 2 / 500).sum() < 49.6


def test_candidates_that_may_not_be_asked_get_no_share() -> None:
    selector = Pairs(RowMean(Problem(3, 40, stop_when_separated=False)))
    asks = selector.ask(60, allowed=np.array([True, False, True]))
    assert {ask.pair.candidate for ask in asks} == {0, 2}
