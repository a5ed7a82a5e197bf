"""The state that a run's log amounts to, event by event, so that no log has to fit into memory.

One path leads from an event to the state of a run: a log that is read goes through it, and so does
everything that happens in a live run, so the log alone rebuilds the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from bestarm_agent.domain.events import (
    Asked,
    BudgetSet,
    CandidatesAdded,
    CandidatesBarred,
    Event,
    ExamplesAdded,
)
from bestarm_agent.domain.spend import NANOS_PER_USD, Budget, usd
from bestarm_agent.domain.values import Candidate, Example, Outcome, Slice
from bestarm_agent.engine.results.objectives import ObjectiveTracker, track_objective
from bestarm_agent.engine.results.trajectory import Trajectory
from bestarm_agent.errors import Blame
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Ask, IntArray, Pair, Problem, State, Tell
from bestarm_agent.store.codec import Line, line_of
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.store import RunLog

_MOST_SPREAD = 1e4  # of costs, as selectors see them


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


OpenPairs: TypeAlias = Callable[[Size, Sequence[Candidate]], Pairs]


class RunRecord:
    """State, rule, objective and trajectory of a run, fed with its events.

    The rule is made for the problem as it is at the first ask; until then it is made anew whenever
    the problem changes, so nobody but the record holds it.

    Args:
        open_pairs: makes the source of pairs.
        log: the log of a run that this process writes.
        follows: whether the trajectory is kept, too.
    """

    def __init__(
        self, open_pairs: OpenPairs, log: RunLog | None = None, *, follows: bool = True
    ) -> None:
        self.state = RunState()
        self.trajectory = Trajectory()
        self.log = log
        self._open_pairs = open_pairs
        self._follows = follows
        self._budget = Budget()  # the caps, as the source of pairs knows them
        self._head: list[Event] | None = []  # the log before the first ask; None after it
        self._made: tuple[Size, Pairs, ObjectiveTracker | None] | None = None

    @property
    def size(self) -> Size:
        """The size of the problem at the first ask, or now."""
        return self._begun()[0]

    @property
    def pairs(self) -> Pairs:
        """The source of pairs, fed the log."""
        return self._begun()[1]

    @property
    def objective(self) -> ObjectiveTracker | None:
        """The objective; None if it is simply the best."""
        return self._begun()[2]

    def record(self, event: Event, *, is_known: bool = True) -> None:
        """Take in what happens now; it is durable after the next ``flush``.

        ``is_known``: a pair that is asked was chosen by the source of pairs itself.
        """
        line = line_of(event)
        self._take(self.state.take([line]), is_known=is_known)
        if self.log is not None:
            self.log.append(event, line)

    async def flush(self) -> None:
        """Wait until everything recorded is durable; raise StoreError if it cannot be written."""
        if self.log is not None:
            await self.log.flush()

    def feed(self, events: Iterable[Event]) -> None:
        """Take in the next events of a log; raise StoreError if one cannot come there."""
        self.take([line_of(event) for event in events])

    def take(self, page: Sequence[Line]) -> None:
        """Take in the next events of a log, as ``Store.lines_of`` yields them."""
        self._take(self.state.take(page))

    async def take_all(self, pages: AsyncIterable[Sequence[Line]], n_told: int = 0) -> None:
        """Take in a log, with about ``n_told`` outcomes, some events at a time, in a thread."""
        self.trajectory = Trajectory(n_told)
        async for page in pages:
            await asyncio.to_thread(self.take, page)

    def _take(self, moves: Sequence[IntArray | Event], *, is_known: bool = False) -> None:
        """Take in events that the state has taken in, and made ``moves`` of."""
        for move in moves:
            if isinstance(move, np.ndarray):
                self._take_pairs(move, is_known=is_known)
            else:
                self._take_rare(move)

    def _take_rare(self, event: Event) -> None:
        """Take in an event that is no ask and no outcome."""
        if self._head is not None:
            self._head.append(event)
            self._made = None
        else:
            pairs = self.pairs
            feed_pairs(pairs, event, self._budget)
            self._follow(event, pairs)
        if isinstance(event, BudgetSet):
            self._budget = event.budget

    def _take_pairs(self, moves: IntArray, *, is_known: bool) -> None:
        """Take in asks and outcomes, by the numbers that the state has of them."""
        pairs, state = self.pairs, self.state
        self._head = None
        if len(moves) > 1 and pairs.takes_blocks:
            while len(moves):
                n = self.trajectory.until_look(moves < 0) if self._follows else len(moves)
                self._take_block(pairs, moves[:n])
                if self._follows:
                    self.trajectory.told(pairs, int((moves[:n] < 0).sum()))
                moves = moves[n:]
            return
        for move in moves.tolist():
            if move < 0:
                pairs.tell([tell_of(state, ~move)])
                if self._follows:
                    self.trajectory.told(pairs)
            elif not is_known:
                asked = state.ask(move)
                pair = Pair(asked.candidate, asked.example)
                pairs.adopt([Ask(move, pair, asked.reason)])

    def _take_block(self, pairs: Pairs, moves: IntArray) -> None:
        asked, seqs = self.state.asks[moves[moves >= 0]], ~moves[moves < 0]
        told = self.state.told[seqs]
        scores, costs = np.nan_to_num(told["score"]), told["usd_nanos"] / NANOS_PER_USD
        pairs.take_block(asked["candidate"], asked["example"], seqs, told["state"], scores, costs)

    def _begun(self) -> tuple[Size, Pairs, ObjectiveTracker | None]:
        if self._made is None:
            size = initial_size(self._head or ())
            pairs = self._open_pairs(size, self.state.candidates)
            self._made = size, pairs, track_objective(self.state, pairs)
            for event in self._head or ():
                if isinstance(event, CandidatesBarred):
                    pairs.bar(event.candidates)
                self._follow(event, pairs)
        return self._made

    def _follow(self, event: Event, pairs: Pairs) -> None:
        if isinstance(event, CandidatesBarred):
            self.trajectory.barred(event.candidates, pairs.table.n_asked)


def feed_pairs(pairs: Pairs, event: Event, budget: Budget) -> None:
    """Feed a source of pairs, made for the first ask, an event that is no ask and no outcome.

    ``budget`` held before.
    """
    costs, axes = pairs.problem.costs, pairs.problem.axes
    match event:
        case CandidatesAdded():  # with costs if it works per dollar, axes if it knows them
            pairs.add_candidates(
                len(event.candidates),
                costs and known_costs(event.costs, max(costs)),
                None if axes is None else axes_of(event.candidates),
            )
        case CandidatesBarred():
            pairs.bar(event.candidates)
        case ExamplesAdded():
            pairs.add_examples(len(event.ids))
        case BudgetSet() if pairs.problem.budget is not None:
            before, after = (planned_pulls(one, costs) for one in (budget, event.budget))
            if before is not None and after is not None and after > before:
                pairs.add_budget(after - before)
        case _:
            return


def examples_added(examples: Sequence[Example], slices: Sequence[Slice] = ()) -> ExamplesAdded:
    """Record examples by id and content."""
    return ExamplesAdded(
        ids=tuple(example.id for example in examples),
        digests=tuple(example.digest for example in examples),
        slices=tuple(slices),
    )


def score_of(outcome: Outcome, failed_score: float) -> float | None:
    """Return a pair's score; None if it is void: only its own failure counts against a candidate.

    ``failed_score`` is that of a pair on which the candidate itself failed.
    """
    if outcome.score is not None:
        return outcome.score.value
    is_own = outcome.failure is not None and outcome.failure.blame is Blame.CANDIDATE
    return failed_score if is_own else None


def tell_of(state: RunState, seq: int) -> Tell:
    """Return an outcome as selectors are told it, with a certification's further scores."""
    told = state.told[seq]
    score, gold, cost = float(told["score"]), float(told["gold"]), usd(int(told["usd_nanos"]))
    if np.isnan(score):
        return Tell(seq, State.VOID, cost=cost)
    return Tell(seq, State(told["state"]), score, cost, None if np.isnan(gold) else gold)


def axes_of(candidates: Sequence[Candidate]) -> IntArray:
    """Return the (K, 3) numbers of the candidates' models, prompts and parameters."""
    return np.array([one.levels for one in candidates], dtype=np.int64).reshape(-1, 3)


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
