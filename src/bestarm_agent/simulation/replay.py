"""Replays of one rule on simulated calls, with its answers at several budgets."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TypeAlias

import numpy as np

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Problem, Tell
from bestarm_agent.simulation.simulated_calls import SimulatedCalls

SelectorFactory: TypeAlias = Callable[[Problem], Pairs]


@dataclass(frozen=True, slots=True)
class Answer:
    """A rule's answer at a budget. Candidates are rows of the unshuffled matrix."""

    budget: int  # pairs that might be evaluated
    evaluated: int  # pairs that were; fewer if the rule had nothing more to ask
    best: int  # the rule's own verdict
    # the candidate of the highest estimate; differs from ``best`` where the rule has eliminated it
    highest: int
    ranking: tuple[int, ...]  # the rule's order of the candidates, the first ``depth`` of them
    cost: float  # of the evaluated pairs, in the matrix's unit
    seconds: float  # virtual time since the start
    most_pulls: int  # the largest number of pairs evaluated on one candidate


@dataclass(frozen=True, slots=True)
class Replay:
    """One rule, replayed."""

    answers: tuple[Answer, ...]  # one per budget, in their order
    pulls: int  # pairs evaluated, all reruns together
    cpu_seconds: float  # processor time of asking and telling; 1 to 2 us a pull are simulation


def replay(
    make: SelectorFactory,
    calls: SimulatedCalls,
    budgets: Sequence[int],
    *,
    seed: int = 0,
    depth: int = 10,
    track_intervals: bool = False,
    cpu_clock: Callable[[], float] = time.process_time,
) -> Replay:
    """Run a rule on simulated calls.

    ``budgets`` are rising numbers of pairs from 1, whatever they cost; ``replay_per_cost`` counts
    money. An anytime rule runs once and answers at each budget. A rule that plans for its budget
    runs again for each one. ``Answer.ranking`` keeps ``depth`` places. ``track_intervals`` is
    slower, and changes ``Answer.best`` of rules that use intervals.
    """
    if not budgets or list(budgets) != sorted(set(budgets)) or budgets[0] < 1:
        raise ValueError(f"budgets must be rising numbers of at least 1, got {list(budgets)}")
    n_candidates, n_examples = calls.shape

    def start(budget: int | None) -> Pairs:
        return make(
            Problem(
                n_candidates,
                n_examples,
                seed=seed,
                budget=budget,
                track_intervals=track_intervals,
                axes=calls.axes,
            )
        )

    selector = start(budgets[-1])
    if selector.rule.anytime:
        return _Run(selector, calls, depth).through(budgets, cpu_clock)
    reruns = [_Run(start(b), calls, depth).through([b], cpu_clock) for b in budgets]
    return Replay(
        tuple(answer for rerun in reruns for answer in rerun.answers),
        sum(rerun.pulls for rerun in reruns),
        sum(rerun.cpu_seconds for rerun in reruns),
    )


class _Run:
    def __init__(self, selector: Pairs, calls: SimulatedCalls, depth: int) -> None:
        self._selector = selector
        self._calls = calls
        self._depth = depth
        self._now = 0.0
        self._evaluated = 0
        self._cost = 0.0
        self._answers: list[Answer] = []

    def through(self, budgets: Sequence[int], cpu_clock: Callable[[], float]) -> Replay:
        start = cpu_clock()
        drive = self._drive_in_step if self._calls.conditions.in_step else self._drive_by_clock
        drive(budgets)
        while len(self._answers) < len(budgets):  # it stopped early: its last word stands
            self._answer(budgets[len(self._answers)])
        return Replay(tuple(self._answers), self._evaluated, cpu_clock() - start)

    def _drive_in_step(self, budgets: Sequence[int]) -> None:
        """Ask a batch, tell it whole, ask the next; batches are cut at the budgets."""
        selector, calls, batch = self._selector, self._calls, self._calls.conditions.batch
        for budget in budgets:
            while self._evaluated < budget:
                asks = selector.ask(min(batch, budget - self._evaluated))
                if not asks:
                    return
                self._tell([calls.outcome(ask) for ask in asks])
            self._answer(budget)

    def _drive_by_clock(self, budgets: Sequence[int]) -> None:
        """Keep calls in flight; each is told when its virtual time has come."""
        in_flight: list[tuple[float, int, Tell]] = []
        while True:
            self._fill(in_flight, budgets[-1])
            if not in_flight:
                return
            self._now, _, tell = heappop(in_flight)
            self._tell([tell])
            if self._evaluated == budgets[len(self._answers)]:
                self._answer(self._evaluated)

    def _fill(self, in_flight: list[tuple[float, int, Tell]], limit: int) -> None:
        """Ask for whole batches while there is room for them and budget left."""
        conditions = self._calls.conditions
        while (left := limit - self._evaluated - len(in_flight)) > 0:
            if conditions.in_flight - len(in_flight) < conditions.batch:
                return
            asks = self._selector.ask(min(conditions.batch, left))
            if not asks:
                return
            for ask in asks:
                tell = self._calls.outcome(ask)
                heappush(in_flight, (self._now + self._calls.duration(tell), ask.seq, tell))

    def _tell(self, tells: list[Tell]) -> None:
        self._selector.tell(tells)
        self._evaluated += len(tells)
        for tell in tells:
            self._cost += tell.cost

    def _answer(self, budget: int) -> None:
        spent = Spent(budget, self._evaluated, self._cost, self._now)
        self._answers.append(answer_of(self._selector, self._calls, self._depth, spent))


@dataclass(frozen=True, slots=True)
class Spent:
    """Consumption of a run at some moment; see ``Answer`` for the fields."""

    budget: int
    evaluated: int
    cost: float
    seconds: float = 0.0


def answer_of(selector: Pairs, calls: SimulatedCalls, depth: int, spent: Spent) -> Answer:
    """Return a rule's present answer, in rows of the unshuffled matrix."""
    estimates, rows = selector.estimates(), calls.rows
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
