"""Conformance tests for selection rules: a pytest class to inherit.

::

    from bestarm_agent.testing import SelectorSuite

    class TestMyRule(SelectorSuite):
        def make(self, problem):
            return MyRule(problem)
"""
# ruff: noqa: D102 - the name of a test says what it checks

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import Self, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import MOVE, Ask, Moves, Pair, Problem, State, Stop, Tell

K, N = 6, 12
TIGHT = 40  # pairs: a rule that plans for a budget must drop candidates

Event: TypeAlias = Ask | Tell | int  # a number: so many candidates joined


def moves_of(events: Sequence[Ask | Tell]) -> Moves:
    """Put events into columns."""
    rows: list[tuple[float, ...]] = []
    for event in events:
        if isinstance(event, Ask):
            rows.append((event.seq, *event.pair, State.PENDING, nan, nan, nan))
        else:
            score = nan if event.state is State.VOID else event.score
            gold = nan if event.gold is None else event.gold
            rows.append((~event.seq, -1, -1, event.state, score, event.cost, gold))
    return np.array(rows, dtype=MOVE)


def replay(events: Iterable[Event], selector: Pairs) -> Pairs:
    """Feed a selector the events of another one; return it.

    Candidates join at a cost of a tenth each where the rule works per unit of cost.
    """
    moves: list[Ask | Tell] = []
    for event in events:
        if isinstance(event, int):
            selector.replay(moves_of(moves))
            moves = []
            costs = None if selector.rule.problem.costs is None else [0.1] * event
            selector.add_candidates(event, costs)
        else:
            moves.append(event)
    selector.replay(moves_of(moves))
    return selector


@dataclass(slots=True)
class World:
    """Scores and outcomes of all pairs."""

    scores: NDArray[np.float64]  # (K, N) scores in [0, 1]; as large as the grid may grow
    states: NDArray[np.int8]  # (K, N) outcome states: DONE, FAILED or VOID

    @classmethod
    def with_failures(cls, shape: tuple[int, int], seed: int) -> Self:
        """Draw graded scores, a tenth of the pairs FAILED with score 0, a tenth VOID."""
        rng = np.random.default_rng([seed, 72])
        kinds = [State.DONE] * 8 + [State.FAILED, State.VOID]
        states = rng.choice(np.array(kinds, dtype=np.int8), size=shape)
        scores = np.where(states == State.DONE, np.round(rng.random(shape), 2), 0.0)
        return cls(scores, states)

    def outcome(self, ask: Ask) -> Tell:
        """Return the outcome of an ask, at a cost of a tenth."""
        state = State(int(self.states[ask.pair]))
        return Tell(ask.seq, state, float(self.scores[ask.pair]), cost=0.1)


@dataclass(slots=True)
class WorldRun:
    """A run of a selector on a world, with several calls in flight that return in any order."""

    selector: Pairs  # at work
    world: World  # what it finds
    in_flight: int = 1  # how many calls may be under way
    seed: int = 0  # of the order in which calls return
    events: list[Event] = field(default_factory=list)  # all that happened, in order
    waiting: list[Ask] = field(default_factory=list)  # asks under way

    @property
    def pairs(self) -> list[Pair]:
        """The pairs asked so far, in order."""
        return [event.pair for event in self.events if isinstance(event, Ask)]

    def ask(self, n: int = 1, *, allowed: NDArray[np.bool_] | None = None) -> list[Ask]:
        """Ask for up to ``n`` pairs."""
        asks = self.selector.ask(n, allowed=allowed)
        self.events += asks
        self.waiting += asks
        return asks

    def tell(self, place: int = 0) -> None:
        """Let one of the waiting calls return."""
        tell = self.world.outcome(self.waiting.pop(place))
        self.events.append(tell)
        self.selector.tell([tell])

    def grow(self, candidates: int) -> None:
        """Add candidates."""
        self.events.append(candidates)
        replay(self.events[-1:], self.selector)

    def go(self, n_asks: int | None = None) -> WorldRun:
        """Run until ``n_asks`` more were asked, or until nothing is left to ask."""
        # The order in which calls return is drawn, since rules must not depend on it.
        rng = np.random.default_rng([self.seed, 73])
        table = self.selector.table
        n_left = table.n_candidates * table.n_examples if n_asks is None else n_asks
        while n_left > 0:
            asked = self.ask(min(n_left, self.in_flight - len(self.waiting)))
            n_left -= len(asked)
            if n_left == 0 or not (asked or self.waiting):
                break
            # A call returns only if there is no place for another, or nothing else to ask: as many
            # as allowed are always under way, which is when a rule knows least.
            if len(self.waiting) == self.in_flight or not asked:
                self.tell(int(rng.integers(len(self.waiting))))
        return self

    def finish(self) -> WorldRun:
        """Run to the end, and let all calls return."""
        while True:
            self.go()
            if not self.waiting:
                return self
            self.tell()


class SelectorSuite:
    """Conformance tests of one selection rule."""

    def make(self, problem: Problem) -> Rule:
        """Make the rule under test; ``problem`` has a budget that allows the whole grid."""
        raise NotImplementedError

    def open(self, k: int = K, n: int = N, *, seed: int = 0, budget: int | None = None) -> Pairs:
        """Open the rule on a small grid."""
        budget = budget or max(1, 4 * k * n)
        return Pairs(self.make(Problem(k, n, seed=seed, budget=budget, stop_when_separated=False)))

    @pytest.mark.parametrize("in_flight", [1, 32])
    def test_every_pair_is_asked_once_until_none_is_left(self, in_flight: int) -> None:
        run = WorldRun(self.open(), World.with_failures((K, N), 1), in_flight).finish()
        assert len(run.pairs) == len(set(run.pairs)) == K * N
        assert run.selector.stopped() is Stop.EXHAUSTED
        assert run.selector.ask(5) == []

    @pytest.mark.parametrize("in_flight", [1, 5, 32])
    def test_a_plan_for_a_budget_keeps_to_it(self, in_flight: int) -> None:
        for seed in range(5):
            selector = self.open(seed=seed, budget=TIGHT)
            if type(selector.rule).anytime:
                pytest.skip("the rule does not plan for a budget")
            run = WorldRun(selector, World.with_failures((K, N), seed), in_flight, seed).finish()
            # A plan in rounds gives each candidate of a round as many pairs, so up to K may remain
            # unused.
            assert TIGHT - K <= len(run.pairs) <= TIGHT
            assert selector.stopped() is Stop.BUDGET
            assert selector.ask(5) == []
            selector.add_budget(20)
            assert len(run.finish().pairs) <= TIGHT + 20

    def test_only_allowed_candidates_are_asked(self) -> None:
        selector, world = self.open(), World.with_failures((K, N), 3)
        run = WorldRun(selector, world)
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

    def test_looking_ahead_changes_nothing(self) -> None:
        world = World.with_failures((K, N), 4)
        curious, plain = WorldRun(self.open(), world, 4), WorldRun(self.open(), world, 4)
        for size in (3, 9, 20, 33):
            for mask in (None, np.arange(K) > 2, np.arange(K) % 2 == 0, np.zeros(K, dtype=bool)):
                curious.selector.next_choice(mask)
            curious.selector.answer.estimates()
            curious.selector.answer.best()
            # People look at a running study at any time, and what it asks must not depend on that.
            assert curious.go(size).pairs == plain.go(size).pairs

    @pytest.mark.parametrize("in_flight", [1, 7])
    @pytest.mark.parametrize("budget", [None, TIGHT])
    def test_a_rebuilt_selector_goes_on_alike(self, in_flight: int, budget: int | None) -> None:
        world = World.with_failures((K + 2, N + 5), 9)
        for size in range(0, 2 * K * N // 3, 5):
            warm = WorldRun(self.open(budget=budget), world, in_flight, seed=size).go(size // 2)
            warm.grow(candidates=size % 2)
            warm.go(size - size // 2)
            # A resumed run rebuilds its rule from the log, with calls that were under way at the
            # kill. It must go on as the one that was never stopped.
            rebuilt = replay(warm.events, self.open(budget=budget))
            cold = WorldRun(rebuilt, world, in_flight, seed=size + 1)
            cold.waiting = list(warm.waiting)
            warm.seed, n_before = cold.seed, len(warm.pairs)
            assert cold.go(20).pairs == warm.go(20).pairs[n_before:]
            np.testing.assert_array_equal(
                cold.selector.answer.ranking(), warm.selector.answer.ranking()
            )

    def test_nothing_works_at_all(self) -> None:
        world = World.with_failures((K, N), 7)
        world.states[:] = State.VOID
        selector = WorldRun(self.open(), world, 4).finish().selector
        assert selector.stopped() is Stop.EXHAUSTED
        assert np.isnan(selector.table.mean()).all()
        # Without a single score nothing speaks for any candidate, and a rule must say so.
        assert selector.answer.best().tied == tuple(
            i for i in range(K) if i != selector.answer.best().best
        )

    def test_candidates_join_a_run(self) -> None:
        world = World.with_failures((K + 3, N), 10)
        run = WorldRun(self.open(budget=4 * K * N), world, 5).go(20)
        run.grow(candidates=2)
        run.go(20)
        run.grow(candidates=1)
        run.finish()
        assert set(run.pairs) == {Pair(i, j) for i in range(K + 3) for j in range(N)}
        assert len(run.pairs) == (K + 3) * N
        estimates = run.selector.answer.estimates()
        assert estimates.mean.shape == estimates.lower.shape == estimates.n.shape == (K + 3,)
