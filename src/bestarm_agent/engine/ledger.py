"""The budget as a hard cap: reserve an upper bound before a call, settle its cost after it.

Checking the spend after each call overshoots by whatever is in flight. Here what is spent plus
what is reserved never exceeds a cap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bestarm_agent.domain.spend import NOTHING, Budget, Spend
from bestarm_agent.stats.arrays import BoolArray, FloatArray

_SLACK = 1e-6  # of GPU-seconds, whose sums are not exact: .1 + .2 > .3; the others are whole


@dataclass(slots=True, eq=False)
class Reservation:
    """An amount reserved for one attempt, or for several that are drawn from it one by one."""

    amount: Spend
    is_open: bool = True  # neither settled nor given back


class Ledger:
    """Keeps a run within its budget; ``seconds`` is watched by the run loop, not here.

    Attributes:
        budget: the caps.
        spent: spend of the whole run, earlier sessions included.
        outstanding: reserved for attempts in flight.
        own: who shares no replies with others, such as a run's id; "": its calls share theirs.

    Example:
        >>> ledger = Ledger(Budget(calls=1))
        >>> first = ledger.reserve(Spend(calls=1))
        >>> ledger.reserve(Spend(calls=1)) is None
        True
        >>> ledger.settle(first, Spend(calls=1))
        >>> ledger.spent.calls
        1
    """

    def __init__(self, budget: Budget, spent: Spend | None = None) -> None:
        self.budget = budget
        self.spent = spent or Spend()
        self.outstanding = Spend()
        self.own = ""

    def affords(self, upper: Spend, *, later: bool = False) -> bool:
        """Return whether ``upper`` fits under every cap on top of what is spent and held.

        ``later``: once all that is reserved now was given back.
        """
        held = self.spent if later else self.spent + self.outstanding
        for cap, amount in zip(self._caps, (held + upper).amounts, strict=True):
            if cap is not None and amount - cap > _SLACK:
                return False
        return True

    def affords_each(self, uppers: FloatArray, *, later: bool = False) -> BoolArray:
        """Return (n,) whether it affords each of n spends, whose amounts are (n, 5).

        They are exact: calls cost less than 2^53 of anything.
        """
        held = self.spent if later else self.spent + self.outstanding
        caps = np.array([np.inf if cap is None else cap for cap in self._caps])
        fits: BoolArray = (np.array(held.amounts) + uppers - caps <= _SLACK).all(axis=1)
        return fits

    def room_for(self, upper: Spend, at_most: int) -> int:
        """Count how many times ``upper`` can be reserved now, up to ``at_most`` >= 0."""
        room, held = at_most, self.spent + self.outstanding
        for cap, taken, each in zip(self._caps, held.amounts, upper.amounts, strict=True):
            if cap is not None and each > 0:
                room = min(room, int((cap - taken + _SLACK) // each))
        return max(0, room)

    @property
    def _caps(self) -> tuple[float | None, ...]:
        """Caps in the order of a spend's amounts."""
        of = self.budget
        return of.answers, of.calls, of.tokens, of.usd_nanos, of.gpu_seconds

    def reserve(self, upper: Spend) -> Reservation | None:
        """Reserve ``upper``; return None if it does not fit."""
        if not self.affords(upper):
            return None
        self.outstanding += upper
        return Reservation(upper)

    def draw(self, reserve: Reservation, upper: Spend) -> Reservation | None:
        """Reserve ``upper``, first from a reservation for several attempts.

        What it needs beyond that is reserved in addition; None, and nothing changes, if that does
        not fit.

        Example:
            >>> ledger = Ledger(Budget(calls=3))
            >>> reserve = ledger.reserve(Spend(calls=2))
            >>> first = ledger.draw(reserve, Spend(calls=1))
            >>> first.amount.calls, reserve.amount.calls
            (1, 1)
        """
        self._check_open(reserve)
        # What the reserve covers is in ``outstanding`` already and only changes hands; ``reserve``
        # adds the rest to it. So the sum of both stays what is held, whichever of them is settled
        # first.
        covered = upper.capped(reserve.amount)
        if self.reserve(upper - covered) is None:
            return None
        reserve.amount -= covered
        return Reservation(upper)

    def settle(self, reservation: Reservation, actual: Spend) -> None:
        """Record an attempt's cost and give the rest of its reservation back."""
        # A second settlement would give back what others have reserved since: the cap would not
        # hold.
        self._check_open(reservation)
        reservation.is_open = False
        self.outstanding -= reservation.amount
        self.spent += actual

    def release(self, reservation: Reservation) -> None:
        """Give a whole reservation back: nothing was sent."""
        self.settle(reservation, NOTHING)

    def charge(self, amount: Spend) -> None:
        """Record an amount that an earlier session spent, without a reservation."""
        self.spent += amount

    def _check_open(self, reservation: Reservation) -> None:
        if not reservation.is_open:
            raise ValueError(f"{reservation.amount} was settled or released before")
