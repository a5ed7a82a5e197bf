"""Conformance tests of randomness and of going on from a log; part of ``SelectorSuite``."""
# ruff: noqa: D102 - the name of a test says what it checks

from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import Problem
from bestarm_agent.testing.selector_runs import Run, World, replay

K, N = 6, 12
TIGHT = 40  # pairs: a rule that plans for a budget must drop candidates


class ResumeSuite:
    """Conformance tests of a rule's randomness and of rebuilding it, and ways to open it."""

    def make(self, problem: Problem) -> Rule:
        """Make the rule under test; ``problem`` has a budget that allows the whole grid."""
        raise NotImplementedError

    def open(self, k: int = K, n: int = N, *, seed: int = 0, budget: int | None = None) -> Pairs:
        """Open the rule on a small grid."""
        return Pairs(self.make(Problem(k, n, seed=seed, budget=budget or max(1, 4 * k * n))))

    @pytest.mark.parametrize("budget", [None, TIGHT])
    def test_the_same_seed_asks_the_same_pairs(self, budget: int | None) -> None:
        world = World.with_failures((K, N), 8)
        selectors = [self.open(seed=seed, budget=budget) for seed in (1, 1, 2)]
        runs = [Run(selector, world, 3).go(30).pairs for selector in selectors]
        assert runs[0] == runs[1]
        assert runs[0] != runs[2]

    @pytest.mark.parametrize("in_flight", [1, 7])
    @pytest.mark.parametrize("budget", [None, TIGHT])
    def test_a_rebuilt_selector_goes_on_alike(self, in_flight: int, budget: int | None) -> None:
        world = World.with_failures((K + 2, N + 5), 9)
        for size in range(0, 2 * K * N // 3, 5):
            warm = Run(self.open(budget=budget), world, in_flight, seed=size).go(size // 2)
            warm.grow(candidates=size % 2, examples=size % 3)
            warm.go(size - size // 2)
            rebuilt = replay(warm.events, self.open(budget=budget))
            cold = Run(rebuilt, world, in_flight, seed=size + 1)
            cold.waiting = list(warm.waiting)
            warm.seed, n_before = cold.seed, len(warm.pairs)
            assert cold.go(20).pairs == warm.go(20).pairs[n_before:]
            np.testing.assert_array_equal(cold.selector.ranking(), warm.selector.ranking())

    @pytest.mark.parametrize("budget", [None, TIGHT])
    def test_the_log_says_enough_where_not_all_could_be_called(self, budget: int | None) -> None:
        world = World.with_failures((K, N), 15)
        for seed in range(6):
            rng = np.random.default_rng([seed, 75])
            warm = Run(self.open(seed=seed, budget=budget), world, 6)
            for _ in range(25):
                warm.ask(2, allowed=rng.random(K) < 0.6)
                while len(warm.waiting) > 4:
                    warm.tell(int(rng.integers(len(warm.waiting))))
            rebuilt = replay(warm.events, self.open(seed=seed, budget=budget))
            cold, n_before = Run(rebuilt, world, 6), len(warm.pairs)
            cold.waiting = list(warm.waiting)
            assert cold.go(15).pairs == warm.go(15).pairs[n_before:]
