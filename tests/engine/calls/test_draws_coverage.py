"""Intervals over examples that are drawn several times hold; over draws as examples they do not."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from bestarm_agent.config.study.repeats import RepeatsSpec
from bestarm_agent.domain.outcome import Outcome, Scored
from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.engine.calls.draws import Draws
from bestarm_agent.stats.intervals.confidence_sequences import PopulationSequences
from bestarm_agent.stats.keyed_random import KeyedRandom

RUNS, N, SEEN, K, ALPHA = 150, 60, 20, 4, 0.05


def told(draws: Draws, scores: NDArray[np.float64]) -> float:
    """The score of a pair whose draws would score so, in this order."""
    made: list[Outcome] = []
    while not draws.is_over(made):
        made.append(Scored(float(scores[len(made)]), None, Usage(), Spend(), 0.0, f"{len(made)}"))
    result = draws.outcome(made)
    assert isinstance(result, Scored)
    return result.value


def misses(values: NDArray[np.float64]) -> bool:
    """Whether the interval ever misses the mean of all values, of which some are seen, in order."""
    sequence = PopulationSequences(1, [len(values)], ALPHA)
    for j in range(len(values) * SEEN // N):
        sequence.push(0, j, float(values[j]), float(values[j]))
    mean = values.mean()
    return bool(sequence.lower[0] > mean + 1e-9 or sequence.upper[0] < mean - 1e-9)


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize("reduce", ["mean", "majority", "pass@k", "worst"])
def test_intervals_of_reduced_scores_hold(reduce: str) -> None:
    """Level .95 at all times: a binomial test at 1e-6.

    The truth is the mean over all examples of what all their draws come to, so it also shows that
    pairs which end early are told the same score. Draws counted as so many examples fail the test:
    those of one example are alike. In one random order of all draws (``each``) they do not.
    """
    draws = Draws(RepeatsSpec.model_validate({"draws": K, "reduce": reduce}))
    n_missed = n_naive = n_each = 0
    for run in range(RUNS):
        rng = KeyedRandom(5, "draws").at(run)
        chances = rng.beta(0.2, 0.2, size=N)  # in random order
        scores = (rng.random((N, K)) < chances[:, None]).astype(float)
        right = scores.sum(axis=1)
        first = scores[:, 0]
        truth = {
            "mean": right / K,
            "majority": np.where(right == K / 2, first, right > K / 2),
            "pass@k": np.asarray(right > 0, dtype=np.float64),
            "worst": np.asarray(right == K, dtype=np.float64),
        }[reduce]
        assert [told(draws, row) for row in scores[:SEEN]] == truth[:SEEN].tolist()
        n_missed += misses(truth)
        n_naive += reduce == "mean" and misses(scores.ravel())
        n_each += reduce == "mean" and misses(rng.permutation(scores.ravel()))
    assert binom.sf(n_missed - 1, RUNS, ALPHA) > 1e-6
    assert binom.sf(n_each - 1, RUNS, ALPHA) > 1e-6
    assert reduce != "mean" or binom.sf(n_naive - 1, RUNS, ALPHA) < 1e-6
