from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rules import ucb_e_lrf
from bestarm_agent.selectors.rules.ucb_e_lrf import (
    SWEEPS,
    SWEEPS_AGAIN,
    LowRankEnsemble,
    UcbELrf,
)
from bestarm_agent.selectors.types import Ask, Guarantee, State, Tell
from bestarm_agent.stats.keyed_random import KeyedRandom
from tests.support.selector_suite import NO_CELLS, World, WorldRun, finish_pending, opened


def correlated_world(k: int, n: int, seed: int) -> World:
    """0/1 scores of candidates that find the same examples hard."""
    rng = np.random.default_rng([seed, 4])
    ability = rng.normal(0, 0.7, (k, 1))
    ability[rng.integers(k)] = ability.max() + 0.6
    chance = 1 / (1 + np.exp(2 * rng.normal(0, 1, (1, n)) - ability))
    return World.of(rng.random((k, n)) < chance)


def cells_of(selector: Pairs) -> csr_array:
    table = selector.table
    told = np.flatnonzero((table.state == State.DONE) | (table.state == State.FAILED))
    shape = (table.n_candidates, table.n_examples)
    places = table.candidate[told], table.example[told]
    return csr_array((table.score[told], places), shape=shape)


def test_one_by_one_it_is_algorithm_2() -> None:
    """Redone by hand: warm-up, then fit, argmax of B, and the b examples of the largest R."""
    k, n, batch, world = 12, 40, 7, correlated_world(12, 40, seed=2)
    selector = opened(UcbELrf, k, n, batch=batch, warm_up=0.2, members=16, eta=3.0)
    run = WorldRun(selector, world).go(96)  # T0 = 0.2 * 480
    draws = KeyedRandom(0, "low-rank")
    model = LowRankEnsemble(k, n, draws.at(0), n_members=16)
    for number in range(6):
        if run.waiting:
            run.tell()
        cells = cells_of(run.selector)
        model.fit(cells, SWEEPS_AGAIN if number else SWEEPS, draws.at(2 * number + 1))
        spreads = model.spreads()
        bounds = model.means(run.selector.table.total, *NO_CELLS) + 3.0 * spreads.mean(axis=1)
        unseen = run.selector.table.cells == State.UNSEEN
        bounds[~unseen.any(axis=1)] = -np.inf
        best = int(bounds.argmax())
        wanted = np.argsort(-np.where(unseen[best], spreads[best], -1.0), kind="stable")
        wanted = wanted[: min(batch, unseen[best].sum())]
        before = len(run.pairs)
        run.go(len(wanted))
        pairs = run.pairs[before:]
        assert {pair.candidate for pair in pairs} == {best}
        assert [pair.example for pair in pairs] == wanted.tolist()


def test_a_fit_waits_for_a_part_of_the_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is told, pending or void, its means are the scores seen and the predicted ones."""
    monkeypatch.setattr(ucb_e_lrf, "_SHARE_NEW", 0.5)
    world = correlated_world(10, 40, seed=3)
    world.states[4] = State.VOID
    selector = opened(UcbELrf, 10, 40, batch=4, warm_up=0.1, members=4)
    run = WorldRun(selector, world)
    whole: list[int] = []
    fit = LowRankEnsemble.fit

    def counted(self: LowRankEnsemble, *args: Any) -> None:  # noqa: ANN401
        whole.append(selector.table.n_scores)
        fit(self, *args)

    monkeypatch.setattr(LowRankEnsemble, "fit", counted)
    for n_waiting in (1, 3, 7):
        run.go(60)
        run.ask(n_waiting)
        run.tell()
        rule, table = selector.rule, selector.table
        assert isinstance(rule, UcbELrf)
        predicted = np.einsum("ier,jer->ij", rule._ensemble.rows, rule._ensemble.columns) / 4
        filled = np.where(table.cells == State.DONE, world.scores[:10, :40], predicted)
        n_scored = table.n_scored
        wanted = np.where(n_scored > 0, filled.mean(axis=1), np.nan)
        np.testing.assert_allclose(rule.belief().mean, wanted, atol=1e-9)
    # half as many scores again as the last fit had are new: n >= (n - m) / .5
    assert all(new >= 2 * old for old, new in itertools.pairwise(whole))
    assert len(whole) > 2


def test_the_warm_up_is_random_until_all_of_it_is_told() -> None:
    run = WorldRun(opened(UcbELrf, 10, 40, batch=4, warm_up=0.1), correlated_world(10, 40, 1))
    run.go(60)
    reasons = [event.reason for event in run.events if isinstance(event, Ask)]
    assert reasons == ["random"] * 40 + ["spread"] * 20
    assert len({pair.candidate for pair in run.pairs[:40]}) > 6
    selector = opened(UcbELrf, 10, 40, batch=4, warm_up=0.1)
    asks = selector.ask(70)
    assert all(ask.reason == "random" for ask in asks)
    selector.tell([Tell(ask.seq, State.DONE, 0.5) for ask in asks[:39]])
    assert selector.ask()[0].reason == "random"
    selector.tell([Tell(asks[39].seq, State.DONE, 0.5)])
    assert selector.ask()[0].reason == "spread"


def warm(seed: int, eta: float = 1.0) -> tuple[UcbELrf, WorldRun]:
    """Return a rule, and its run, whose warm-up is over."""
    selector = opened(UcbELrf, 10, 40, batch=6, warm_up=0.1, members=8, eta=eta)
    run = WorldRun(selector, correlated_world(10, 40, seed)).go(40)
    run.tell()
    assert isinstance(selector.rule, UcbELrf)
    return selector.rule, run


def test_a_fit_ends_the_batch_under_way() -> None:
    rule, run = warm(seed=5)
    n_fits = rule._n_fits
    asks = run.ask(10)
    assert {ask.pair.candidate for ask in asks[:6]} == {asks[0].pair.candidate}
    for _ in range(5):
        run.tell()
    assert rule._n_fits == n_fits
    run.tell()
    assert (rule._n_fits, rule.n_due) == (n_fits + 1, 0)


def test_the_spread_of_an_asked_pair_counts_as_nothing_until_it_is_fitted() -> None:
    rule, run = warm(seed=6, eta=2.0)
    before = rule._bonus()
    [ask] = run.ask()
    i, j = ask.pair
    spread = rule._ensemble.spreads([i])[0, j]
    assert rule._bonus()[i] == pytest.approx(before[i] - 2.0 * spread / 40)
    run.tell()
    assert rule._bonus()[i] == pytest.approx(before[i] - 2.0 * spread / 40)


def test_a_candidate_that_never_works_draws_no_batch_after_batch() -> None:
    world = correlated_world(8, 60, seed=7)
    world.states[3] = State.VOID
    selector = opened(UcbELrf, 8, 60, batch=4, members=8, eta=0.5)
    WorldRun(selector, world).go(240)
    assert selector.table.n_trials[3] < 20
    assert selector.answer.ranking()[-1] == 3


def test_a_new_candidate_is_tried_at_once() -> None:
    selector = opened(UcbELrf, 8, 60, batch=4, members=8)
    run = WorldRun(selector, correlated_world(9, 60, seed=8)).go(60)
    run.grow(candidates=1)
    assert 8 in {pair.candidate for pair in run.go(8).pairs[60:]}


@pytest.mark.slow
def test_it_beats_uniform_where_examples_have_much_in_common() -> None:
    """60 candidates, 150 examples, 1,500 of 9,000 pairs, 8 problems: mean regret."""
    k, n, n_pulls = 60, 150, 1500

    def regret(rule: str, seed: int) -> float:
        world = correlated_world(k, n, seed)
        selector = opened(rule, k, n, seed=seed, track_intervals=False)
        WorldRun(selector, world).go(n_pulls)
        finish_pending(selector, world)
        truth = world.mean(k, n)
        return float(truth.max() - truth[selector.answer.best().best])

    seeds = range(8)
    assert sum(regret("ucb-e-lrf", s) for s in seeds) < sum(regret("uniform", s) for s in seeds)


def test_its_intervals_are_a_models_opinion() -> None:
    selector = opened(UcbELrf, 20, 80, batch=8, members=16)
    run = WorldRun(selector, correlated_world(20, 80, seed=9)).go(40)
    early = selector.answer.estimates()
    np.testing.assert_allclose(early.upper - early.lower, 1 - early.n / 80)
    run.go(360)
    estimates = selector.answer.estimates()
    assert estimates.guarantee is Guarantee.HEURISTIC
    certain = selector.table.total / 80
    assert (estimates.lower >= certain - 1e-12).all()
    assert (estimates.upper <= certain + 1 - estimates.n / 80 + 1e-12).all()
    assert ((estimates.lower <= estimates.mean) & (estimates.mean <= estimates.upper)).all()
    assert (
        not selector.answer.best().separated
        or selector.answer.best().guarantee is Guarantee.HEURISTIC
    )


def test_a_heuristic_interval_never_stops_a_run() -> None:
    selector = opened(UcbELrf, 3, 60, stop_when_separated=True, batch=4, members=8)
    world = World.bernoulli([0.0, 1.0, 0.0], 60, seed=1)
    run = WorldRun(selector, world).go(150)
    assert len(run.pairs) == 150
    assert selector.stopped() is None
