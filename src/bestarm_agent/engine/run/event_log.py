"""Records what happens in a run, and rebuilds its selector from the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.events import (
    Asked,
    Attempted,
    BudgetSet,
    CandidatesAdded,
    CandidatesBarred,
    Event,
    ExamplesAdded,
    Told,
)
from bestarm_agent.domain.example import Example, Slice
from bestarm_agent.domain.outcome import Failed, Outcome, Scored
from bestarm_agent.domain.spend import Budget, Spend, usd
from bestarm_agent.engine.results.objectives import ObjectiveTracker
from bestarm_agent.engine.results.trajectory import Trajectory
from bestarm_agent.engine.run.candidate_pool import ReadyCandidate
from bestarm_agent.errors import Blame
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Ask, IntArray, Pair, Problem, State, Tell
from bestarm_agent.store.base import RunLog
from bestarm_agent.store.run_state import RunState

_MOST_SPREAD = 1e4  # of costs, as selectors see them


class EventLog:
    """Appends events to a run's log and keeps the state that they amount to."""

    def __init__(
        self,
        log: RunLog,
        state: RunState,
        objective: ObjectiveTracker | None = None,
        trajectory: Trajectory | None = None,
    ) -> None:
        self._log = log
        self.state = state  # read only for others
        self.trajectory = trajectory or Trajectory()
        self._objective = objective

    def record(self, event: Event) -> None:
        """Append an event; it is durable after the next ``flush``."""
        self.state.apply(event)
        if self._objective is not None:
            self._objective.take(event)
        self._log.append(event)

    async def flush(self) -> None:
        """Wait until everything recorded is durable; raise StoreError if it cannot be written."""
        await self._log.flush()


class PairLog:
    """Logs the attempts at the calls of one pair; ``lost`` is as in ``AttemptLog``."""

    def __init__(self, event_log: EventLog, seq: int, lost: dict[str, Spend] | None = None) -> None:
        self.lost = lost or {}
        self._event_log = event_log
        self._seq = seq

    async def attempt(self, key: str, cost: Spend, *, judge: bool) -> None:
        """Log an attempt that costs at most ``cost``; durable on return."""
        self._event_log.record(Attempted(self._seq, key, cost, judge))
        await self._event_log.flush()


def examples_added(examples: Sequence[Example], slices: Sequence[Slice] = ()) -> ExamplesAdded:
    """Record examples by id and content."""
    return ExamplesAdded(
        ids=tuple(example.id for example in examples),
        digests=tuple(example.digest for example in examples),
        slices=tuple(slices),
    )


def judged(outcome: Outcome, failed_score: float) -> tuple[State, float | None]:
    """Return state and score for the selector: only its own failure counts against a candidate."""
    if isinstance(outcome, Scored):
        return State.DONE, outcome.value
    if outcome.blame is Blame.CANDIDATE:
        return State.FAILED, failed_score
    return State.VOID, None


def candidates_added(candidates: Sequence[ReadyCandidate]) -> CandidatesAdded:
    """Record candidates with the most that a call to each can cost, and the price's source."""
    return CandidatesAdded(
        candidates=tuple(one.candidate for one in candidates),
        costs=tuple(one.usd for one in candidates),
        prices=tuple(one.price_source for one in candidates),
    )


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


class Replayer:
    """Feeds a log, event by event, to a selector of ``initial_size``."""

    def __init__(self, selector: Pairs) -> None:
        self.selector = selector
        self._budget = Budget()
        self._started = False

    def feed(self, event: Event) -> None:
        """Feed the next event; the selector already holds the events before the first ask."""
        selector = self.selector
        match event:
            case Asked():
                self._started = True
                pair = Pair(event.candidate, event.example)
                selector.adopt([Ask(event.seq, pair, event.propensity, event.reason)])
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
