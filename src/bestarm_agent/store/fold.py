"""What a run's log amounts to: the one place where events become state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.events import (
    Asked,
    BudgetSet,
    CandidatesAdded,
    CandidatesBarred,
    Event,
    ExamplesAdded,
    Resumed,
    Started,
    Stopped,
    Told,
)
from bestarm_agent.domain.outcome import Failed
from bestarm_agent.domain.spend import Books, Budget, Spend
from bestarm_agent.errors import FailureKind, StoreError
from bestarm_agent.selectors.types import State


@dataclass(frozen=True, slots=True)
class Sitting:
    """One stretch of work on a run.

    Attributes:
        at: when it began, ISO 8601 in UTC.
        version: version of the package.
        stopped: how it ended, or None while it lasts or if the process was killed.
    """

    at: str
    version: str
    stopped: Stopped | None = None


def state_of(told: Told | None) -> State:
    """The state of the cell of an ask, given what was told of it."""
    if told is None:
        return State.PENDING
    if told.score is None:
        return State.VOID
    return State.FAILED if isinstance(told.outcome, Failed) else State.DONE


@dataclass(slots=True)
class RunState:
    """A run as its log tells it; for reading, apart from ``apply``.

    Attributes:
        n_events: number of events taken in.
        started: how the run began; None before the first event.
        candidates: the K candidates, by row.
        costs: (K,) most dollars that a call to each can cost, or None where that is not known.
        prices: (K,) where each one's price comes from, or None.
        barred: by row, why a candidate left the competition.
        example_ids: ids of the N examples, by column.
        example_digests: digests of the N examples' contents, by column.
        asks: every ask, by its number.
        told: by ask number, what became of it.
        pending: by ask number, the asks without an outcome, in ask order.
        budgets: the caps that were set, in order; the last ones hold.
        spend: what all outcomes together cost.
        spend_of: (K,) what each candidate's outcomes cost.
        judge_spend_of: (K,) what of that judging cost.
        lost_spend_of: (K,) what of that went into attempts that brought no answer.
        books: where what was set aside went, over all sittings that ended in good order.
        seconds_of: (K,) seconds that each candidate's answered calls took, summed.
        failures_of: (K,) number of failures of each candidate, by kind.
        sittings: the stretches of work, in order.
        seconds: wall-clock seconds of the sittings that are over.
        elapsed: seconds of the one that is not, at its last outcome: it lasts, or was killed.
    """

    n_events: int = 0
    started: Started | None = None
    candidates: list[Candidate] = field(default_factory=list)
    costs: list[float | None] = field(default_factory=list)
    prices: list[str | None] = field(default_factory=list)
    barred: dict[int, str] = field(default_factory=dict)
    example_ids: list[str] = field(default_factory=list)
    example_digests: list[str] = field(default_factory=list)
    asks: list[Asked] = field(default_factory=list)
    told: dict[int, Told] = field(default_factory=dict)
    pending: dict[int, Asked] = field(default_factory=dict)
    budgets: list[Budget] = field(default_factory=list)
    spend: Spend = field(default_factory=Spend)
    spend_of: list[Spend] = field(default_factory=list)
    judge_spend_of: list[Spend] = field(default_factory=list)
    lost_spend_of: list[Spend] = field(default_factory=list)
    books: Books = field(default_factory=Books)
    seconds_of: list[float] = field(default_factory=list)
    failures_of: list[Counter[FailureKind]] = field(default_factory=list)
    sittings: list[Sitting] = field(default_factory=list)
    seconds: float = 0.0
    elapsed: float = 0.0
    _pairs: set[tuple[int, int]] = field(default_factory=set)

    def apply(self, event: Event) -> None:
        """Take the next event in.

        Raises:
            StoreError: no run can have this event here; the message names its number, from 0.
        """
        if (self.n_events == 0) != isinstance(event, Started):
            raise self._impossible(f"{type(event).__name__}; Started comes first, and only then")
        if isinstance(event, Asked):
            self._asked(event)
        elif isinstance(event, Told):
            self._told(event)
        else:
            self._rare(event)
        self.n_events += 1

    @property
    def budget(self) -> Budget:
        """The caps that hold; none before the first ``BudgetSet``."""
        return self.budgets[-1] if self.budgets else Budget()

    @property
    def name(self) -> str:
        """What the user called the study; empty before the first event."""
        return self.started.name if self.started is not None else ""

    @property
    def end(self) -> str | None:
        """Why the last sitting ended; None while it lasts or if the process was killed."""
        last = self.sittings[-1].stopped if self.sittings else None
        return last.reason if last is not None else None

    def _asked(self, ask: Asked) -> None:
        pair = (ask.candidate, ask.example)
        if ask.seq != len(self.asks):
            raise self._impossible(f"ask {ask.seq} comes where ask {len(self.asks)} is due")
        if not self._has_cell(*pair):
            grid = f"{len(self.candidates)} x {len(self.example_ids)}"
            raise self._impossible(f"ask {ask.seq} is for pair {pair} of a grid of {grid}")
        if pair in self._pairs:
            raise self._impossible(f"ask {ask.seq} is for pair {pair}, which was asked before")
        self._pairs.add(pair)
        self.asks.append(ask)
        self.pending[ask.seq] = ask

    def _told(self, told: Told) -> None:
        ask = self.pending.get(told.seq)
        if ask is None:
            problem = "for the second time" if told.seq in self.told else "which was never asked"
            raise self._impossible(f"an outcome is told of ask {told.seq}, {problem}")
        if told.score is not None and not 0 <= told.score <= 1:
            raise self._impossible(f"ask {told.seq} scores {told.score}, outside [0, 1]")
        outcome = told.outcome
        self.told[told.seq] = told
        del self.pending[told.seq]
        self.spend += outcome.spend
        self.spend_of[ask.candidate] += outcome.spend
        self.judge_spend_of[ask.candidate] += outcome.judge_spend
        self.lost_spend_of[ask.candidate] += outcome.lost_spend
        self.seconds_of[ask.candidate] += outcome.seconds
        self.elapsed = max(self.elapsed, told.elapsed)
        if isinstance(outcome, Failed):
            self.failures_of[ask.candidate][outcome.kind] += 1

    def _rare(self, event: Event) -> None:
        match event:
            case Started():
                self.started = event
                self.sittings.append(Sitting(event.at, event.version))
            case CandidatesAdded():
                self._add_candidates(event)
            case CandidatesBarred():
                self._bar(event)
            case ExamplesAdded():
                self._add_examples(event)
            case BudgetSet():
                self.budgets.append(event.budget)
            case Resumed():
                self.sittings.append(Sitting(event.at, event.version))
                self._end_sitting(self.elapsed)  # 0 unless the sitting before was killed
            case Stopped():
                self._stop(event)

    def _add_candidates(self, event: CandidatesAdded) -> None:
        nothing = (None,) * len(event.candidates)
        self.candidates += event.candidates
        self.costs += event.costs or nothing
        self.prices += event.prices or nothing
        for spends in (self.spend_of, self.judge_spend_of, self.lost_spend_of):
            spends += [Spend() for _ in event.candidates]
        self.seconds_of += [0.0 for _ in event.candidates]
        self.failures_of += [Counter() for _ in event.candidates]

    def _bar(self, event: CandidatesBarred) -> None:
        for candidate in event.candidates:
            if not 0 <= candidate < len(self.candidates):
                raise self._impossible(f"candidate {candidate} is barred, and there is none")
            self.barred[candidate] = event.reason

    def _add_examples(self, event: ExamplesAdded) -> None:
        if len(event.ids) != len(event.digests):
            counts = f"{len(event.ids)} ids and {len(event.digests)} digests"
            raise self._impossible(f"examples join with {counts}")
        self.example_ids += event.ids
        self.example_digests += event.digests

    def _stop(self, event: Stopped) -> None:
        if self.sittings[-1].stopped is not None:
            raise self._impossible("the run stops, and nothing was going on")
        self.sittings[-1] = replace(self.sittings[-1], stopped=event)
        self.books += event.books
        self._end_sitting(event.seconds)

    def _end_sitting(self, seconds: float) -> None:
        self.seconds += seconds
        self.elapsed = 0.0

    def _has_cell(self, candidate: int, example: int) -> bool:
        return 0 <= candidate < len(self.candidates) and 0 <= example < len(self.example_ids)

    def _impossible(self, problem: str) -> StoreError:
        return StoreError(
            f"event {self.n_events} of the log is impossible: {problem}; the log is damaged: "
            f"restore the store from a copy, or begin a new run (it reuses the stored replies)"
        )


def fold(events: Iterable[Event]) -> RunState:
    """Fold a log from its first event on.

    Raises:
        StoreError: the log is impossible; the message names the event's number, from 0.

    Example:
        >>> fold([Started("study", "2026-11-21T09:30:15Z", "0.1.0", {}, ".")]).sittings
        [Sitting(at='2026-11-21T09:30:15Z', version='0.1.0', stopped=None)]
    """
    state = RunState()
    for event in events:
        state.apply(event)
    return state
