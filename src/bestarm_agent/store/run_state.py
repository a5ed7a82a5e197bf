"""The state of a run, computed from its log, event by event or page by page.

Pairs are numbers in columns (``pair_columns``); all else is a value of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pydantic_core import from_json

from bestarm_agent.domain import events
from bestarm_agent.domain.events import Asked, Attempted, Event, Settled, Stopped
from bestarm_agent.domain.spend import NOTHING, Budget, Spend, sum_of
from bestarm_agent.domain.values import Failure, Slice
from bestarm_agent.errors import Blame, FailureKind, StoreError
from bestarm_agent.selectors.types import State
from bestarm_agent.stats.arrays import IntArray
from bestarm_agent.store.codec import Line, events_in, line_of
from bestarm_agent.store.pair_columns import PairColumns, Record

_DONE, _FAILED, _VOID = map(int, (State.DONE, State.FAILED, State.VOID))
_FAILURE = ("kind", "blame", "message")


@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts for a pair without an outcome, or for proposers of prompts."""

    spend: Spend = field(default_factory=Spend)  # of those that are settled, without judging
    judge_spend: Spend = field(default_factory=Spend)  # of judging, as far as settled
    # begun and not settled: they may have been sent, and cost so much at most
    open: tuple[Attempted, ...] = ()
    keys: frozenset[str] = frozenset()  # of the replies that attempts were begun for
    priced: bool = True  # whether all prices are known


@dataclass(frozen=True, slots=True)
class Session:
    """One stretch of work on a run, from its start or resumption to its stop."""

    at: str  # when it began, ISO 8601 in UTC
    version: str  # of the package
    stopped: Stopped | None = None  # how it ended; None while it runs, or if it was killed


class RunState(PairColumns):
    """A run as of its latest event; it changes by ``take`` alone.

    K candidates are numbered by row, N examples by column, asks in the order of asking.
    """

    def __init__(self) -> None:
        super().__init__()
        self.n_events = 0
        self.started = events.Started("", "", "", {}, ".")  # until the first event
        self.costs: list[float | None] = []  # (K,) most dollars of a call
        self.prices: list[str | None] = []  # (K,) sources of the prices
        self.judging: list[Spend] = []  # (K,) the part of the costs for judging
        self.lost: list[Spend] = []  # (K,) the part for attempts that brought no answer
        self.cached_tokens = 0  # read from prompt caches
        self.barred: dict[int, str] = {}  # by row: why it was excluded
        self.example_ids: list[str] = []  # (N,)
        self.example_digests: list[str] = []  # (N,)
        self.slices: tuple[Slice, ...] = ()  # groups of examples that are looked at by themselves
        self.independent: tuple[int, ...] = ()  # one example of each cluster; empty: all are
        self.pending: dict[int, None] = {}  # asks without an outcome, in the order of asking
        # by ask, where events tell of them; None: of proposers
        self.attempts: dict[int | None, Attempts] = {}
        self.budget = Budget()  # the present caps
        # the run's own caps; None before they differed from others
        self.configured: Budget | None = None
        self.rounds = 0  # rounds of proposals that are over
        self.sessions: list[Session] = []
        self.seconds = 0.0  # wall-clock, of the sessions that are over
        self.elapsed = 0.0  # of the one that is not, at its last outcome
        self._n_measures = 0

    def pending_asks(self) -> Iterator[Asked]:
        """Yield the asks without an outcome, in the order of asking."""
        return map(self.ask, self.pending)

    def take(self, lines: Sequence[Line]) -> list[IntArray | Event]:
        """Add the next events of a log.

        Returns:
            The events in their order. Those of pairs that follow one another are numbers: of the
            ask, or ``~number`` of the ask for its outcome. Any other event is as it is.

        Raises:
            StoreError: with the number, from 0, of an event that is damaged or cannot come there.
        """
        # The form is for speed, as a log may hold a million pairs. A page is parsed as one JSON
        # array, which saves a call for each line, and pairs become rows of the columns at its end,
        # in two assignments and not two for each pair.
        #
        # So within a page the state is taken in halves. What later lines are checked against
        # changes with each line: ``pending``, ``attempts``, ``n_events``, the candidates and the
        # examples. The columns, ``n_asked`` and ``n_told`` follow at the end, asks first, since an
        # outcome is written to the row of its ask. Until then the number of an ask is ``n_asked``
        # plus those collected. The time of an outcome is worked out at its line: a stop later in
        # the page moves ``seconds``. An error leaves the halves as they are: the state is of no use
        # after it.
        first, moves, steps = self.n_events, list[list[int] | Event](), list[int]()
        asked: list[Record] = []
        outcomes: list[tuple[Record, int, float]] = []
        try:
            records = from_json(f"[{','.join(text for _, text in lines)}]")
            for (tag, text), record in zip(lines, records, strict=True):
                if (tag == "started") != (self.n_events == 0):
                    raise self._impossible(f"{tag!r}; Started comes first, and only then")
                if tag in ("asked", "told"):
                    # pairs that follow one another share a list; any other event ends it
                    if not (moves and moves[-1] is steps):
                        moves.append(steps := [])
                    if tag == "asked":
                        number = self._ask(record, self.n_asked + len(asked))
                        asked.append(record)
                    else:
                        number = ~self._tell(record, self.n_asked + len(asked))
                        came_at = self.seconds + record.get("elapsed", 0.0)
                        outcomes.append((record, self.n_events, came_at))
                    steps.append(number)
                else:
                    [event] = events_in([(tag, text)], self.n_events)
                    self._rare(event)
                    moves.append(event)
                self.n_events += 1
            self._put_asks(asked)
            self._put_outcomes(outcomes)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            # read one by one, which is slow, the first damaged line names itself and its field
            events_in(lines, first)
            raise StoreError(
                f"the log is damaged ({error!r}); restore the store from a copy"
            ) from error
        return [np.array(move) if isinstance(move, list) else move for move in moves]

    def put_attempts(self, events: Iterable[Event]) -> None:
        """Note attempts of pairs, some of which were told, after ``put_columns``."""
        for event in events:
            self._rare(event)
        is_pending = self.told["state"] == State.PENDING
        self.pending = dict.fromkeys(np.flatnonzero(is_pending).tolist())
        over = [seq for seq in self.attempts if seq is not None and not is_pending[seq]]
        for seq in over:
            del self.attempts[seq]

    def __repr__(self) -> str:  # asyncio.run shows its result to itself, which must not take long
        size = f"{len(self.candidates)} x {len(self.example_ids)}"
        return f"RunState({self.name!r}, {size}, {self.n_events} events)"

    @property
    def spend(self) -> Spend:
        """The cost of all outcomes, and of proposers' calls."""
        in_all = np.zeros(len(self.candidates), dtype=np.int64)
        return sum_of([*self.spends(in_all), self.proposer_spend])

    @property
    def name(self) -> str:
        """The study's name; empty before the first event."""
        return self.started.name

    @property
    def broken(self) -> Mapping[str, str]:
        """Labels of candidates that could not be called when the last session ended, with why."""
        ended = self.sessions[-1].stopped if self.sessions else None
        return {} if ended is None else ended.broken

    def attempts_of(self, seq: int | None) -> Attempts:
        """Return the attempts for an ask without an outcome, or for proposers (None).

        The ask stands for one of an unknown bound, whose key is empty.
        """
        if seq is None or seq in self.attempts:
            return self.attempts.get(seq) or Attempts()
        return Attempts(open=(Attempted(seq, "", Spend()),), keys=frozenset({""}))

    @property
    def pending_spend(self) -> Spend:
        """The exactly known cost of the pairs without an outcome."""
        pairs = (attempts for seq, attempts in self.attempts.items() if seq is not None)
        return sum((attempts.spend + attempts.judge_spend for attempts in pairs), Spend())

    @property
    def proposer_spend(self) -> Spend:
        """The cost of proposers' calls; of those under way, the most."""
        known = self.attempts_of(None)
        return sum((attempt.cost for attempt in known.open), known.spend)

    @property
    def end(self) -> str | None:
        """Reason why the last session ended; None while it runs, or if it was killed."""
        last = self.sessions[-1].stopped if self.sessions else None
        return last.reason if last is not None else None

    def _ask(self, record: Record, number: int) -> int:
        """Note an ask, if it is the one of this number; return that."""
        seq, row, column = record["seq"], record["candidate"], record["example"]
        if seq != number:
            raise self._impossible(f"ask {seq} comes where ask {number} is due")
        if not (0 <= row < len(self.candidates) and 0 <= column < len(self.example_ids)):
            grid = f"{len(self.candidates)} x {len(self.example_ids)}"
            raise self._impossible(f"ask {seq} is for pair {(row, column)} of a grid of {grid}")
        self.pending[seq] = None
        return number

    def _tell(self, record: Record, n_asked: int) -> int:
        """Note an outcome, if it can come here; return the number of its ask."""
        seq = record["seq"]
        if seq not in self.pending:
            problem = "for the second time" if seq in range(n_asked) else "which was never asked"
            raise self._impossible(f"there is an outcome of ask {seq}, {problem}")
        del self.pending[seq]
        self.attempts.pop(seq, None)
        self.elapsed = max(self.elapsed, record.get("elapsed", 0.0))
        return int(seq)

    def _put_outcomes(self, outcomes: Sequence[tuple[Record, int, float]]) -> None:
        """Add outcomes, with the number of the event of each, and when it came."""
        if not outcomes:
            return
        seqs = np.array([record["seq"] for record, _, _ in outcomes])
        rows = [self._columns(*outcome) for outcome in outcomes]
        self._told[seqs] = np.array(rows, self._told.dtype)
        n = self.n_told + len(outcomes)
        self._order[self.n_told : n] = seqs
        self.n_told = n
        for record, _, _ in outcomes:
            outcome = record["outcome"]
            if not outcome.get("cached"):  # bought by this run
                self.cached_tokens += outcome.get("usage", {}).get("cached", 0)
            for name, spends in (("judge_spend", self.judging), ("lost_spend", self.lost)):
                if name in outcome:
                    row = self._asked["candidate"][record["seq"]]
                    spends[row] += Spend(**outcome[name])

    def _columns(self, record: Record, event: int, came_at: float) -> tuple[object, ...]:
        """Return an outcome as ``told_type`` has it."""
        outcome, score = record["outcome"], record["score"]
        spend, usage = outcome.get("spend", {}), outcome.get("usage", {})
        judged, price = outcome.get("score"), outcome.get("usd_nanos")
        state, failure = _DONE, -1
        if judged is None:
            kind, blame, message = map(outcome["failure"].__getitem__, _FAILURE)
            reason = Failure(FailureKind(kind), Blame(blame), message)
            state, failure = _FAILED, self.failures.number_of(reason)
        return (
            _VOID if score is None else state,
            # where people score later, the log's scores stand for none
            math.nan if score is None or self.started.scored_by == "people" else score,
            math.nan if judged is None else judged.get("gold", math.nan),
            spend.get("answers", 0),
            spend.get("calls", 0),
            spend.get("tokens", 0),
            spend.get("usd_nanos", 0),
            spend.get("gpu_seconds", 0.0),
            outcome.get("seconds", 0.0),
            -1 if judged is None else usage.get("output", 0),
            math.nan if price is None else price,
            outcome.get("cached", False),
            failure,
            self.signs.number_of(outcome.get("sign", "")),
            came_at,
            event,
            self._measures_of(judged or {}) if self._n_measures else (),
        )

    def _measures_of(self, judged: Record) -> tuple[float, ...]:
        known = judged.get("measures") or [None] * self._n_measures
        return tuple([math.nan if x is None else x for x in known[: self._n_measures]])

    def _rare(self, event: Event) -> None:
        match event:
            case events.Started():
                self.started = event
                self._n_measures = len(event.measures)
                self._begin_outcomes(self._n_measures)
                self.sessions.append(Session(event.at, event.version))
            case events.CandidatesAdded():
                nothing = (None,) * len(event.candidates)
                self.candidates += event.candidates
                self.costs += event.costs or nothing
                self.prices += event.prices or nothing
                self.judging += [NOTHING] * len(nothing)
                self.lost += [NOTHING] * len(nothing)
            case events.CandidatesBarred():
                self.barred |= dict.fromkeys(event.candidates, event.reason)
            case events.ExamplesAdded():
                self.example_ids += event.ids
                self.example_digests += event.digests
                self.slices += event.slices
                self.independent += event.independent
            case events.BudgetSet():
                self.budget = event.budget
                self.configured = event.configured or self.configured
            case events.Resumed():
                # A session that was killed has no ``Stopped`` with its length: it is counted until
                # its last outcome. After a stop ``elapsed`` is 0, and nothing is counted twice.
                self.sessions.append(Session(event.at, event.version))
                self._end_session(self.elapsed)
            case Stopped():
                self.sessions[-1] = replace(self.sessions[-1], stopped=event)
                self._end_session(event.seconds)
            case Attempted() | Settled():
                self.attempts[event.seq] = _taken(self.attempts_of(event.seq), event)
            case events.Proposed():
                self.rounds = event.rounds

    def _end_session(self, seconds: float) -> None:
        self.seconds += seconds
        self.elapsed = 0.0

    def _impossible(self, problem: str) -> StoreError:
        return StoreError(
            f"event {self.n_events} of the log is impossible: {problem}; the log is damaged: "
            f"restore the store from a copy, or begin a new run (it reuses the stored replies)"
        )


def _taken(known: Attempts, event: Attempted | Settled) -> Attempts:
    if isinstance(event, Attempted):
        keys, priced = known.keys | {event.key}, known.priced and event.priced
        return replace(known, open=(*known.open, event), keys=keys, priced=priced)
    # Each attempt is settled by an event of its own: of several of one key only one is over.
    unsettled = list(known.open)
    settled = next((attempt for attempt in unsettled if attempt.key == event.key), None)
    if settled is not None:
        unsettled.remove(settled)
    if event.judge:
        return replace(known, open=tuple(unsettled), judge_spend=known.judge_spend + event.cost)
    return replace(known, open=tuple(unsettled), spend=known.spend + event.cost)


def fold(events: Iterable[Event]) -> RunState:
    """Fold a log; raise StoreError with the number, from 0, of an event that cannot come there.

    Example:
        >>> fold([events.Started("study", "2026-11-21T09:30:15Z", "0.1.0", {}, ".")]).sessions
        [Session(at='2026-11-21T09:30:15Z', version='0.1.0', stopped=None)]
    """
    state = RunState()
    state.take([line_of(event) for event in events])
    return state
