"""A run's log and what it says: the one way in which anything that happens is recorded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bestarm_agent.domain.events import (
    Asked,
    BudgetSet,
    CandidatesAdded,
    CandidatesBarred,
    Event,
    ExamplesAdded,
    Told,
)
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Failed, Outcome, Scored
from bestarm_agent.domain.spend import Budget, Spend, usd
from bestarm_agent.errors import Blame
from bestarm_agent.pricing import PriceBook
from bestarm_agent.roster import Entry
from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import Ask, Pair, Problem, State, Tell
from bestarm_agent.store.base import RunLog
from bestarm_agent.store.fold import RunState

_MOST_SPREAD = 1e4  # of costs, as selectors see them


class Journal:
    """Appends events to a run's log and folds them in.

    Attributes:
        state: what the log says so far; read only for others.
    """

    def __init__(self, log: RunLog, state: RunState, prices: PriceBook | None = None) -> None:
        self._log = log
        self.state = state
        self._prices = prices

    def record(self, event: Event) -> None:
        """Append an event; it is durable after the next ``flush``."""
        self.state.apply(event)
        if self._prices is not None:
            self._prices.take(event)
        self._log.append(event)

    async def flush(self) -> None:
        """Wait until everything recorded is durable.

        Raises:
            StoreError: it could not be written.
        """
        await self._log.flush()


def examples_added(examples: Sequence[Example]) -> ExamplesAdded:
    """Record examples by id and content."""
    return ExamplesAdded(
        ids=tuple(example.id for example in examples),
        digests=tuple(example.digest for example in examples),
    )


def judged(outcome: Outcome, failed_score: float) -> tuple[State, float | None]:
    """What the selector is told: only the candidate's own failure counts against it."""
    if isinstance(outcome, Scored):
        return State.DONE, outcome.value
    if outcome.blame is Blame.CANDIDATE:
        return State.FAILED, failed_score
    return State.VOID, None


def candidates_added(entries: Sequence[Entry]) -> CandidatesAdded:
    """Record candidates with what a call to each can cost, and by which price."""
    return CandidatesAdded(
        candidates=tuple(entry.candidate for entry in entries),
        costs=tuple(entry.usd for entry in entries),
        prices=tuple(entry.price_source for entry in entries),
    )


def audited(outcome: Outcome) -> tuple[float | None, tuple[float | None, ...]]:
    """What a certification has beside the score: the trusted one, and each autoevaluator's."""
    return (outcome.gold, outcome.guesses) if isinstance(outcome, Scored) else (None, ())


def cost_of(spend: Spend) -> float:
    """What a pull cost as selectors are told it, in dollars."""
    return usd(spend.usd_nanos)


def tell_of(told: Told) -> Tell:
    """Rebuild what the selector was told."""
    cost = cost_of(told.outcome.spend)
    if told.score is None:
        return Tell(told.seq, State.VOID, cost=cost)
    state = State.FAILED if isinstance(told.outcome, Failed) else State.DONE
    return Tell(told.seq, state, told.score, cost, *audited(told.outcome))


@dataclass(frozen=True, slots=True)
class Size:
    """How large the problem was when a selector began.

    Attributes:
        n_candidates: K.
        n_examples: N.
        budget: the caps.
        costs: (K,) most dollars that a call can cost; None where unknown, or as a whole.
    """

    n_candidates: int
    n_examples: int
    budget: Budget = field(default_factory=Budget)
    costs: tuple[float | None, ...] | None = None

    @property
    def pulls(self) -> int | None:
        """Cap on the pairs, or None."""
        return self.budget.pulls

    def problem(self, *, per_dollar: bool) -> Problem:
        """What a selector is told at the start, but for what the rule's own settings say."""
        costs = known_costs(self.costs or ()) if per_dollar else None
        pulls = planned_pulls(self.budget, costs)
        return Problem(self.n_candidates, self.n_examples, budget=pulls, costs=costs)


def initial_size(events: Iterable[Event]) -> Size:
    """How large the problem was when the first pair was asked."""
    n_candidates, n_examples, budget = 0, 0, Budget()
    costs: list[float | None] = []
    for event in events:
        match event:
            case CandidatesAdded():
                n_candidates += len(event.candidates)
                costs += event.costs
            case ExamplesAdded():
                n_examples += len(event.ids)
            case BudgetSet():
                budget = event.budget
            case Asked():
                break
    return Size(n_candidates, n_examples, budget, tuple(costs))


def known_costs(costs: Sequence[float | None], dearest: float = 0.0) -> tuple[float, ...] | None:
    """What a pull of each candidate is expected to cost before any was made, > 0.

    A free one counts as a ten-thousandth of the dearest. None where a price is not known, or
    nothing costs anything.

    Args:
        costs: most dollars that a call of each can cost, >= 0; None where unknown.
        dearest: of other candidates.
    """
    known = [cost for cost in costs if cost is not None]
    least = max([dearest, *known], default=0.0) / _MOST_SPREAD
    if len(known) < len(costs) or not least > 0:
        return None
    return tuple(max(cost, least) for cost in known)


def planned_pulls(budget: Budget, costs: tuple[float, ...] | None) -> int | None:
    """How many pairs a rule may plan for: the cap, or what the dollars pay for on average."""
    if not costs or budget.usd_nanos is None:
        return budget.pulls
    paid = max(1, int(usd(budget.usd_nanos) * len(costs) / sum(costs)))
    return paid if budget.pulls is None else min(paid, budget.pulls)


class Replayer:
    """Feeds a selector of ``initial_size`` the log of an earlier sitting, event by event."""

    def __init__(self, selector: Selector) -> None:
        self._selector = selector
        self._budget = Budget()
        self._started = False

    def feed(self, event: Event) -> None:
        """Feed the next event; what came before the first ask is in the selector already."""
        selector = self._selector
        match event:
            case Asked():
                self._started = True
                pair = Pair(event.candidate, event.example)
                selector.adopt([Ask(event.seq, pair, event.propensity, event.reason)])
            case Told():
                selector.tell([tell_of(event)])
            case CandidatesAdded() if self._started:
                join(selector, len(event.candidates), event.costs)
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


def replay(events: Iterable[Event], selector: Selector) -> None:
    """Feed a selector of ``initial_size`` a whole log, in order."""
    replayer = Replayer(selector)
    for event in events:
        replayer.feed(event)


def join(selector: Selector, count: int, costs: Sequence[float | None]) -> None:
    """Let candidates join a selector, with their costs if it works per dollar.

    Raises:
        ValueError: it does, and a cost is not known.
    """
    known = selector.problem.costs
    selector.add_candidates(count, known and known_costs(costs, max(known)))


def move_budget(selector: Selector, old: Budget, new: Budget) -> None:
    """Tell a rule that plans for a number of pulls that there are more."""
    costs = selector.problem.costs
    before, after = planned_pulls(old, costs), planned_pulls(new, costs)
    plans = selector.problem.budget is not None
    if plans and before is not None and after is not None and after > before:
        selector.add_budget(after - before)
