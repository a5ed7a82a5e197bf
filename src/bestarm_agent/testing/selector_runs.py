"""Run selectors on made-up score matrices and record every event, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import Ask, Pair, Problem, State, Tell


@dataclass(frozen=True, slots=True)
class Growth:
    """A number of candidates and examples that joined."""

    candidates: int = 0
    examples: int = 0


Event: TypeAlias = Ask | Tell | Growth


def replay(events: Iterable[Event], selector: Pairs) -> Pairs:
    """Feed a fresh selector the events of another one; return it."""
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


def join(selector: Pairs, count: int) -> None:
    """Add candidates, at a cost of a tenth each where the rule works per unit of cost."""
    selector.add_candidates(count, None if selector.problem.costs is None else [0.1] * count)


@dataclass(slots=True)
class World:
    """Scores and outcomes of all pairs."""

    scores: NDArray[np.float64]  # (K, N) scores in [0, 1]; as large as the grid may grow
    states: NDArray[np.int8]  # (K, N) outcome states: DONE, FAILED or VOID

    @classmethod
    def bernoulli(cls, means: Iterable[float], n_examples: int, seed: int) -> World:
        """Draw 0/1 scores with the given chances per row."""
        column = np.asarray(list(means))[:, None]
        rng = np.random.default_rng([seed, 71])
        scores = (rng.random((len(column), n_examples)) < column).astype(float)
        return cls(scores, np.full(scores.shape, int(State.DONE), dtype=np.int8))

    @classmethod
    def with_failures(cls, shape: tuple[int, int], seed: int) -> World:
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

    def mean(self, n_candidates: int, n_examples: int) -> NDArray[np.float64]:
        """(K,) true means of the pairs that are not void."""
        known = self.states[:n_candidates, :n_examples] != State.VOID
        total = np.where(known, self.scores[:n_candidates, :n_examples], 0.0).sum(axis=1)
        means: NDArray[np.float64] = total / known.sum(axis=1)
        return means


@dataclass(slots=True)
class Run:
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

    def grow(self, candidates: int = 0, examples: int = 0) -> None:
        """Add candidates and examples."""
        self.events.append(Growth(candidates, examples))
        join(self.selector, candidates)
        self.selector.add_examples(examples)

    def go(self, n_asks: int | None = None) -> Run:
        """Run until ``n_asks`` more were asked, or until nothing is left to ask."""
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
        """Run to the end, and let all calls return."""
        while True:
            self.go()
            if not self.waiting:
                return self
            self.tell()


EASY_SHAPE = (24, 150)


def easy_world(seed: int) -> World:
    """Make a world of two good candidates (.8 and .68) and 22 poor ones (.05 to .35)."""
    rng = np.random.default_rng([seed, 74])
    means = rng.permutation([0.8, 0.68, *np.linspace(0.05, 0.35, 22)])
    return World.bernoulli(means, EASY_SHAPE[1], seed)


def wins_more_often(make: Callable[[Problem], Rule], budget: int, worlds: int, than: float) -> bool:
    """Return whether a rule names the best candidate in more than so many easy worlds.

    It has ``budget`` pulls in each. The count ends as soon as the answer is known.
    """
    wins = 0
    for seed in range(worlds):
        world = easy_world(seed)
        problem = Problem(*EASY_SHAPE, seed=seed, budget=budget, track_intervals=False)
        selector = Pairs(make(problem))
        Run(selector, world).go(budget)
        finish_pending(selector, world)
        wins += selector.best().best == int(np.argmax(world.mean(*EASY_SHAPE)))
        if wins > than or wins + worlds - seed - 1 <= than:
            break
    return wins > than


def expected_uniform_wins(budget: int, worlds: int, draws: int = 50) -> float:
    """Return in how many easy worlds uniform sampling names the best, on average over draws."""
    wins = 0
    n_candidates, n_examples = EASY_SHAPE
    for seed in range(worlds):
        world, rng = easy_world(seed), np.random.default_rng([seed, 75])
        best = int(np.argmax(world.mean(*EASY_SHAPE)))
        for _ in range(draws):
            cells = rng.choice(n_candidates * n_examples, budget, replace=False)
            rows = cells // n_examples
            seen = np.bincount(rows, minlength=n_candidates)
            total = np.bincount(rows, world.scores.ravel()[cells], n_candidates)
            means = np.where(seen > 0, total / np.maximum(seen, 1), -1.0)
            wins += int(rng.choice(np.flatnonzero(means == means.max()))) == best
    return wins / draws


def finish_pending(selector: Pairs, world: World) -> None:
    """Tell a selector the outcomes of all pairs in flight."""
    table = selector.table
    for seq in np.flatnonzero(table.state == State.PENDING):
        pair = Pair(int(table.candidate[seq]), int(table.example[seq]))
        selector.tell([world.outcome(Ask(int(seq), pair, None, ""))])
