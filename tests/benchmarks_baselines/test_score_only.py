from __future__ import annotations

import numpy as np
from benchmarks.baselines.score_only import ScoreOnly

from bestarm_agent.selectors.rules.ucb_e_lrf import SWEEPS, SWEEPS_AGAIN, LowRankEnsemble
from bestarm_agent.selectors.types import Guarantee
from bestarm_agent.stats.keyed_random import KeyedRandom
from tests.selectors.rules.test_ucb_e_lrf import cells_of, correlated_world
from tests.support.selector_suite import World, WorldRun, opened


def test_one_by_one_the_ablation_is_algorithm_6() -> None:
    k, n, batch, world = 12, 80, 7, correlated_world(12, 80, seed=3)
    selector = opened(ScoreOnly, k, n, batch=batch, warm_up=0.1, members=16, eta=1.0)
    run = WorldRun(selector, world).go(96)
    draws = KeyedRandom(0, "low-rank")
    model = LowRankEnsemble(k, n, draws.at(0), n_members=16)
    for number in range(6):
        run.tell()
        cells = cells_of(selector)
        model.fit(cells, SWEEPS_AGAIN if number else SWEEPS, draws.at(2 * number + 1))
        bounds = model.means(cells) + np.sqrt(1.0 / selector.table.n_scored)
        before = len(run.pairs)
        run.go(batch)
        assert {pair.candidate for pair in run.pairs[before:]} == {int(bounds.argmax())}


def test_the_ablations_intervals_hold_at_any_time() -> None:
    selector = opened(ScoreOnly, 3, 60, batch=4, members=8)
    WorldRun(selector, World.bernoulli([0.1, 0.9, 0.4], 60, seed=1)).go(100)
    assert selector.estimates().guarantee is Guarantee.ANYTIME_VALID
