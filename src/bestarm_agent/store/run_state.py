"""The state of a run, computed from the events of its log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.events import (
    Asked,
    Attempted,
    BudgetSet,
    CandidatesAdded,
    CandidatesBarred,
    Charged,
    Event,
    ExamplesAdded,
    Proposed,
    ProposerCalled,
    Resumed,
    Started,
    Stopped,
    Told,
)
from bestarm_agent.domain.example import Slice
from bestarm_agent.domain.spend import Budget, Reservations, Spend
from bestarm_agent.errors import StoreError
from bestarm_agent.store.base import RunStore
from bestarm_agent.store.pair_records import AskedPairs, CandidateTotals, PendingCost, ToldPairs


@dataclass(frozen=True, slots=True)
class Session:
    """One stretch of work on a run, from its start or resumption to its stop."""

    at: str  # when it began, ISO 8601 in UTC
    version: str  # of the package
    stopped: Stopped | None = None  # how it ended; None while it runs, or if it was killed


@dataclass(slots=True, repr=False)
class RunState:
    """A run as of its latest event; read only, apart from ``apply``.

    K candidates are numbered by row, N examples by column, asks in the order of asking.
    """

    n_events: int = 0
    started: Started | None = None
    candidates: list[Candidate] = field(default_factory=list)  # (K,)
    costs: list[float | None] = field(default_factory=list)  # (K,) most dollars of a call
    prices: list[str | None] = field(default_factory=list)  # (K,) sources of the prices
    totals: list[CandidateTotals] = field(default_factory=list)  # (K,)
    barred: dict[int, str] = field(default_factory=dict)  # by row: why it was excluded
    example_ids: list[str] = field(default_factory=list)  # (N,)
    example_digests: list[str] = field(default_factory=list)  # (N,)
    slices: tuple[Slice, ...] = ()  # groups of examples that are looked at by themselves
    asks: AskedPairs = field(default_factory=AskedPairs)
    told: ToldPairs = field(default_factory=ToldPairs)  # by ask number
    pending: dict[int, Asked] = field(default_factory=dict)  # by ask number, in ask order
    pending_costs: dict[int, PendingCost] = field(default_factory=dict)  # where events tell them
    budgets: list[Budget] = field(default_factory=list)  # in order; the last one holds
    configured: Budget | None = None  # the run's own caps; None before they differed from others
    spend: Spend = field(default_factory=Spend)  # cost of all outcomes, and of proposers' calls
    proposer_calls: dict[str, ProposerCalled] = field(default_factory=dict)  # by key of the reply
    rounds: int = 0  # rounds of proposals that are over
    reservations: Reservations = field(default_factory=Reservations)  # of all sessions that stopped
    sessions: list[Session] = field(default_factory=list)
    seconds: float = 0.0  # wall-clock, of the sessions that are over
    elapsed: float = 0.0  # of the one that is not, at its last outcome
    _asked_cells: list[bytearray] = field(default_factory=list)  # (K,) a bit for each example

    def apply(self, event: Event) -> None:
        """Add the next event; raise StoreError with its number, from 0, if it cannot come here."""
        if (self.n_events == 0) != isinstance(event, Started):
            raise self._impossible(f"{type(event).__name__}; Started comes first, and only then")
        if isinstance(event, Asked):
            self._asked(event)
        elif isinstance(event, Told):
            self._told(event)
        else:
            self._rare(event)
        self.n_events += 1

    def __repr__(self) -> str:  # asyncio.run shows its result to itself, which must not take long
        size = f"{len(self.candidates)} x {len(self.example_ids)}"
        return f"RunState({self.name!r}, {size}, {self.n_events} events)"

    @property
    def budget(self) -> Budget:
        """The present caps; none before the first ``BudgetSet``."""
        return self.budgets[-1] if self.budgets else Budget()

    @property
    def name(self) -> str:
        """The study's name; empty before the first event."""
        return self.started.name if self.started is not None else ""

    @property
    def broken(self) -> Mapping[str, str]:
        """Labels of candidates that could not be called when the last session ended, with why."""
        ended = self.sessions[-1].stopped if self.sessions else None
        return {} if ended is None else ended.broken

    def cost_of(self, seq: int) -> PendingCost:
        """Return what an ask without an outcome has cost so far."""
        return self.pending_costs.get(seq) or PendingCost()

    @property
    def pending_spend(self) -> Spend:
        """The exactly known cost of the pairs without an outcome."""
        costs = self.pending_costs.values()
        return sum((cost.spend + cost.judge_spend for cost in costs), Spend())

    @property
    def proposer_spend(self) -> Spend:
        """The cost of proposers' calls."""
        return sum((call.cost for call in self.proposer_calls.values()), Spend())

    @property
    def end(self) -> str | None:
        """Reason why the last session ended; None while it runs, or if it was killed."""
        last = self.sessions[-1].stopped if self.sessions else None
        return last.reason if last is not None else None

    def _asked(self, ask: Asked) -> None:
        pair = (ask.candidate, ask.example)
        if ask.seq != len(self.asks):
            raise self._impossible(f"ask {ask.seq} comes where ask {len(self.asks)} is due")
        if not self._has_cell(*pair):
            grid = f"{len(self.candidates)} x {len(self.example_ids)}"
            raise self._impossible(f"ask {ask.seq} is for pair {pair} of a grid of {grid}")
        self._mark(ask)
        self.asks.append(ask)
        self.pending[ask.seq] = ask

    def _mark(self, ask: Asked) -> None:
        """Note that a pair was asked, which happens once."""
        cells, (byte, bit) = self._asked_cells[ask.candidate], divmod(ask.example, 8)
        cells.extend(bytes(max(0, byte + 1 - len(cells))))
        if cells[byte] >> bit & 1:
            pair = (ask.candidate, ask.example)
            raise self._impossible(f"ask {ask.seq} is for pair {pair}, which was asked before")
        cells[byte] |= 1 << bit

    def _told(self, told: Told) -> None:
        ask = self.pending.get(told.seq)
        if ask is None:
            problem = "for the second time" if told.seq in self.told else "which was never asked"
            raise self._impossible(f"there is an outcome of ask {told.seq}, {problem}")
        if told.score is not None and not 0 <= told.score <= 1:
            raise self._impossible(f"ask {told.seq} scores {told.score}, outside [0, 1]")
        outcome = told.outcome
        self.told.put(told, self.seconds)
        del self.pending[told.seq]
        self.pending_costs.pop(told.seq, None)
        self.spend += outcome.spend
        totals = self.totals[ask.candidate]
        totals.pay(outcome)
        self.elapsed = max(self.elapsed, told.elapsed)
        totals.describe(outcome)

    def _rare(self, event: Event) -> None:
        match event:
            case Started():
                self.started = event
                self.sessions.append(Session(event.at, event.version))
            case CandidatesAdded():
                self._add_candidates(event)
            case CandidatesBarred():
                self._bar(event)
            case ExamplesAdded():
                self._add_examples(event)
            case BudgetSet():
                self.budgets.append(event.budget)
                self.configured = event.configured or self.configured
            case Resumed():
                self.sessions.append(Session(event.at, event.version))
                self._end_session(self.elapsed)  # 0 unless the session before was killed
            case Stopped():
                self._stop(event)
            case Attempted() | Charged():
                self._set_cost(event)
            case ProposerCalled() | Proposed():
                self._propose(event)

    def _set_cost(self, event: Attempted | Charged) -> None:
        if event.seq not in self.pending:
            raise self._impossible(f"ask {event.seq} costs something, and is not pending")
        if isinstance(event, Charged):
            cost = PendingCost(event.spend, event.judge_spend, first_sent=False)
        else:
            known = self.cost_of(event.seq)
            cost = replace(known, attempts=(*known.attempts, event))
        self.pending_costs[event.seq] = cost

    def _propose(self, event: ProposerCalled | Proposed) -> None:
        if isinstance(event, Proposed):
            self.rounds = event.rounds
            return
        before = self.proposer_calls.get(event.key)
        self.spend += event.cost - (Spend() if before is None else before.cost)
        self.proposer_calls[event.key] = event

    def _add_candidates(self, event: CandidatesAdded) -> None:
        nothing = (None,) * len(event.candidates)
        self.candidates += event.candidates
        self.costs += event.costs or nothing
        self.prices += event.prices or nothing
        self.totals += [CandidateTotals() for _ in event.candidates]
        self._asked_cells += [bytearray() for _ in event.candidates]

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
        self.slices += event.slices

    def _stop(self, event: Stopped) -> None:
        if self.sessions[-1].stopped is not None:
            raise self._impossible("the run stops, and nothing was going on")
        self.sessions[-1] = replace(self.sessions[-1], stopped=event)
        self.reservations += event.reservations
        self._end_session(event.seconds)

    def _end_session(self, seconds: float) -> None:
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
    """Fold a log; raise StoreError with the number, from 0, of an event that cannot come there.

    Example:
        >>> fold([Started("study", "2026-11-21T09:30:15Z", "0.1.0", {}, ".")]).sessions
        [Session(at='2026-11-21T09:30:15Z', version='0.1.0', stopped=None)]
    """
    state = RunState()
    for event in events:
        state.apply(event)
    return state


async def folded(store: RunStore, run: str) -> RunState:
    """Fold a run's log; raise RunNotFoundError if there is no such run."""
    state = RunState()

    def take(events: Sequence[Event]) -> None:
        for event in events:
            state.apply(event)

    async for page in store.pages_of((await store.find(run)).id):
        await asyncio.to_thread(take, page)
    return state
