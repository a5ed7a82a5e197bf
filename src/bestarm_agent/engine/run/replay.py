"""A run rebuilt from its log: its state, and its rule fed with what was asked and told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.events import (
    Asked,
    BudgetSet,
    CandidatesAdded,
    CandidatesBarred,
    Event,
    ExamplesAdded,
    Told,
)
from bestarm_agent.domain.example import Slice
from bestarm_agent.domain.outcome import Failed, Outcome, Scored
from bestarm_agent.domain.spend import Budget, Spend, usd
from bestarm_agent.engine.results.objectives import ObjectiveTracker
from bestarm_agent.engine.results.trajectory import Trajectory
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Ask, IntArray, Pair, Problem, State, Tell
from bestarm_agent.store.run_state import RunState

_MOST_SPREAD = 1e4  # of costs, as selectors see them


def gold_of(outcome: Outcome) -> float | None:
    """Return the trusted score in a certification, or None."""
    return outcome.gold if isinstance(outcome, Scored) else None


def cost_of(spend: Spend) -> float:
    """Return the cost of a pull for selectors, in dollars."""
    return usd(spend.usd_nanos)


def tell_of(told: Told) -> Tell:
    """Rebuild the selector's tell from the log."""
    cost = cost_of(told.outcome.spend)
    if told.score is None:
        return Tell(told.seq, State.VOID, cost=cost)
    state = State.FAILED if isinstance(told.outcome, Failed) else State.DONE
    return Tell(told.seq, state, told.score, cost, gold_of(told.outcome))


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the problem when a selector began."""

    n_candidates: int  # K
    n_examples: int  # N
    budget: Budget = field(default_factory=Budget)  # the caps
    # (K,) most dollars that a call can cost; None where unknown, or as a whole
    costs: tuple[float | None, ...] | None = None
    slices: tuple[Slice, ...] = ()  # of the examples

    def problem(self, *, per_dollar: bool) -> Problem:
        """Return the selector's problem, without the rule's own settings."""
        costs = known_costs(self.costs or ()) if per_dollar else None
        pulls = planned_pulls(self.budget, costs)
        return Problem(
            self.n_candidates,
            self.n_examples,
            budget=pulls,
            open_ended=self.budget == Budget(),
            costs=costs,
        )


def initial_size(events: Iterable[Event]) -> Size:
    """Return the size of the problem when the first pair was asked."""
    n_candidates, n_examples, budget = 0, 0, Budget()
    costs: list[float | None] = []
    slices: tuple[Slice, ...] = ()
    for event in events:
        match event:
            case CandidatesAdded():
                n_candidates += len(event.candidates)
                costs += event.costs
            case ExamplesAdded():
                n_examples += len(event.ids)
                slices += event.slices
            case BudgetSet():
                budget = event.budget
            case Asked():
                break
    return Size(n_candidates, n_examples, budget, tuple(costs), slices)


def known_costs(costs: Sequence[float | None], highest: float = 0.0) -> tuple[float, ...] | None:
    """Return the expected cost of a pull of each candidate before any was made, > 0.

    ``costs`` are the most dollars that a call of each can cost, ``highest`` the most among other
    candidates. A free one counts as a ten-thousandth of the most expensive. None where a price is
    not known, or everything is free.
    """
    known = [cost for cost in costs if cost is not None]
    least = max([highest, *known], default=0.0) / _MOST_SPREAD
    if len(known) < len(costs) or not least > 0:
        return None
    return tuple(max(cost, least) for cost in known)


def planned_pulls(budget: Budget, costs: tuple[float, ...] | None) -> int | None:
    """Return the pulls that a rule may plan for: the cap, or what the dollars pay on average."""
    if not costs or budget.usd_nanos is None:
        return budget.pulls
    paid = max(1, int(usd(budget.usd_nanos) * len(costs) / sum(costs)))
    return paid if budget.pulls is None else min(paid, budget.pulls)


OpenPairs: TypeAlias = Callable[[Size, Sequence[Candidate]], Pairs]
TrackObjective: TypeAlias = Callable[[Pairs], ObjectiveTracker | None]


class Replayer:
    """Feeds a log, event by event, to a selector of ``initial_size``."""

    def __init__(self, selector: Pairs) -> None:
        self.selector = selector
        self._budget = Budget()
        self._started = False

    def ask(self, ask: Ask) -> None:
        """Feed the next ask."""
        self._started = True
        self.selector.adopt([ask])

    def feed(self, event: Event) -> None:
        """Feed the next event; the selector already holds the events before the first ask."""
        selector = self.selector
        match event:
            case Asked():
                pair = Pair(event.candidate, event.example)
                self.ask(Ask(event.seq, pair, event.propensity, event.reason))
            case Told():
                selector.tell([tell_of(event)])
            case CandidatesAdded() if self._started:
                join(selector, event.candidates, event.costs)
            case CandidatesBarred():
                selector.bar(event.candidates)
            case ExamplesAdded() if self._started:
                selector.add_examples(len(event.ids))
            case BudgetSet():
                if self._started:
                    move_budget(selector, self._budget, event.budget)
                self._budget = event.budget
            case _:
                return


def replay(events: Iterable[Event], selector: Pairs) -> None:
    """Feed a selector of ``initial_size`` a whole log, in order."""
    replayer = Replayer(selector)
    for event in events:
        replayer.feed(event)


class RunReplay:
    """Everything that a log amounts to.

    Args:
        open_pairs: makes the source of pairs, of the size of the problem at the first ask.
        track: makes the objective of that source; None if it is simply the best.
        follows: whether the trajectory is kept, too.
    """

    def __init__(
        self, open_pairs: OpenPairs, track: TrackObjective, *, follows: bool = True
    ) -> None:
        self.state = RunState()
        self.trajectory = Trajectory()
        self.size: Size  # of the problem at the first ask, once there is a source of pairs
        self.objective: ObjectiveTracker | None = None
        self._open_pairs = open_pairs
        self._track = track
        self._follows = follows
        self._head: list[Event] = []  # the log before the first ask
        self._replayer: Replayer | None = None

    def feed(self, events: Iterable[Event]) -> None:
        """Feed the next events; raise StoreError if one cannot come there."""
        for event in events:
            self.state.apply(event)
            self._take(event)

    def take(self, page: Sequence[tuple[str, str]]) -> None:
        """Feed the next events of a log, as ``Store.texts_of`` yields them."""
        for move in self.state.take(page):
            if isinstance(move, int) and self.objective is None:
                self._take_pair(move)
            elif isinstance(move, int):
                self._take(self.state.asks[move] if move >= 0 else self.state.told[~move])
            else:
                self._take(move)

    async def take_all(self, pages: AsyncIterable[Sequence[tuple[str, str]]]) -> None:
        """Feed a log some events at a time, in a thread."""
        async for page in pages:
            await asyncio.to_thread(self.take, page)

    @property
    def pairs(self) -> Pairs:
        """The source of pairs, fed the log; to be looked at once the log, or an ask, is fed."""
        return (self._replayer or self._begin()).selector

    def _begin(self) -> Replayer:
        self.size = initial_size(self._head)
        pairs = self._open_pairs(self.size, self.state.candidates)
        self._replayer = Replayer(pairs)
        self.objective = self._track(pairs)
        for event in self._head:
            self._take(event)
        self._head.clear()
        return self._replayer

    def _take(self, event: Event) -> None:
        if self._replayer is None and not isinstance(event, Asked):
            self._head.append(event)
            return
        replayer = self._replayer or self._begin()
        replayer.feed(event)
        if self.objective is not None:
            self.objective.take(event)
        if isinstance(event, Told):
            self._told(replayer)
        elif isinstance(event, CandidatesBarred):
            self.trajectory.barred(event.candidates, len(self.state.asks))

    def _take_pair(self, move: int) -> None:
        """Feed an ask, or the score of one, by the numbers that the state has of it."""
        replayer = self._replayer or self._begin()
        if move >= 0:
            replayer.ask(self.state.asks.ask(move))
            return
        told, seq = self.state.told, ~move
        cost = usd(told.usd_nanos_at(seq))
        replayer.selector.tell([Tell(seq, State.DONE, told.score_at(seq) or 0.0, cost)])
        self._told(replayer)

    def _told(self, replayer: Replayer) -> None:
        if self._follows:
            self.trajectory.told(replayer.selector)


def join(selector: Pairs, candidates: Sequence[Candidate], costs: Sequence[float | None]) -> None:
    """Add candidates to a selector, with costs if it works per dollar, axes if it knows them."""
    known, axes = selector.problem.costs, selector.problem.axes
    selector.add_candidates(
        len(candidates),
        known and known_costs(costs, max(known)),
        None if axes is None else axes_of(candidates),
    )


def axes_of(candidates: Sequence[Candidate]) -> IntArray:
    """Return the (K, 3) numbers of the candidates' models, prompts and parameters."""
    return np.array([one.levels for one in candidates], dtype=np.int64).reshape(-1, 3)


def move_budget(selector: Pairs, old: Budget, new: Budget) -> None:
    """Add pulls to a rule that plans for a number of them."""
    costs = selector.problem.costs
    before, after = planned_pulls(old, costs), planned_pulls(new, costs)
    plans = selector.problem.budget is not None
    if plans and before is not None and after is not None and after > before:
        selector.add_budget(after - before)
