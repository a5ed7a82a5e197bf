"""Run one rule in one world and note its answer at several budgets."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeAlias

import numpy as np

from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import Problem, Tell
from bestarm_agent.simulation.world import World

SelectorFactory: TypeAlias = Callable[[Problem], Selector]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a rule says once a budget is used up. Candidates are rows of the unshuffled matrix.

    Attributes:
        budget: pairs that might be evaluated.
        evaluated: pairs that were; fewer if the rule had nothing more to ask.
        best: the rule's own verdict.
        highest: the candidate of the highest estimate; differs from ``best`` where a rule has ruled
            that one out before.
        ranking: the rule's order of the candidates, the first ``depth`` of them.
        cost: what the evaluated pairs cost, in the matrix's unit.
        seconds: virtual time since the start.
        most_pulls: the largest number of pairs evaluated on one candidate.
    """

    budget: int
    evaluated: int
    best: int
    highest: int
    ranking: tuple[int, ...]
    cost: float
    seconds: float
    most_pulls: int


@dataclass(frozen=True, slots=True)
class Replay:
    """One rule in one world.

    Attributes:
        answers: one per budget, in their order.
        pulls: pairs evaluated, all reruns together.
        cpu_seconds: time that choosing and telling them took, the simulation's own share
            (one or two microseconds a pull) included.
    """

    answers: tuple[Answer, ...]
    pulls: int
    cpu_seconds: float


def replay(
    make: SelectorFactory,
    world: World,
    budgets: Sequence[int],
    *,
    seed: int = 0,
    depth: int = 10,
    track_intervals: bool = False,
    cpu_clock: Callable[[], float] = time.process_time,
) -> Replay:
    """Run a rule in a world.

    Budgets count pairs, so the rule works per pair, whatever pairs cost; ``spending`` counts money.
    An anytime rule runs once and is looked at whenever a budget's number of outcomes has been
    told. A rule that plans for its budget is told each one and run afresh for it.

    Args:
        make: builds the rule for a problem.
        world: answers its calls.
        budgets: rising numbers of pairs, each >= 1.
        seed: the rule's own seed, >= 0.
        depth: how many candidates of the ranking to keep, >= 1.
        track_intervals: whether the rule computes intervals (slower, only ``Answer.best`` of rules
            that look at them can change).
        cpu_clock: seconds of processor time.

    Returns:
        The answers and what they took.

    Raises:
        ValueError: ``budgets`` are not rising numbers from 1.
    """
    if not budgets or list(budgets) != sorted(set(budgets)) or budgets[0] < 1:
        raise ValueError(f"budgets must be rising numbers of at least 1, got {list(budgets)}")
    n_candidates, n_examples = world.shape

    def start(budget: int | None) -> Selector:
        return make(
            Problem(
                n_candidates,
                n_examples,
                seed=seed,
                budget=budget,
                track_intervals=track_intervals,
            )
        )

    selector = start(budgets[-1])
    if selector.anytime:
        return _Run(selector, world, depth).through(budgets, cpu_clock)
    reruns = [_Run(start(b), world, depth).through([b], cpu_clock) for b in budgets]
    return Replay(
        tuple(answer for rerun in reruns for answer in rerun.answers),
        sum(rerun.pulls for rerun in reruns),
        sum(rerun.cpu_seconds for rerun in reruns),
    )


class _Run:
    """One selector on its way through rising budgets."""

    def __init__(self, selector: Selector, world: World, depth: int) -> None:
        self._selector = selector
        self._world = world
        self._depth = depth
        self._now = 0.0
        self._told = 0
        self._cost = 0.0
        self._answers: list[Answer] = []

    def through(self, budgets: Sequence[int], cpu_clock: Callable[[], float]) -> Replay:
        start = cpu_clock()
        drive = self._drive_in_step if self._world.conditions.in_step else self._drive_by_clock
        drive(budgets)
        while len(self._answers) < len(budgets):  # it stopped early: its last word stands
            self._answer(budgets[len(self._answers)])
        return Replay(tuple(self._answers), self._told, cpu_clock() - start)

    def _drive_in_step(self, budgets: Sequence[int]) -> None:
        """Ask a batch, tell it whole, ask the next; batches are cut at the budgets."""
        selector, world, batch = self._selector, self._world, self._world.conditions.batch
        for budget in budgets:
            while self._told < budget:
                asks = selector.ask(min(batch, budget - self._told))
                if not asks:
                    return
                self._tell([world.outcome(ask) for ask in asks])
            self._answer(budget)

    def _drive_by_clock(self, budgets: Sequence[int]) -> None:
        """Keep calls in flight; each is told when its virtual time has come."""
        flying: list[tuple[float, int, Tell]] = []
        while True:
            self._fill(flying, budgets[-1])
            if not flying:
                return
            self._now, _, tell = heappop(flying)
            self._tell([tell])
            if self._told == budgets[len(self._answers)]:
                self._answer(self._told)

    def _fill(self, flying: list[tuple[float, int, Tell]], limit: int) -> None:
        """Ask for whole batches while there is room for them and budget left."""
        conditions = self._world.conditions
        while (left := limit - self._told - len(flying)) > 0:
            if conditions.in_flight - len(flying) < conditions.batch:
                return
            asks = self._selector.ask(min(conditions.batch, left))
            if not asks:
                return
            for ask in asks:
                tell = self._world.outcome(ask)
                heappush(flying, (self._now + self._world.duration(tell), ask.seq, tell))

    def _tell(self, tells: list[Tell]) -> None:
        self._selector.tell(tells)
        self._told += len(tells)
        for tell in tells:
            self._cost += tell.cost

    def _answer(self, budget: int) -> None:
        spent = Spent(budget, self._told, self._cost, self._now)
        self._answers.append(answer_of(self._selector, self._world, self._depth, spent))


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run has used up at some moment; see ``Answer`` for the fields."""

    budget: int
    evaluated: int
    cost: float
    seconds: float = 0.0


def answer_of(selector: Selector, world: World, depth: int, spent: Spent) -> Answer:
    """What a rule says at this moment, in rows of the unshuffled matrix."""
    estimates, rows = selector.estimates(), world.rows
    return Answer(
        budget=spent.budget,
        evaluated=spent.evaluated,
        best=rows[selector.best().best],
        highest=rows[int(np.argmax(np.nan_to_num(estimates.mean, nan=-1.0)))],
        ranking=tuple(rows[i] for i in selector.top(depth)),
        cost=spent.cost,
        seconds=spent.seconds,
        most_pulls=int((estimates.n + estimates.void).max()),
    )
