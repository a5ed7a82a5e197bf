"""Drives selectors over made-up score matrices and records every event, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import Ask, Pair, Problem, State, Tell


@dataclass(frozen=True, slots=True)
class Growth:
    """Candidates and examples joined."""

    candidates: int = 0
    examples: int = 0


Event: TypeAlias = Ask | Tell | Growth


def replay(events: Iterable[Event], selector: Selector) -> Selector:
    """Feed a fresh selector what another one went through; return it."""
    for event in events:
        match event:
            case Ask():
                selector.adopt([event])
            case Tell():
                selector.tell([event])
            case Growth(candidates, examples):
                join(selector, candidates)
                selector.add_examples(examples)
    return selector


def join(selector: Selector, count: int) -> None:
    """Let candidates join; with a cost of a tenth each where the rule works per unit of cost."""
    selector.add_candidates(count, None if selector.problem.costs is None else [0.1] * count)


@dataclass(slots=True)
class World:
    """What every pair will turn out to be.

    Attributes:
        scores: (K, N) scores in [0, 1]; as large as the grid may grow.
        states: (K, N) outcome states: DONE, FAILED or VOID.
    """

    scores: NDArray[np.float64]
    states: NDArray[np.int8]

    @classmethod
    def bernoulli(cls, means: Iterable[float], n_examples: int, seed: int) -> World:
        """0/1 scores with the given row means, up to chance."""
        column = np.asarray(list(means))[:, None]
        rng = np.random.default_rng([seed, 71])
        scores = (rng.random((len(column), n_examples)) < column).astype(float)
        return cls(scores, np.full(scores.shape, int(State.DONE), dtype=np.int8))

    @classmethod
    def with_failures(cls, shape: tuple[int, int], seed: int) -> World:
        """Graded scores, a tenth of the pairs FAILED with score 0, a tenth VOID."""
        rng = np.random.default_rng([seed, 72])
        kinds = [State.DONE] * 8 + [State.FAILED, State.VOID]
        states = rng.choice(np.array(kinds, dtype=np.int8), size=shape)
        scores = np.where(states == State.DONE, np.round(rng.random(shape), 2), 0.0)
        return cls(scores, states)

    def outcome(self, ask: Ask) -> Tell:
        """What comes of an ask; costs a tenth."""
        state = State(int(self.states[ask.pair]))
        return Tell(ask.seq, state, float(self.scores[ask.pair]), cost=0.1)

    def mean(self, n_candidates: int, n_examples: int) -> NDArray[np.float64]:
        """(K,) true means of the pairs that are not void."""
        known = self.states[:n_candidates, :n_examples] != State.VOID
        total = np.where(known, self.scores[:n_candidates, :n_examples], 0.0).sum(axis=1)
        means: NDArray[np.float64] = total / known.sum(axis=1)
        return means


@dataclass(slots=True)
class Run:
    """A selector at work on a world, with several calls in flight that return in any order.

    Attributes:
        selector: at work.
        world: what it finds.
        in_flight: how many calls may be under way.
        seed: of the order in which calls return.
        events: all that happened, in order.
        waiting: asks under way.
    """

    selector: Selector
    world: World
    in_flight: int = 1
    seed: int = 0
    events: list[Event] = field(default_factory=list)
    waiting: list[Ask] = field(default_factory=list)

    @property
    def pairs(self) -> list[Pair]:
        """The pairs asked so far, in order."""
        return [event.pair for event in self.events if isinstance(event, Ask)]

    def ask(self, n: int = 1, *, available: NDArray[np.bool_] | None = None) -> list[Ask]:
        """Ask for up to ``n`` pairs and send them off."""
        asks = self.selector.ask(n, available=available)
        self.events += asks
        self.waiting += asks
        return asks

    def tell(self, place: int = 0) -> None:
        """Let one of the waiting calls return."""
        tell = self.world.outcome(self.waiting.pop(place))
        self.events.append(tell)
        self.selector.tell([tell])

    def grow(self, candidates: int = 0, examples: int = 0) -> None:
        """Let candidates and examples join."""
        self.events.append(Growth(candidates, examples))
        join(self.selector, candidates)
        self.selector.add_examples(examples)

    def go(self, n_asks: int | None = None) -> Run:
        """Go on until ``n_asks`` more were asked, or until there is nothing left to do."""
        rng = np.random.default_rng([self.seed, 73])
        left = self.selector.table.n_candidates * self.selector.table.n_examples
        left = left if n_asks is None else n_asks
        while left > 0:
            asked = self.ask(min(left, self.in_flight - len(self.waiting)))
            left -= len(asked)
            if left == 0 or not (asked or self.waiting):
                break
            if len(self.waiting) == self.in_flight or not asked:
                self.tell(int(rng.integers(len(self.waiting))))
        return self

    def finish(self) -> Run:
        """Go on to the end, and let all calls return."""
        while True:
            self.go()
            if not self.waiting:
                return self
            self.tell()


def count_wins(make: Callable[[Problem], Selector], budget: int, seeds: range) -> int:
    """In how many easy worlds a rule names the best candidate after ``budget`` pulls.

    Two of 24 candidates are good (.8 and .68), the others poor (.05 to .35); 150 examples.
    """
    wins = 0
    for seed in seeds:
        rng = np.random.default_rng([seed, 74])
        means = rng.permutation([0.8, 0.68, *np.linspace(0.05, 0.35, 22)])
        world = World.bernoulli(means, 150, seed)
        selector = make(Problem(24, 150, seed=seed, budget=budget, track_intervals=False))
        Run(selector, world).go(budget)
        finish_pending(selector, world)
        wins += selector.best().best == int(np.argmax(world.mean(24, 150)))
    return wins


def finish_pending(selector: Selector, world: World) -> None:
    """Tell a selector what came of all that is in flight."""
    table = selector.table
    for seq in np.flatnonzero(table.state == State.PENDING):
        pair = Pair(int(table.candidate[seq]), int(table.example[seq]))
        selector.tell([world.outcome(Ask(int(seq), pair, None, ""))])
