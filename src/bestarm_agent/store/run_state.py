"""The state of a run, computed from its log: columns of numbers, outcomes as packed JSON.

A run of a million pairs would take 2 GB as objects. Here a pair takes about 150 bytes, and an
``Asked`` or ``Told`` is made anew each time one is looked at. Lines of pairs, nearly all of a log,
become numbers without becoming events.
"""

from __future__ import annotations

import asyncio
import math
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, SupportsIndex, TypeAlias, cast, overload

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.events import (
    NO_ROWS,
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
    Rows,
    Started,
    Stopped,
    Told,
)
from bestarm_agent.domain.example import Slice
from bestarm_agent.domain.outcome import Failed
from bestarm_agent.domain.spend import Budget, Reservations, Spend
from bestarm_agent.errors import StoreError
from bestarm_agent.selectors.types import Ask, Pair, State
from bestarm_agent.store.codec import Line, event_of, line_of
from bestarm_agent.store.store import Store

_PAGE = 128  # outcomes packed together
_KEPT = 32  # pages kept unpacked: those in flight together were told at about the same time
_PENDING, _DONE, _FAILED, _VOID = map(int, (State.PENDING, State.DONE, State.FAILED, State.VOID))
_AMOUNTS = tuple(amount.name for amount in fields(Spend))
_SUMMED = ("judge_spend", "lost_spend", "measures")
_Record: TypeAlias = dict[str, Any]  # an event as JSON has it


def state_of(told: Told | None) -> State:
    """Return the state of an ask's cell, given its outcome or None."""
    if told is None:
        return State.PENDING
    if told.score is None:
        return State.VOID
    return State.FAILED if isinstance(told.outcome, Failed) else State.DONE


class AskedPairs(Sequence[Asked]):
    """All asks of a run, in the order of asking."""

    def __init__(self) -> None:
        self._candidate = array("i")
        self._example = array("i")
        self._reason = array("i")
        self._reasons: list[str] = []
        self._reason_of: dict[str, int] = {}
        self._excluded: dict[int, Rows] = {}  # by ask number; alike ones are one object
        self._alike: dict[Rows, Rows] = {}

    @property
    def candidate(self) -> NDArray[np.int32]:
        """(asked,) row of every ask; a copy."""
        return np.array(self._candidate, dtype=np.int32)

    @property
    def example(self) -> NDArray[np.int32]:
        """(asked,) column of every ask; a copy."""
        return np.array(self._example, dtype=np.int32)

    def append(self, record: _Record) -> None:
        """Add the next ask, given its event as JSON has it."""
        if "excluded" in record:
            rows = Rows(tuple(map(tuple, record["excluded"]["ranges"])))
            self._excluded[record["seq"]] = self._alike.setdefault(rows, rows)
        self._candidate.append(record["candidate"])
        self._example.append(record["example"])
        reason = record["reason"]
        number = self._reason_of.setdefault(reason, len(self._reasons))
        if number == len(self._reasons):
            self._reasons.append(reason)
        self._reason.append(number)

    def pair(self, seq: int) -> tuple[int, int]:
        """Return row and column of an ask."""
        return self._candidate[seq], self._example[seq]

    def ask(self, seq: int) -> Ask:
        """Return an ask as the rule saw it."""
        pair = Pair(self._candidate[seq], self._example[seq])
        return Ask(seq, pair, self._reasons[self._reason[seq]])

    def __len__(self) -> int:
        return len(self._candidate)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Asked: ...

    @overload
    def __getitem__(self, index: slice) -> list[Asked]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Asked | list[Asked]:
        if isinstance(index, slice):
            return [self[seq] for seq in range(*index.indices(len(self)))]
        seq = range(len(self))[index]
        return Asked(
            seq,
            self._candidate[seq],
            self._example[seq],
            self._reasons[self._reason[seq]],
            self._excluded.get(seq, NO_ROWS),
        )


class ToldPairs(Mapping[int, Told]):
    """The outcomes of a run by ask number; iterated in the order of telling."""

    def __init__(self) -> None:
        self.last_failed: int | None = None  # the ask told last whose pair failed or is void
        # in the order of telling
        self._order = array("i")  # ask numbers
        self._at = array("d")
        self._spend: tuple[array[Any], ...] = tuple(array(kind) for kind in "iiqqd")
        self._seconds = array("d")
        self._output = array("i")  # tokens; -1 unless it was scored
        self._pages: list[bytes] = []
        self._open: list[str] = []  # JSON of the last page's outcomes, not packed yet
        # by ask number
        self._place = array("i")  # place in the order, -1 while pending
        self._state = array("b")
        self._score = array("d")
        self._unpacked: OrderedDict[int, list[str]] = OrderedDict()

    @property
    def order(self) -> NDArray[np.int32]:
        """(told,) ask numbers, in the order of telling; a copy."""
        return np.array(self._order, dtype=np.int32)

    @property
    def state(self) -> NDArray[np.int8]:
        """(seqs,) ``State`` by ask number, up to the last one that was told; a copy."""
        return np.array(self._state, dtype=np.int8)

    @property
    def score(self) -> NDArray[np.float64]:
        """(seqs,) scores by ask number, as ``state``; NaN where there is none."""
        return np.array(self._score)

    @property
    def at(self) -> NDArray[np.float64]:
        """(told,) seconds of work on the run when each outcome came, in the order of telling."""
        return np.array(self._at)

    def extend(self, records: Sequence[_Record], texts: Iterable[str], at: Iterable[float]) -> None:
        """Add outcomes, given their events as JSON has them, as texts, and when they came."""
        outcomes = [record["outcome"] for record in records]
        missing = max(record["seq"] for record in records) + 1 - len(self._place)
        if missing > 0:
            self._place.extend([-1] * missing)
            self._state.extend([_PENDING] * missing)
            self._score.extend([math.nan] * missing)
        for record, outcome in zip(records, outcomes, strict=True):
            seq, score = record["seq"], record["score"]
            self._place[seq] = len(self._order)
            self._order.append(seq)
            if score is None:
                self._state[seq] = _VOID
            else:
                self._score[seq] = score
                self._state[seq] = _DONE if "value" in outcome else _FAILED
            if "value" not in outcome:
                self.last_failed = seq
        for column, amount in zip(self._spend, _AMOUNTS, strict=True):
            column.extend([outcome["spend"].get(amount, 0) for outcome in outcomes])
        self._at.extend(at)
        self._seconds.extend([outcome.get("seconds", 0.0) for outcome in outcomes])
        self._output.extend(
            [one["usage"].get("output", 0) if "value" in one else -1 for one in outcomes]
        )
        self._open += texts
        while len(self._open) >= _PAGE:
            self._pages.append(zlib.compress("\n".join(self._open[:_PAGE]).encode(), 1))
            del self._open[:_PAGE]

    def state_at(self, seq: int) -> State:
        """Return the state of an ask's cell."""
        return State(self._state[seq]) if seq in self else State.PENDING

    def score_at(self, seq: int) -> float | None:
        """Return the score of an ask; None while it is pending, or if it is void."""
        score = self._score[seq] if seq in self else math.nan
        return None if math.isnan(score) else score

    def usd_nanos_at(self, seq: int) -> int:
        """Return what an ask that was told has cost, in nano-dollars."""
        return int(self._spend[3][self._place[seq]])

    def failed(self) -> list[int]:
        """Return the asks whose pair failed or is void, in the order of telling."""
        return [seq for seq in self._order if self._state[seq] in (_FAILED, _VOID)]

    def sum_up(self, start: int, rows: NDArray[np.int32], totals: list[CandidateTotals]) -> None:
        """Add what was told from number ``start`` on, of pairs in these rows, to their totals."""
        n_rows = len(totals)
        output = np.array(self._output[start:], dtype=np.int64)
        seconds = np.array(self._seconds[start:])
        spend = np.array(
            [np.bincount(rows, np.array(of[start:], dtype=float), n_rows) for of in self._spend]
        )
        replies = np.bincount(rows, output >= 0, n_rows)
        generated = np.bincount(rows, np.maximum(output, 0), n_rows)
        order = np.argsort(rows, kind="stable")
        ends = np.cumsum(np.bincount(rows, minlength=n_rows))
        for row in np.unique(rows).tolist():
            one = totals[row]
            pulls, calls, tokens, nanos, gpu_seconds = spend[:, row].tolist()
            one.spend += Spend(int(pulls), int(calls), int(tokens), round(nanos), gpu_seconds)
            one.replies += int(replies[row])
            one.output_tokens += int(generated[row])
            times = seconds[order[ends[row - 1] if row else 0 : ends[row]]]
            answered = times[times > 0].tolist()
            one.seconds += math.fsum(answered)
            one.latencies = sorted(one.latencies + answered)

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[int]:
        return iter(self._order)

    def __reversed__(self) -> Iterator[int]:
        return reversed(self._order)

    def __contains__(self, seq: object) -> bool:
        return isinstance(seq, int) and 0 <= seq < len(self._place) and self._place[seq] >= 0

    def __getitem__(self, seq: int) -> Told:
        if seq not in self:
            raise KeyError(seq)
        page, place = divmod(self._place[seq], _PAGE)
        texts = self._open if page == len(self._pages) else self._texts(page)
        return cast("Told", event_of(("told", texts[place])))

    def _texts(self, page: int) -> list[str]:
        texts = self._unpacked.pop(page, None)
        if texts is None:
            texts = zlib.decompress(self._pages[page]).decode().split("\n")
            if len(self._unpacked) >= _KEPT:
                self._unpacked.popitem(last=False)
        self._unpacked[page] = texts
        return texts


class PendingPairs(Mapping[int, Asked]):
    """The asks without an outcome, by number, in the order of asking."""

    def __init__(self, asks: AskedPairs) -> None:
        self._asks = asks
        self.seqs: dict[int, None] = {}

    def __getitem__(self, seq: int) -> Asked:
        if seq not in self.seqs:
            raise KeyError(seq)
        return self._asks[seq]

    def __iter__(self) -> Iterator[int]:
        return iter(self.seqs)

    def __len__(self) -> int:
        return len(self.seqs)


@dataclass(slots=True)
class CandidateTotals:
    """Totals over the outcomes of one candidate."""

    spend: Spend = field(default_factory=Spend)
    judge_spend: Spend = field(default_factory=Spend)  # its part for judging
    lost_spend: Spend = field(default_factory=Spend)  # its part without an answer
    seconds: float = 0.0  # of answered calls, summed
    latencies: list[float] = field(default_factory=list)  # the same, sorted
    replies: int = 0  # that were scored
    output_tokens: int = 0  # of these replies
    measures: list[float] = field(default_factory=list)  # their sum by each further scorer
    measured: list[int] = field(default_factory=list)  # replies that each of them could score

    def measure(self, values: Sequence[float | None]) -> None:
        """Add a reply's scores by the further scorers."""
        missing = len(values) - len(self.measures)
        self.measures += [0.0] * missing
        self.measured += [0] * missing
        for k, value in enumerate(values):
            if value is not None:
                self.measures[k] += value
                self.measured[k] += 1


@dataclass(frozen=True, slots=True)
class PendingCost:
    """Cost of a pair without an outcome."""

    spend: Spend = field(default_factory=Spend)  # of the candidate's call, as far as known exactly
    judge_spend: Spend = field(default_factory=Spend)  # of judging, as far as known exactly
    # whether the first attempt may have been sent, at a cost not counted here
    first_sent: bool = True
    # further attempts that may have been sent, at most at these costs
    attempts: tuple[Attempted, ...] = ()

    @property
    def is_exact(self) -> bool:
        """True if the whole cost is known."""
        return not self.first_sent and not self.attempts


@dataclass(frozen=True, slots=True)
class Session:
    """One stretch of work on a run, from its start or resumption to its stop."""

    at: str  # when it began, ISO 8601 in UTC
    version: str  # of the package
    stopped: Stopped | None = None  # how it ended; None while it runs, or if it was killed


class RunState:
    """A run as of its latest event; it changes by ``take`` alone.

    K candidates are numbered by row, N examples by column, asks in the order of asking.
    """

    def __init__(self) -> None:
        self.n_events = 0
        self.started: Started | None = None
        self.candidates: list[Candidate] = []  # (K,)
        self.costs: list[float | None] = []  # (K,) most dollars of a call
        self.prices: list[str | None] = []  # (K,) sources of the prices
        self.barred: dict[int, str] = {}  # by row: why it was excluded
        self.example_ids: list[str] = []  # (N,)
        self.example_digests: list[str] = []  # (N,)
        self.slices: tuple[Slice, ...] = ()  # groups of examples that are looked at by themselves
        self.asks = AskedPairs()
        self.told = ToldPairs()  # by ask number
        self.pending = PendingPairs(self.asks)  # by ask number, in ask order
        self.pending_costs: dict[int, PendingCost] = {}  # where events tell them
        self.budgets: list[Budget] = []  # in order; the last one holds
        # the run's own caps; None before they differed from others
        self.configured: Budget | None = None
        self.proposer_calls: dict[str, ProposerCalled] = {}  # by key of the reply
        self.rounds = 0  # rounds of proposals that are over
        self.reservations = Reservations()  # of all sessions that stopped
        self.sessions: list[Session] = []
        self.seconds = 0.0  # wall-clock, of the sessions that are over
        self.elapsed = 0.0  # of the one that is not, at its last outcome
        self._totals: list[CandidateTotals] = []
        self._summed = 0  # outcomes in the totals
        self._asked_cells: list[bytearray] = []  # (K,) a bit for each example

    def take(self, lines: Sequence[Line]) -> list[int | Event]:
        """Add the next events of a log.

        Returns:
            The events in their order: the number of an ask; ``~seq`` if it was scored, and not
            by a trusted judge besides; any other event as it is.

        Raises:
            StoreError: with the number, from 0, of an event that is damaged or cannot come there.
        """
        first, moves = self.n_events, list[int | Event]()
        told: list[tuple[_Record, str, float]] = []
        try:
            for line, record in zip(lines, _records(lines), strict=True):
                tag, text = line
                if (tag == "started") != (self.n_events == 0):
                    raise self._impossible(f"{tag!r}; Started comes first, and only then")
                if tag == "asked":
                    moves.append(self._ask(record))
                elif tag == "told":
                    is_plain = self._tell(record)
                    told.append((record, text, self.seconds + record.get("elapsed", 0.0)))
                    moves.append(~record["seq"] if is_plain else self._event(line))
                else:
                    event = self._event(line)
                    self._rare(event)
                    moves.append(event)
                self.n_events += 1
            if told:
                self.told.extend(*zip(*told, strict=True))
        except (AttributeError, KeyError, OverflowError, TypeError) as error:
            raise self._damage(lines, first, error) from error
        return moves

    def _damage(self, lines: Sequence[Line], first: int, error: Exception) -> StoreError:
        """Return the error of the first line that cannot be read; the others are in order."""
        for self.n_events, line in enumerate(lines, first):
            self._event(line)
        return StoreError(f"the log is damaged ({error!r}); restore the store from a copy")

    def _event(self, line: Line) -> Event:
        try:
            return event_of(line)
        except StoreError as error:
            raise type(error)(f"event {self.n_events} of the log: {error}") from error

    def __repr__(self) -> str:  # asyncio.run shows its result to itself, which must not take long
        size = f"{len(self.candidates)} x {len(self.example_ids)}"
        return f"RunState({self.name!r}, {size}, {self.n_events} events)"

    @property
    def totals(self) -> list[CandidateTotals]:
        """(K,) totals of the candidates."""
        told = self.told.order[self._summed :]
        if len(told):
            self.told.sum_up(self._summed, self.asks.candidate[told], self._totals)
            self._summed += len(told)
        return self._totals

    @property
    def spend(self) -> Spend:
        """The cost of all outcomes, and of proposers' calls."""
        return sum((one.spend for one in self.totals), self.proposer_spend)

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

    def _ask(self, record: _Record) -> int:
        """Add an ask, if it can come here; return its number."""
        seq, row, column = record["seq"], record["candidate"], record["example"]
        if seq != len(self.asks):
            raise self._impossible(f"ask {seq} comes where ask {len(self.asks)} is due")
        if not (0 <= row < len(self.candidates) and 0 <= column < len(self.example_ids)):
            grid = f"{len(self.candidates)} x {len(self.example_ids)}"
            raise self._impossible(f"ask {seq} is for pair {(row, column)} of a grid of {grid}")
        cells, byte, bit = self._asked_cells[row], column >> 3, 1 << (column & 7)
        if byte >= len(cells):
            cells.extend(bytes(byte + 1 - len(cells)))
        if cells[byte] & bit:
            raise self._impossible(f"ask {seq} is for pair {(row, column)}, which was asked before")
        cells[byte] |= bit
        self.asks.append(record)
        self.pending.seqs[seq] = None
        return len(self.asks) - 1

    def _tell(self, record: _Record) -> bool:
        """Note an outcome, if it can come here; return whether it is a score and nothing else."""
        seq, score, outcome = record["seq"], record["score"], record["outcome"]
        if seq not in self.pending.seqs:
            problem = (
                "for the second time" if seq in range(len(self.asks)) else "which was never asked"
            )
            raise self._impossible(f"there is an outcome of ask {seq}, {problem}")
        if score is not None and not 0 <= score <= 1:
            raise self._impossible(f"ask {seq} scores {score}, outside [0, 1]")
        del self.pending.seqs[seq]
        self.pending_costs.pop(seq, None)
        self.elapsed = max(self.elapsed, record.get("elapsed", 0.0))
        if not outcome.keys().isdisjoint(_SUMMED):
            totals = self._totals[self.asks.pair(seq)[0]]
            totals.judge_spend += Spend(**outcome.get("judge_spend", {}))
            totals.lost_spend += Spend(**outcome.get("lost_spend", {}))
            totals.measure(outcome.get("measures", ()))
        return "value" in outcome and "gold" not in outcome

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
                if self.sessions[-1].stopped is not None:
                    raise self._impossible("the run stops, and nothing was going on")
                self.sessions[-1] = replace(self.sessions[-1], stopped=event)
                self.reservations += event.reservations
                self._end_session(event.seconds)
            case Attempted() | Charged():
                self._set_cost(event)
            case ProposerCalled():
                self.proposer_calls[event.key] = event
            case Proposed():
                self.rounds = event.rounds

    def _set_cost(self, event: Attempted | Charged) -> None:
        if event.seq not in self.pending.seqs:
            raise self._impossible(f"ask {event.seq} costs something, and is not pending")
        if isinstance(event, Charged):
            cost = PendingCost(event.spend, event.judge_spend, first_sent=False)
        else:
            known = self.cost_of(event.seq)
            cost = replace(known, attempts=(*known.attempts, event))
        self.pending_costs[event.seq] = cost

    def _add_candidates(self, event: CandidatesAdded) -> None:
        nothing = (None,) * len(event.candidates)
        self.candidates += event.candidates
        self.costs += event.costs or nothing
        self.prices += event.prices or nothing
        self._totals += [CandidateTotals() for _ in event.candidates]
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

    def _end_session(self, seconds: float) -> None:
        self.seconds += seconds
        self.elapsed = 0.0

    def _impossible(self, problem: str) -> StoreError:
        return StoreError(
            f"event {self.n_events} of the log is impossible: {problem}; the log is damaged: "
            f"restore the store from a copy, or begin a new run (it reuses the stored replies)"
        )


def _records(lines: Sequence[Line]) -> list[_Record]:
    """Parse the events of a page, all at once; those that are damaged become empty."""
    try:
        records: list[_Record] = from_json(f"[{','.join(text for _, text in lines)}]")
    except ValueError:
        records = []
    return records if len(records) == len(lines) else [_record(text) for _, text in lines]


def _record(text: str) -> _Record:
    try:
        record: _Record = from_json(text)
    except ValueError:
        return {}
    return record


def fold(events: Iterable[Event]) -> RunState:
    """Fold a log; raise StoreError with the number, from 0, of an event that cannot come there.

    Example:
        >>> fold([Started("study", "2026-11-21T09:30:15Z", "0.1.0", {}, ".")]).sessions
        [Session(at='2026-11-21T09:30:15Z', version='0.1.0', stopped=None)]
    """
    state = RunState()
    state.take([line_of(event) for event in events])
    return state


async def folded(store: Store, run: str) -> RunState:
    """Fold a run's log; raise RunNotFoundError if there is no such run."""
    state = RunState()
    async for page in store.lines_of(run):
        await asyncio.to_thread(state.take, page)
    return state
