"""``auto`` with what past candidates taught about the examples."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from bestarm_agent.selectors.auto.rule import Auto
from bestarm_agent.stats.history import Factors
from tests.support.histories import lesson
from tests.support.selector_suite import World, WorldRun, opened


def worlds(factors: Factors, abilities: NDArray[np.float64]) -> Iterator[World]:
    """Binary scores of candidates with these abilities, the best first."""
    chance = expit(factors.offset + abilities[:, None] * factors.loadings[:, 0])
    rng = np.random.default_rng(6)
    while True:
        scores = (rng.random(chance.shape) < chance).astype(float)
        best = int(scores.mean(axis=1).argmax())
        scores[[0, best]] = scores[[best, 0]]
        yield World.of(scores)


def test_a_history_that_predicts_too_little_is_left_aside() -> None:
    world = World.bernoulli([0.3, 0.5, 0.7, 0.6], 30, 2)
    asked = []
    for history in (None, lesson(30, gain=0.1)):
        selector = opened("auto", 4, 30, seed=1, budget=60, history=history)
        assert isinstance(selector.rule, Auto)
        assert not selector.rule.uses_history
        asked.append(WorldRun(selector, world).go(60).pairs)
    assert asked[0] == asked[1]


@pytest.mark.slow
def test_a_history_that_predicts_narrows_the_intervals_of_means_and_nothing_else() -> None:
    """Told to predict nothing it changes nothing, and a little is enough for intervals."""
    factors = Factors(np.random.default_rng(7).normal(0, 3, 400), np.ones((400, 1)))
    world = next(worlds(factors, np.array([1.0, 0.5, 0.0])))
    runs = []
    for told in (None, lesson(factors, gain=-0.1), lesson(factors, gain=0.1)):
        run = WorldRun(opened("auto", 3, 400, seed=1, budget=450, history=told), world).go(450)
        runs.append((run.pairs, run.selector.answer.best().tied, run.selector.answer.estimates()))
    asked, tied, plain = runs[0]
    assert all(run[:2] == (asked, tied) for run in runs)
    useless, useful = runs[1][2], runs[2][2]
    assert np.array_equal((useless.lower, useless.upper), (plain.lower, plain.upper))
    for many in np.flatnonzero(plain.n >= 100):
        assert useful.upper[many] - useful.lower[many] < 0.9 * (plain.upper - plain.lower)[many]
    assert (plain.n >= 100).any()
    mean = world.scores.mean(axis=1)
    assert ((useful.lower <= mean) & (mean <= useful.upper)).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["right", "inverted", "shuffled"])
def test_history_is_judged_by_the_scores_of_the_run(kind: str) -> None:
    """All three predict past candidates alike; of 6 worlds each, at most one is judged wrongly."""
    rng = np.random.default_rng(8)
    offset, loadings = rng.normal(0, 2, 150), rng.uniform(0.5, 1.5, (150, 1))
    places = rng.permutation(150) if kind == "shuffled" else np.arange(150)
    sign = -1.0 if kind == "inverted" else 1.0
    told = lesson(Factors(sign * offset[places], sign * loadings[places]))
    chance = expit(offset + np.linspace(1.5, -0.5, 10)[:, None] * loadings[:, 0])
    believed = 0
    for seed in range(6):
        world = World.of(rng.random(chance.shape) < chance)
        given = {"budget": 450, "track_intervals": False, "history": told}
        selector = WorldRun(opened(Auto, 10, 150, seed=seed, **given), world).go(450).selector
        assert isinstance(selector.rule, Auto)
        believed += selector.rule.uses_history
    assert believed >= 5 if kind == "right" else believed <= 1


@pytest.mark.slow
def test_history_makes_estimates_more_accurate() -> None:
    """Of 12 worlds whose examples differ much in hardness: error of all means, a third less."""
    factors = Factors(np.random.default_rng(7).normal(0, 4, 400), np.ones((400, 1)))
    errors: dict[bool, list[float]] = {False: [], True: []}
    for seed, world in enumerate(islice(worlds(factors, np.linspace(1.6, 0.0, 8)), 12)):
        for given, found in errors.items():
            told = {"history": lesson(factors) if given else None, "track_intervals": False}
            selector = opened(Auto, 8, 400, seed=seed, budget=120, **told)
            WorldRun(selector, world).go(120)
            off = selector.answer.estimates().mean - world.scores.mean(axis=1)
            found.append(float(np.mean(off**2)))
    assert np.mean(errors[True]) < 0.7 * np.mean(errors[False])


@pytest.mark.slow
def test_estimates_are_never_what_cannot_be() -> None:
    factors = Factors(np.where(np.arange(200) < 140, 5.0, 0.0), np.ones((200, 1)))
    for seed, world in enumerate(islice(worlds(factors, np.linspace(1.5, -0.5, 6)), 3)):
        selector = opened(Auto, 6, 200, seed=seed, budget=700, history=lesson(factors))
        WorldRun(selector, world).go(700)
        table, mean = selector.table, selector.answer.estimates().mean
        missing = table.n_examples - table.n_scored
        assert (table.total <= 200 * mean + 1e-9).all()
        assert (200 * mean <= table.total + missing + 1e-9).all()
