"""``auto`` on candidates with axes: no warm-up, levels learned from others, nothing lost."""

from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.selectors.auto.rule import Auto
from bestarm_agent.selectors.types import Problem
from bestarm_agent.stats.arrays import FloatArray, IntArray
from tests.support.selector_suite import World, WorldRun, opened


def grid(*sizes: int) -> IntArray:
    """Return the (K, A) levels of a full grid."""
    return np.indices(sizes).reshape(len(sizes), -1).T


def additive(sizes: tuple[int, int], seed: int, n_examples: int = 200) -> World:
    """Draw a world whose chances are the sum of a model's and a prompt's part."""
    rng = np.random.default_rng([seed, 5])
    parts = [rng.uniform(0.0, share, n) for share, n in zip((0.6, 0.3), sizes, strict=True)]
    return World.bernoulli(np.add.outer(*parts).ravel().tolist(), n_examples, seed)


def regret(world: World, axes: IntArray | None, seed: int, n_pulls: int) -> float:
    """Run ``auto`` on the world; return how far its answer is from the best mean."""
    k, n = world.scores.shape
    selector = opened(Auto, k, n, seed=seed, axes=axes, track_intervals=False)
    WorldRun(selector, world).go(n_pulls)
    means = world.scores.mean(axis=1)
    return float(means.max() - means[selector.answer.best().best])


def test_candidates_without_shared_levels_are_asked_as_without_axes() -> None:
    world = additive((3, 4), 0, 40)
    alone = np.column_stack([np.arange(12), np.zeros(12, int)])
    plain, same = (
        WorldRun(opened(Auto, 12, 40, seed=2, axes=axes), world, 3).go(120).pairs
        for axes in (None, alone)
    )
    assert same == plain


@pytest.mark.slow
def test_it_works_with_fewer_pulls_than_candidates() -> None:
    sizes, n_pulls = (8, 30), 150
    found: list[FloatArray] = []
    for seed, world in enumerate(additive(sizes, seed) for seed in range(8)):
        by_axes = (grid(*sizes), None)
        found.append(np.array([regret(world, axes, seed, n_pulls) for axes in by_axes]))
    with_axes, without = np.mean(found, axis=0)
    assert with_axes < 0.5 * without


@pytest.mark.slow
def test_it_says_what_it_expects_of_candidates_not_tried() -> None:
    # The mean correlation is .62 +- .03; of one seed it varies by .18.
    sizes, found = (6, 25), list[float]()
    for seed in range(40):
        world, axes = additive(sizes, seed), grid(*sizes)
        selector = opened(Auto, 150, 200, seed=seed, axes=axes)
        WorldRun(selector, world).go(120)
        untried = selector.table.n_trials == 0
        assert untried.sum() > 50
        expected, true = (
            selector.answer.estimates().mean[untried],
            world.scores.mean(axis=1)[untried],
        )
        found.append(float(np.corrcoef(expected, true)[0, 1]))
        tried = np.flatnonzero(selector.table.n_scored)
        assert set(selector.answer.ranking()[: len(tried)]) == set(tried.tolist())
    assert np.mean(found) > 0.5


@pytest.mark.slow
def test_labels_that_say_nothing_lose_nothing() -> None:
    worlds = [additive((5, 5), seed, 60) for seed in range(8)]
    shuffled = [np.random.default_rng(seed).permutation(grid(5, 5)) for seed in range(8)]
    lost = [
        regret(world, axes, seed, 120) - regret(world, None, seed, 120)
        for seed, (world, axes) in enumerate(zip(worlds, shuffled, strict=True))
    ]
    # three standard errors of the mean difference
    assert np.mean(lost) < 3.0 * np.std(lost) / np.sqrt(len(lost)) + 0.005


def test_candidates_that_join_with_levels_are_known_by_them() -> None:
    axes = grid(4, 10)
    world = World.bernoulli([0.2 + 0.2 * model for model in axes[:, 0]], 60, seed=1)
    selector = opened(Auto, 40, 60, seed=1, axes=axes)
    WorldRun(selector, world).go(100)
    selector.add_candidates(2, axes=np.array([[0, 99], [3, 99]]))
    worst, best = selector.answer.estimates().mean[40:]
    assert best - worst > 0.3
    selector.add_candidates(1)  # levels of its own
    assert worst < selector.answer.estimates().mean[42] < best


def test_axes_must_fit() -> None:
    with pytest.raises(ValueError, match=r"4 candidates x at least 1 axis, got \(3, 2\)"):
        Problem(4, 5, axes=grid(3, 1))
    with pytest.raises(ValueError, match="integers >= 0"):
        Problem(2, 5, axes=np.array([[0.5], [1.0]]))
    with pytest.raises(ValueError, match="axes must be 3 candidates"):
        opened(Auto, 2, 5).add_candidates(1, axes=np.array([[1, 2]]))
    with pytest.raises(ValueError, match="dimension"):
        opened(Auto, 4, 5, axes=grid(2, 2)).add_candidates(1, axes=np.array([[1, 2, 3]]))


def test_pairs_in_flight_spread_out_over_the_grid() -> None:
    world, axes = additive((5, 8), 2, 100), grid(5, 8)
    selector = opened(Auto, 40, 100, seed=2, axes=axes)
    WorldRun(selector, world).go(80)
    asked = [ask.pair for ask in selector.ask(20)]
    assert len(set(asked)) == 20
    assert len({pair.candidate for pair in asked}) > 3
