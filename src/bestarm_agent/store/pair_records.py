"""Keeps asks, outcomes and their totals in memory: columns of numbers, outcomes packed in pages.

A run of a million pairs would take 2 GB as objects. Here a pair takes about 100 bytes, and an
``Asked`` or ``Told`` is made anew each time one is looked at.
"""

from __future__ import annotations

import math
import zlib
from array import array
from bisect import insort
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import SupportsIndex, cast, overload

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.domain.events import Asked, Attempted, Told
from bestarm_agent.domain.outcome import Failed, Outcome, Scored
from bestarm_agent.domain.rows import NO_ROWS, Rows
from bestarm_agent.domain.spend import Spend
from bestarm_agent.selectors.types import State
from bestarm_agent.store.codec import dump_event, load_event

_PAGE = 128  # outcomes packed together
_KEPT = 32  # pages kept unpacked: those in flight together were told at about the same time
_PENDING = int(State.PENDING)
_NOT_SCORED = (int(State.FAILED), int(State.VOID))


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
        self._propensity = array("d")  # NaN for None
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

    def append(self, ask: Asked) -> None:
        """Add the next ask."""
        if ask.excluded:
            self._excluded[ask.seq] = self._alike.setdefault(ask.excluded, ask.excluded)
        self._candidate.append(ask.candidate)
        self._example.append(ask.example)
        self._propensity.append(math.nan if ask.propensity is None else ask.propensity)
        if ask.reason not in self._reason_of:
            self._reason_of[ask.reason] = len(self._reasons)
            self._reasons.append(ask.reason)
        self._reason.append(self._reason_of[ask.reason])

    def pair(self, seq: int) -> tuple[int, int]:
        """Return row and column of an ask."""
        return self._candidate[seq], self._example[seq]

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
        propensity = self._propensity[seq]
        return Asked(
            seq,
            self._candidate[seq],
            self._example[seq],
            None if math.isnan(propensity) else propensity,
            self._reasons[self._reason[seq]],
            self._excluded.get(seq, NO_ROWS),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AskedPairs) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


class ToldPairs(Mapping[int, Told]):
    """The outcomes of a run by ask number; iterated in the order of telling."""

    def __init__(self) -> None:
        self._order = array("i")  # ask numbers
        self._place = array("i")  # by ask number: place in the order, -1 while pending
        self._state = array("b")  # by ask number, as what follows
        self._score = array("d")
        self._at = array("d")
        self._pages: list[bytes] = []
        self._open: list[Told] = []  # the last page, not packed yet
        self._unpacked: OrderedDict[int, list[str]] = OrderedDict()
        self.last_failed: int | None = None  # the ask told last whose pair failed or is void

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

    def put(self, told: Told, before: float) -> None:
        """Add an outcome; ``before`` are the seconds of the sessions that are over."""
        missing = told.seq + 1 - len(self._place)
        if missing > 0:
            self._place.extend([-1] * missing)
            self._state.extend([_PENDING] * missing)
            self._score.extend([math.nan] * missing)
        self._place[told.seq] = len(self._order)
        self._state[told.seq] = int(state_of(told))
        self._score[told.seq] = math.nan if told.score is None else told.score
        self._order.append(told.seq)
        self._at.append(before + told.elapsed)
        if self._state[told.seq] in _NOT_SCORED:
            self.last_failed = told.seq
        self._open.append(told)
        if len(self._open) == _PAGE:
            self._pages.append(zlib.compress("\n".join(map(dump_event, self._open)).encode(), 1))
            self._open = []

    def state_at(self, seq: int) -> State:
        """Return the state of an ask's cell."""
        return State(self._state[seq]) if seq in self else State.PENDING

    def score_at(self, seq: int) -> float | None:
        """Return the score of an ask; None while it is pending, or if it is void."""
        score = self._score[seq] if seq in self else math.nan
        return None if math.isnan(score) else score

    def failed(self) -> list[int]:
        """Return the asks whose pair failed or is void, in the order of telling."""
        return [seq for seq in self._order if self._state[seq] in _NOT_SCORED]

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
        if page == len(self._pages):
            return self._open[place]
        return cast("Told", load_event(self._lines(page)[place]))

    def _lines(self, page: int) -> list[str]:
        lines = self._unpacked.pop(page, None)
        if lines is None:
            lines = zlib.decompress(self._pages[page]).decode().split("\n")
            if len(self._unpacked) >= _KEPT:
                self._unpacked.popitem(last=False)
        self._unpacked[page] = lines
        return lines


@dataclass(slots=True)
class CandidateTotals:
    """Totals over the outcomes of one candidate."""

    spend: Spend = field(default_factory=Spend)
    judge_spend: Spend = field(default_factory=Spend)  # its part for judging
    lost_spend: Spend = field(default_factory=Spend)  # its part without an answer
    seconds: float = 0.0  # of answered calls, summed
    latencies: array[float] = field(default_factory=lambda: array("d"))  # the same, sorted
    replies: int = 0  # that were scored
    output_tokens: int = 0  # of these replies
    measures: list[float] = field(default_factory=list)  # their sum by each further scorer
    measured: list[int] = field(default_factory=list)  # replies that each of them could score

    def pay(self, outcome: Outcome) -> None:
        """Add the cost of an outcome."""
        self.spend += outcome.spend
        self.judge_spend += outcome.judge_spend
        self.lost_spend += outcome.lost_spend

    def describe(self, outcome: Outcome) -> None:
        """Add what an outcome says besides its score."""
        self.seconds += outcome.seconds
        if outcome.seconds > 0:
            insort(self.latencies, outcome.seconds)
        if not isinstance(outcome, Scored):
            return
        self.replies += 1
        self.output_tokens += outcome.usage.output
        missing = len(outcome.measures) - len(self.measures)
        self.measures += [0.0] * missing
        self.measured += [0] * missing
        for k, value in enumerate(outcome.measures):
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
