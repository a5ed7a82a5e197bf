from __future__ import annotations

import numpy as np
from benchmarks.baselines.lrf import Lrf
from scipy.sparse import csr_array

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.rules.ucb_e_lrf import SWEEPS, LowRankEnsemble
from bestarm_agent.selectors.types import Problem, State, Tell
from bestarm_agent.stats.keyed_random import KeyedRandom
from tests.support.selector_suite import SelectorSuite, World, WorldRun


class TestLrf(SelectorSuite):
    learns = False

    def make(self, problem: Problem) -> Rule:
        return Lrf(problem)


def low_rank_world(k: int, n: int, seed: int) -> World:
    """Scores that are a product of row and column factors, without noise."""
    rng = np.random.default_rng([seed, 3])
    scores = np.outer(rng.uniform(0.3, 1, k), rng.uniform(0.2, 1, n))
    return World(scores, np.full((k, n), int(State.DONE), dtype=np.int8))


def test_it_asks_what_row_mean_asks() -> None:
    pairs = [
        ask.pair for ask in Pairs(Lrf(Problem(5, 20, seed=3, stop_when_separated=False))).ask(50)
    ]
    assert len(set(pairs)) == 50


def test_the_estimate_is_the_models_row_mean() -> None:
    world = low_rank_world(8, 30, seed=1)
    selector = (
        WorldRun(Pairs(Lrf(Problem(8, 30, stop_when_separated=False))), world).go(120).selector
    )
    table = selector.table
    told = np.flatnonzero(table.state == State.DONE)
    places = table.candidate[told], table.example[told]
    cells = csr_array((table.score[told], places), shape=(8, 30))
    draws = KeyedRandom(0, "low-rank")
    model = LowRankEnsemble(8, 30, draws.at(0))
    model.fit(cells, SWEEPS, draws.at(1))
    np.testing.assert_allclose(selector.estimates().mean, model.means(cells))


def test_asking_for_estimates_early_changes_no_later_ones() -> None:
    world = World.with_failures((6, 20), 2)
    curious, plain = (
        WorldRun(Pairs(Lrf(Problem(6, 20, stop_when_separated=False))), world) for _ in range(2)
    )
    for _ in range(6):
        curious.go(10)
        curious.selector.estimates()
    plain.go(60)
    np.testing.assert_array_equal(
        curious.selector.estimates().mean, plain.selector.estimates().mean
    )


def test_it_beats_row_means_where_scores_are_of_low_rank() -> None:
    for seed in range(5):
        world = low_rank_world(20, 60, seed)
        selector = (
            WorldRun(Pairs(Lrf(Problem(20, 60, seed=seed, stop_when_separated=False))), world)
            .go(360)
            .selector
        )
        truth = world.mean(20, 60)
        by_model = np.abs(selector.estimates().mean - truth).max()
        by_rows = np.abs(selector.table.mean() - truth).max()
        assert by_model < by_rows / 10


def test_a_candidate_without_a_score_has_no_estimate() -> None:
    selector = Pairs(Lrf(Problem(3, 10, stop_when_separated=False)))
    only = np.array([True, True, False])
    asks = selector.ask(12, allowed=only)
    selector.tell([Tell(ask.seq, State.DONE, 0.5) for ask in asks])
    assert np.isnan(selector.estimates().mean).tolist() == [False, False, True]
    assert selector.ranking()[-1] == 2
