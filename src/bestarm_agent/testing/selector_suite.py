"""Conformance tests for selection rules: a pytest class to inherit.

::

    from bestarm_agent.testing.selector_suite import SelectorSuite

    class TestMyRule(SelectorSuite):
        def make(self, problem):
            return MyRule(problem)
"""
# ruff: noqa: D102 - the name of a test says what it checks

from __future__ import annotations

from functools import cache
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bestarm_agent.selectors.types import Ask, Guarantee, Pair, State, Stop, Tell
from bestarm_agent.testing.resume_suite import TIGHT, K, N, ResumeSuite
from bestarm_agent.testing.selector_counts import Counts
from bestarm_agent.testing.selector_runs import (
    Run,
    World,
    expected_uniform_wins,
    wins_more_often,
)

EASY_WORLDS = 60


class SelectorSuite(ResumeSuite):
    """Conformance tests of one selection rule."""

    # whether it spends more on better candidates, and so must beat uniform sampling
    learns: ClassVar[bool] = True
    easy_budget: ClassVar[int] = 120  # pulls of that problem's 3,600 after which it is compared

    # asking

    def test_an_asked_pair_is_pending_until_told(self) -> None:
        selector = self.open()
        [ask] = selector.ask()
        assert (ask.seq, selector.table.n_asked) == (0, 1)
        assert selector.table.cells[ask.pair] == State.PENDING
        assert selector.estimates().pending.sum() == 1
        selector.tell([Tell(0, State.DONE, 1.0)])
        assert selector.table.cells[ask.pair] == State.DONE
        assert selector.estimates().pending.sum() == 0

    @pytest.mark.parametrize("in_flight", [1, 32])
    def test_every_pair_is_asked_once_until_none_is_left(self, in_flight: int) -> None:
        run = Run(self.open(), World.with_failures((K, N), 1), in_flight).finish()
        assert len(run.pairs) == len(set(run.pairs)) == K * N
        assert run.selector.stopped() is Stop.EXHAUSTED
        assert run.selector.ask(5) == []

    @pytest.mark.parametrize("in_flight", [1, 32])
    def test_best_is_exact_when_all_is_known(self, in_flight: int) -> None:
        world = World.bernoulli(np.linspace(0.2, 0.8, K), N, seed=3)
        selector = Run(self.open(), world, in_flight).finish().selector
        truth = world.mean(K, N)
        estimates, verdict = selector.estimates(), selector.best()
        assert estimates.guarantee is verdict.guarantee is Guarantee.EXACT
        assert truth[verdict.best] == truth.max()
        np.testing.assert_allclose(estimates.mean, truth)
        np.testing.assert_allclose(estimates.lower, truth)
        np.testing.assert_allclose(estimates.upper, truth)

    @pytest.mark.parametrize("in_flight", [1, 5, 32])
    def test_a_plan_for_a_budget_keeps_to_it(self, in_flight: int) -> None:
        for seed in range(5):
            selector = self.open(seed=seed, budget=TIGHT)
            if type(selector.rule).anytime:
                pytest.skip("the rule does not plan for a budget")
            run = Run(selector, World.with_failures((K, N), seed), in_flight, seed).finish()
            assert TIGHT - K <= len(run.pairs) <= TIGHT
            assert selector.stopped() is Stop.BUDGET
            assert selector.ask(5) == []
            selector.add_budget(20)
            assert len(run.finish().pairs) <= TIGHT + 20

    @pytest.mark.parametrize("budget", [None, TIGHT])
    def test_asking_for_n_is_asking_n_times_for_one(self, budget: int | None) -> None:
        world = World.with_failures((K, N), 2)
        together, apart = (Run(self.open(budget=budget), world) for _ in range(2))
        for n in (1, 3, 7, 2, 20, 30):
            together.ask(n)
            for _ in range(n):
                apart.ask(1)
            assert together.events == apart.events
            for run in (together, apart):
                while len(run.waiting) > n // 2:
                    run.tell(len(run.waiting) // 2)

    def test_only_allowed_candidates_are_asked(self) -> None:
        selector, world = self.open(), World.with_failures((K, N), 3)
        run = Run(selector, world)
        allowed = np.array([False, True, True, False, False, True])
        for _ in range(10):
            asks = selector.ask(3, allowed=allowed)
            assert {ask.pair.candidate for ask in asks} <= {1, 2, 5}
            run.waiting += asks
            while run.waiting:
                run.tell()
        assert selector.table.n_asked > 0
        assert selector.ask(3, allowed=np.zeros(K, dtype=bool)) == []
        assert run.selector.stopped() is None

    def test_nobody_takes_the_turn_of_a_busy_candidate(self) -> None:
        patient, plain = (Run(self.open(), World.with_failures((K, N), 5)) for _ in range(2))
        for _ in range(20):
            asks = plain.ask(3)
            if not asks:
                break
            first = asks[0].pair.candidate
            assert patient.selector.ask(3, busy=np.arange(K) == first) == []
            assert patient.ask(3) == asks
            for run in (patient, plain):
                while run.waiting:
                    run.tell()

    def test_looking_ahead_changes_nothing(self) -> None:
        world = World.with_failures((K, N), 4)
        curious, plain = Run(self.open(), world, 4), Run(self.open(), world, 4)
        for size in (3, 9, 20, 33):
            for mask in (None, np.arange(K) > 2, np.arange(K) % 2 == 0, np.zeros(K, dtype=bool)):
                curious.selector.next_choice(mask)
            curious.selector.estimates()
            curious.selector.best()
            assert curious.go(size).pairs == plain.go(size).pairs

    def test_a_draw_that_looks_at_no_score_says_how_likely_it_was(self) -> None:
        run = Run(self.open(), World.with_failures((K, N), 16), 4).go(40)
        if run.selector.rule.exogenous:
            chances = [event.propensity for event in run.events if isinstance(event, Ask)]
            assert all(chance is not None and 0 < chance <= 1 for chance in chances)

    # telling

    def test_the_order_of_telling_does_not_matter(self) -> None:
        world = World.with_failures((K, N), 5)
        asks = Run(self.open(), world).ask(25)
        first, second = self.open(), self.open()
        tells = [world.outcome(ask) for ask in asks]
        for selector, order in ((first, tells), (second, tells[::-1])):
            selector.adopt(asks)
            for tell in order:
                selector.tell([tell])
        np.testing.assert_array_equal(first.table.cells, second.table.cells)
        np.testing.assert_allclose(first.table.mean(), second.table.mean())
        if first.rule.exogenous:
            np.testing.assert_allclose(first.estimates().lower, second.estimates().lower)
            np.testing.assert_allclose(first.estimates().upper, second.estimates().upper)

    def test_telling_twice_is_refused(self) -> None:
        selector = self.open()
        asks = selector.ask(4)
        selector.tell([Tell(asks[1].seq, State.DONE, 1.0, cost=2.0)])
        before = selector.estimates()
        with pytest.raises(ValueError, match="was told before"):
            selector.tell([Tell(asks[1].seq, State.DONE, 0.0, cost=2.0)])
        after = selector.estimates()
        np.testing.assert_array_equal(before.mean, after.mean)
        np.testing.assert_array_equal(before.n, after.n)
        assert selector.table.spent.sum() == 2.0

    @pytest.mark.parametrize(
        "wrong",
        [
            Tell(7, State.DONE, 0.5),
            Tell(-1, State.DONE, 0.5),
            Tell(0, State.DONE, 1.5),
            Tell(0, State.DONE, float("nan")),
            Tell(0, State.DONE, 0.5, cost=-1.0),
            Tell(0, State.PENDING, 0.5),
        ],
    )
    def test_a_senseless_tell_is_refused(self, wrong: Tell) -> None:
        selector = self.open()
        selector.ask(2)
        with pytest.raises(ValueError, match=r"asked|score|cost|state"):
            selector.tell([wrong])
        assert selector.estimates().pending.sum() == 2

    def test_failures_count_and_void_pairs_do_not(self) -> None:
        selector = self.open(2, 3)
        states = (State.DONE, State.FAILED, State.VOID)
        for _ in range(6):
            [ask] = selector.ask()
            state = states[ask.pair.example]
            selector.tell([Tell(ask.seq, state, 0.75 / state)])
        estimates = selector.estimates()
        assert (estimates.n.tolist(), estimates.void.tolist()) == ([2, 2], [1, 1])
        np.testing.assert_allclose(selector.table.mean(), (0.75 / 2 + 0.75 / 3) / 2)

    @pytest.mark.parametrize("state", [State.FAILED, State.VOID])
    def test_a_candidate_that_never_works_stops_none(self, state: State) -> None:
        world = World.bernoulli([0.2, 0.3, 0.9, 0.4, 0.5, 0.1], N, seed=6)
        world.states[4], world.scores[4] = state, 0.0
        run = Run(self.open(), world, 8).finish()
        assert len(run.pairs) == K * N
        assert run.selector.best().best == 2
        assert run.selector.ranking()[-1] == 4 or state is State.FAILED

    def test_nothing_works_at_all(self) -> None:
        world = World.with_failures((K, N), 7)
        world.states[:] = State.VOID
        selector = Run(self.open(), world, 4).finish().selector
        assert selector.stopped() is Stop.EXHAUSTED
        assert np.isnan(selector.table.mean()).all()
        assert selector.best().tied == tuple(i for i in range(K) if i != selector.best().best)

    # growing

    def test_candidates_and_examples_join_a_run(self) -> None:
        world = World.with_failures((K + 3, N + 4), 10)
        run = Run(self.open(budget=4 * K * N), world, 5).go(20)
        run.grow(candidates=2)
        run.go(10)
        run.grow(examples=4)
        run.go(10)
        run.grow(candidates=1, examples=0)
        run.finish()
        assert set(run.pairs) == {Pair(i, j) for i in range(K + 3) for j in range(N + 4)}
        assert len(run.pairs) == (K + 3) * (N + 4)
        estimates = run.selector.estimates()
        assert estimates.mean.shape == estimates.lower.shape == estimates.n.shape == (K + 3,)

    def test_a_run_may_begin_without_candidates(self) -> None:
        run = Run(self.open(0, N, budget=40 * N), World.with_failures((2, N), 11))
        assert run.ask(3) == []
        with pytest.raises(ValueError, match="no candidate"):
            run.selector.best()
        run.grow(candidates=2)
        assert len(run.finish().pairs) == 2 * N

    # answering

    def test_there_is_always_an_answer(self) -> None:
        run = Run(self.open(), World.with_failures((K, N), 12), 4)
        for _ in range(12):
            verdict, ranking = run.selector.best(), run.selector.ranking()
            assert sorted(ranking) == list(range(K))
            assert (verdict.best, verdict.runner_up) == tuple(ranking[:2])
            assert run.selector.top(3) == tuple(ranking[:3])
            run.go(5)

    def test_estimates_are_in_range_and_the_callers_to_keep(self) -> None:
        run = Run(self.open(), World.with_failures((K, N), 13), 4).go(30)
        estimates = run.selector.estimates()
        known = ~np.isnan(estimates.mean)
        assert ((estimates.mean[known] >= 0) & (estimates.mean[known] <= 1)).all()
        assert (estimates.lower >= 0).all()
        assert (estimates.upper <= 1).all()
        assert (estimates.lower <= estimates.upper).all()
        for array in (estimates.mean, estimates.lower, estimates.n, estimates.pending):
            array[:] = 0
        assert run.selector.estimates().n.sum() > 0
        assert run.selector.estimates().pending.sum() > 0

    def test_a_single_candidate_is_the_best(self) -> None:
        selector = Run(self.open(1), World.with_failures((1, N), 14)).go(3).selector
        assert selector.best().best == 0
        assert selector.best().runner_up is None

    def test_it_beats_uniform_sampling_on_an_easy_problem(self) -> None:
        if not self.learns:
            pytest.skip("the rule does not look at scores")
        assert wins_more_often(
            self.make, self.easy_budget, EASY_WORLDS, than=_uniform_wins(self.easy_budget)
        )

    # anything

    def test_any_interleaving_keeps_the_counts_right(self) -> None:
        acts = st.lists(
            st.tuples(st.sampled_from(["ask", "tell", "again", "rows", "columns"]), st.integers(0)),
            max_size=40,
        )

        @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
        @given(acts, st.integers(0, 3))
        def check(acts: list[tuple[str, int]], seed: int) -> None:
            budget = 2000 if seed % 2 else 12
            Counts(self.open(3, 5, seed=seed, budget=budget), seed).follow(acts)

        check()


@cache
def _uniform_wins(budget: int) -> float:
    return expected_uniform_wins(budget, EASY_WORLDS)
