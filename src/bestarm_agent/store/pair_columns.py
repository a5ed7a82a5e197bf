"""The pairs of a run as columns of numbers, by ask; texts are left in the store.

A run of a million pairs would take 2 GB as objects. Here a pair takes about 110 bytes, and becomes
numbers without becoming events. What is no number (answers, verdicts) is read back from the log
where it is wanted, by ``Store.told``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.domain.events import Asked
from bestarm_agent.domain.spend import NOTHING, Spend
from bestarm_agent.domain.values import Candidate, Failure
from bestarm_agent.selectors.types import State
from bestarm_agent.stats.arrays import IntArray

Record: TypeAlias = dict[str, Any]  # an event as JSON has it
_T = TypeVar("_T")
_Scalar = TypeVar("_Scalar", bound=np.generic)
_FIRST = 64  # pairs that there is room for at first
ASKED = np.dtype(
    [
        ("candidate", np.int32),  # row
        ("example", np.int32),  # column
        ("reason", np.int32),  # number in ``reasons``
    ]
)
AMOUNTS = {  # what a pair has cost: all that ``Spend`` allows, however odd
    "answers": np.int32,
    "calls": np.int64,
    "tokens": np.int64,
    "usd_nanos": np.int64,
    "gpu_seconds": np.float64,
}


def told_type(n_measures: int = 0) -> np.dtype[np.void]:
    """Return the columns of outcomes, of a study with so many further scorers."""
    return np.dtype(
        [
            ("state", np.int8),  # ``State``
            ("score", np.float64),  # NaN while pending, or if void
            ("gold", np.float64),  # the trusted score; NaN: none
            *AMOUNTS.items(),
            ("seconds", np.float64),  # of the answered call; 0 where there was none
            ("output", np.int64),  # tokens of the reply; -1 unless it was scored
            ("price", np.float64),  # nano-dollars of the answered call; NaN: unknown
            ("cached", np.bool_),  # the reply came from the cache
            ("failure", np.int32),  # number in ``failures``; -1: it was scored
            ("sign", np.int32),  # number in ``signs``; 0: none
            ("at", np.float64),  # seconds of work on the run when the outcome came
            ("event", np.int32),  # number of the event; -1 while pending
            ("measures", np.float64, (n_measures,)),  # by the further scorers; NaN: none
        ]
    )


class _Numbered(list[_T]):
    """Values that differ, in the order of their first coming."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[_T, int] = {}

    def number_of(self, value: _T) -> int:
        """Return the position of a value, which is added if it is new."""
        # one look-up for both: ``setdefault`` gives back the length only for a new value
        number = self._numbers.setdefault(value, len(self))
        if number == len(self):
            self.append(value)
        return number


class PairColumns:
    """The asks of a run and their outcomes, with what sums and means over them say.

    K candidates are numbered by row, N examples by column, asks in the order of asking.
    """

    def __init__(self) -> None:
        self.candidates: list[Candidate] = []  # (K,)
        self.reasons = _Numbered[str]()  # the rule's words for why it asked
        self.failures = _Numbered[Failure]()
        self.signs = _Numbered[str]()  # that replies may have been scored wrongly
        self.signs.number_of("")
        self.n_asked = self.n_told = 0
        self._asked = np.empty(_FIRST, ASKED)
        self._begin_outcomes()
        self._order = np.empty(_FIRST, np.int32)  # ask numbers in the order of telling

    def _begin_outcomes(self, n_measures: int = 0) -> None:
        """Make room for the outcomes of a study with so many further scorers."""
        self._pending = pending_outcome(n_measures)
        self._told = np.empty(_FIRST, self._pending.dtype)

    @property
    def asks(self) -> NDArray[np.void]:
        """(asked,) the asks, by their number, with the fields of ``ASKED``; not to be written."""
        return self._asked[: self.n_asked]

    @property
    def told(self) -> NDArray[np.void]:
        """(asked,) the outcomes, by ask number, as ``told_type`` says; not to be written."""
        return self._told[: self.n_asked]

    @property
    def order(self) -> NDArray[np.int32]:
        """(told,) ask numbers, in the order of telling; not to be written."""
        return self._order[: self.n_told]

    def failed(self) -> IntArray:
        """Return the asks whose pair failed or is void, in the order of telling."""
        return self.order[self.told["failure"][self.order] >= 0].astype(np.int64)

    def failure(self, seq: int) -> Failure | None:
        """Return why a pair failed or is void; None if it did not."""
        number = int(self._told["failure"][seq])
        return None if number < 0 else self.failures[number]

    def ask(self, seq: int) -> Asked:
        """Return an ask as it was logged, without what was excluded then."""
        row, column, reason = self._asked[seq].tolist()
        return Asked(seq, row, column, self.reasons[reason])

    def by_candidate(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return (K,) the sums of what the asks have each, such as a column of ``told``."""
        sums = np.bincount(self.asks["candidate"], values, len(self.candidates))
        return sums.astype(np.float64)

    def means(self, values: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (K,) how many of the asks have a value, and their mean; NaN is none."""
        n = self.by_candidate(~np.isnan(values))
        mean = np.full(len(n), np.nan)
        np.divide(self.by_candidate(np.nan_to_num(values)), n, out=mean, where=n > 0)
        return n, mean

    def spends(self, groups: IntArray | None = None) -> list[Spend]:
        """Return (K,) the costs of the candidates' outcomes.

        With ``groups``, the (K,) number from 0 of each one's group, those of the groups.
        """
        rows, n = self.asks["candidate"], len(self.candidates)
        if groups is not None:
            rows, n = groups[rows], int(groups.max(initial=-1)) + 1
        asked = np.flatnonzero(np.bincount(rows, minlength=n))
        *whole, gpu_seconds = (np.bincount(rows, self.told[name], n)[asked] for name in AMOUNTS)
        # ``bincount`` adds in floats, which are exact for sums of whole numbers below 2**53: in
        # nano-dollars, 9 million dollars
        columns = [np.rint(sums).astype(np.int64).tolist() for sums in whole]
        spends = [NOTHING] * n
        for row, *amounts in zip(asked.tolist(), *columns, gpu_seconds.tolist(), strict=True):
            spends[row] = Spend(*amounts)
        return spends

    def latencies(self, *percents: int) -> Iterator[NDArray[np.float64]]:
        """Yield (K,) percentiles, each > 0, of the seconds of each candidate's answered calls.

        By nearest rank: so many percent of its calls took at most this. NaN where there is none.
        """
        rows, seconds = self.asks["candidate"], self.told["seconds"]
        # those that took 0 s, which are not answered calls, come first of each candidate's
        rising = seconds[np.lexsort((seconds, rows))]
        ends = np.cumsum(np.bincount(rows, minlength=len(self.candidates)))
        n = np.bincount(rows[seconds > 0], minlength=len(self.candidates))
        for percent in percents:
            values = np.full(len(n), np.nan)
            rank = -(-percent * n // 100)  # the ceiling, from 1
            values[n > 0] = rising[(ends - n + rank - 1)[n > 0]]
            yield values

    def put_columns(
        self, asked: NDArray[np.void], order: NDArray[np.int32], told: NDArray[np.void]
    ) -> None:
        """Add asks and outcomes as another state has them; raise ValueError if they do not fit.

        Args:
            asked: (n,) the next ones.
            order: (m,) ask numbers, in the order of telling.
            told: (m,) the outcomes of these.
        """
        n, n_told = self.n_asked + len(asked), self.n_told + len(order)
        if asked.dtype != ASKED or told.dtype != self._told.dtype or len(told) != len(order):
            raise ValueError(f"columns of {told.dtype}, where {self._told.dtype} are due")
        self._reserve(n)
        self._asked[self.n_asked : n] = asked
        self._told[self.n_asked : n] = self._pending
        self._told[order] = told
        self._order[self.n_told : n_told] = order
        self.n_asked, self.n_told = n, n_told

    def _put_asks(self, records: Sequence[Record]) -> None:
        n = self.n_asked + len(records)
        self._reserve(n)
        number_of = self.reasons.number_of
        self._asked[self.n_asked : n] = [
            (record["candidate"], record["example"], number_of(record["reason"]))
            for record in records
        ]
        self._told[self.n_asked : n] = self._pending
        self.n_asked = n

    def _reserve(self, n: int) -> None:
        if n > len(self._asked):
            # Room is doubled, so that copying takes a constant time for each pair. What is not
            # written yet takes no memory.
            room = max(n, 2 * len(self._asked))
            self._asked = _with_room(self.asks, room)
            self._order = _with_room(self.order, room)
            self._told = _with_room(self.told, room)


def _with_room(values: NDArray[_Scalar], n: int) -> NDArray[_Scalar]:
    larger = np.empty(n, values.dtype)
    larger[: len(values)] = values
    return larger


def pending_outcome(n_measures: int) -> NDArray[np.void]:
    """Return a row of columns, of an outcome that is not there yet."""
    told = np.zeros(1, told_type(n_measures))
    told["state"] = int(State.PENDING)
    for name in ("failure", "output", "event"):
        told[name] = -1
    for name in ("score", "gold", "price", "measures"):
        told[name] = math.nan
    return told
