"""Baselines that sample evenly, and their estimators: ``row-mean``, ``filled-subset``, ``lrf``."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.baselines.filled_subset import FilledSubset
from benchmarks.baselines.lrf import Lrf
from benchmarks.baselines.row_mean import RowMean

from bestarm_agent.selectors.rules.ucb_e_lrf import SWEEPS, LowRankEnsemble
from bestarm_agent.selectors.types import State, Tell
from bestarm_agent.stats.keyed_random import KeyedRandom
from tests.selectors.rules.test_ucb_e_lrf import cells_of
from tests.support.selector_suite import NO_CELLS, World, WorldRun, opened


@pytest.mark.slow
@pytest.mark.coverage
def test_every_unseen_pair_is_equally_likely() -> None:
    """Chi-square of the first pair over 3 x 4 cells, 3,000 seeds: 99.9999 % point of chi2(11)."""
    counts = np.zeros((3, 4))
    for seed in range(3000):
        [ask] = opened(RowMean, 3, 4, seed=seed).ask()
        counts[ask.pair] += 1
    assert ((counts - 250) ** 2 / 250).sum() < 49.6


def test_candidates_that_may_not_be_asked_get_no_share() -> None:
    asks = opened(RowMean, 3, 40).ask(60, allowed=np.array([True, False, True]))
    assert {ask.pair.candidate for ask in asks} == {0, 2}


def test_an_example_is_finished_before_the_next_begins() -> None:
    pairs = [ask.pair for ask in opened(FilledSubset, 4, 5).ask(20)]
    for start in range(0, 20, 4):
        block = pairs[start : start + 4]
        assert len({pair.example for pair in block}) == 1
        assert {pair.candidate for pair in block} == {0, 1, 2, 3}
    firsts = {opened(FilledSubset, 4, 5, seed=s).ask()[0].pair.candidate for s in range(40)}
    assert firsts == {0, 1, 2, 3}, "in random order"


def test_who_joins_late_or_was_away_catches_up_on_common_examples() -> None:
    selector = opened(FilledSubset, 2, 9)
    early = {ask.pair.example for ask in selector.ask(8)}
    selector.add_candidates(1)
    late = [ask.pair for ask in selector.ask(4)]
    assert {pair.candidate for pair in late} == {2}
    assert {pair.example for pair in late} == early
    selector = opened(FilledSubset, 2, 9)
    seen = [ask.pair.example for ask in selector.ask(3, allowed=np.array([True, False]))]
    assert [ask.pair for ask in selector.ask(3)] == [(1, example) for example in seen]


# low-rank factorisation of what uniform sampling has seen


def low_rank_world(k: int, n: int, seed: int) -> World:
    """Scores that are a product of row and column factors, without noise."""
    rng = np.random.default_rng([seed, 3])
    return World.of(np.outer(rng.uniform(0.3, 1, k), rng.uniform(0.2, 1, n)))


def test_the_estimate_is_the_models_row_mean_whenever_it_was_asked_for() -> None:
    world = low_rank_world(8, 30, seed=1)
    curious, plain = (WorldRun(opened(Lrf, 8, 30), world) for _ in range(2))
    for _ in range(6):
        curious.go(20)
        curious.selector.answer.estimates()
    found = plain.go(120).selector.answer.estimates().mean
    np.testing.assert_array_equal(curious.selector.answer.estimates().mean, found)
    draws = KeyedRandom(0, "low-rank")
    model, cells = LowRankEnsemble(8, 30, draws.at(0)), cells_of(plain.selector)
    model.fit(cells, SWEEPS, draws.at(1))
    np.testing.assert_allclose(found, model.means(plain.selector.table.total, *NO_CELLS))


def test_it_beats_row_means_where_scores_are_of_low_rank() -> None:
    for seed in range(5):
        world = low_rank_world(20, 60, seed)
        selector = WorldRun(opened(Lrf, 20, 60, seed=seed), world).go(360).selector
        truth = world.scores.mean(axis=1)
        by_model = np.abs(selector.answer.estimates().mean - truth).max()
        assert by_model < np.abs(selector.table.mean() - truth).max() / 10


def test_a_candidate_without_a_score_has_no_estimate() -> None:
    selector = opened(Lrf, 3, 10)
    asks = selector.ask(12, allowed=np.array([True, True, False]))
    selector.tell([Tell(ask.seq, State.DONE, 0.5) for ask in asks])
    assert np.isnan(selector.answer.estimates().mean).tolist() == [False, False, True]
    assert selector.answer.ranking()[-1] == 2
