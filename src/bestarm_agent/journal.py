"""A run's log and what it says: the one way in which anything that happens is recorded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bestarm_agent.domain.events import (
    Asked,
    BudgetSet,
    CandidatesAdded,
    Event,
    ExamplesAdded,
    Told,
)
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Failed, Outcome, Scored
from bestarm_agent.domain.spend import Spend, usd
from bestarm_agent.errors import Blame
from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import Ask, Pair, State, Tell
from bestarm_agent.store.base import RunLog
from bestarm_agent.store.fold import RunState


class Journal:
    """Appends events to a run's log and folds them in.

    Attributes:
        state: what the log says so far; read only for others.
    """

    def __init__(self, log: RunLog, state: RunState) -> None:
        self._log = log
        self.state = state

    def record(self, event: Event) -> None:
        """Append an event; it is durable after the next ``flush``."""
        self.state.apply(event)
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


def cost_of(spend: Spend) -> float:
    """What a pull cost, as one number: dollars where there are any, else worker seconds."""
    return usd(spend.usd_nanos) or spend.gpu_seconds


def tell_of(told: Told) -> Tell:
    """Rebuild what the selector was told."""
    cost = cost_of(told.outcome.spend)
    if told.score is None:
        return Tell(told.seq, State.VOID, cost=cost)
    state = State.FAILED if isinstance(told.outcome, Failed) else State.DONE
    return Tell(told.seq, state, told.score, cost)


@dataclass(frozen=True, slots=True)
class Size:
    """How large the problem was when a selector began.

    Attributes:
        n_candidates: K.
        n_examples: N.
        pulls: cap on the pairs, or None.
    """

    n_candidates: int
    n_examples: int
    pulls: int | None


def initial_size(events: Iterable[Event]) -> Size:
    """How large the problem was when the first pair was asked."""
    n_candidates, n_examples, pulls = 0, 0, None
    for event in events:
        match event:
            case CandidatesAdded():
                n_candidates += len(event.candidates)
            case ExamplesAdded():
                n_examples += len(event.ids)
            case BudgetSet():
                pulls = event.budget.pulls
            case Asked():
                break
    return Size(n_candidates, n_examples, pulls)


class Replayer:
    """Feeds a selector of ``initial_size`` the log of an earlier sitting, event by event."""

    def __init__(self, selector: Selector) -> None:
        self._selector = selector
        self._pulls = selector.problem.budget
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
                selector.add_candidates(len(event.candidates))
            case ExamplesAdded() if self._started:
                selector.add_examples(len(event.ids))
            case BudgetSet() if self._started:
                self._pulls = move_budget(selector, self._pulls, event.budget.pulls)
            case _:
                return


def replay(events: Iterable[Event], selector: Selector) -> None:
    """Feed a selector of ``initial_size`` a whole log, in order."""
    replayer = Replayer(selector)
    for event in events:
        replayer.feed(event)


def move_budget(selector: Selector, old: int | None, new: int | None) -> int | None:
    """Tell a rule that plans for a number of pulls that there are more; return the new number."""
    plans = selector.problem.budget is not None
    if plans and old is not None and new is not None and new > old:
        selector.add_budget(new - old)
    return new
