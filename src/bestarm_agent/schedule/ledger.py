"""The budget as a hard cap: reserve an upper bound before a call, settle what it cost after it.

Checking the spend after each call overshoots by whatever is in flight; here the sum of what was
spent and what is reserved never passes a cap.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from bestarm_agent.domain.spend import Books, Budget, Spend

_CAPPED = tuple(field.name for field in fields(Spend))


@dataclass(frozen=True, slots=True)
class Reservation:
    """An amount set aside for one attempt.

    Attributes:
        id: number, unique in its ledger.
        amount: what is set aside.
    """

    id: int
    amount: Spend


@dataclass(frozen=True, slots=True)
class Balance:
    """A ledger's state; ``reserved_ever`` = ``settled`` + ``refunded`` + ``outstanding``.

    Attributes:
        spent: spend of the whole run, earlier sittings included.
        outstanding: reserved for attempts that are still under way.
        reserved_ever: everything reserved in this sitting.
        settled: what the reserved attempts turned out to cost, as far as it was reserved.
        refunded: what was reserved in excess.
        overrun: what attempts cost beyond their reservation; 0 unless a provider's bound is wrong.
        charged: what was booked without a reservation: of calls that an earlier sitting sent.
    """

    spent: Spend
    outstanding: Spend
    reserved_ever: Spend
    settled: Spend
    refunded: Spend
    overrun: Spend
    charged: Spend

    @property
    def books(self) -> Books:
        """The same as it is recorded when a sitting ends."""
        return Books(self.reserved_ever, self.settled, self.refunded, self.overrun, self.charged)


class Ledger:
    """Keeps a run within its budget.

    Args:
        budget: the caps; its ``seconds`` is watched by the run loop, not here.
        spent: what earlier sittings of the run spent.

    Example:
        >>> ledger = Ledger(Budget(calls=1))
        >>> first = ledger.reserve(Spend(calls=1))
        >>> ledger.reserve(Spend(calls=1)) is None
        True
        >>> ledger.settle(first, Spend(calls=1))
        >>> ledger.balance().spent.calls
        1
    """

    def __init__(self, budget: Budget, spent: Spend | None = None) -> None:
        self.budget = budget
        self._spent = spent or Spend()
        self._open: dict[int, Spend] = {}
        self._outstanding = Spend()
        self._reserved_ever = Spend()
        self._settled = Spend()
        self._overrun = Spend()
        self._charged = Spend()
        self._refunded = Spend()
        self._closed = Books()
        self._next_id = 0

    def affords(self, upper: Spend) -> bool:
        """Whether ``upper`` fits under every cap, beside all that is spent and reserved."""
        for name in _CAPPED:
            cap = getattr(self.budget, name)
            if cap is None:
                continue
            taken = getattr(self._spent, name) + getattr(self._outstanding, name)
            if taken + getattr(upper, name) > cap:
                return False
        return True

    def room_for(self, upper: Spend, at_most: int) -> int:
        """How many times ``upper`` can be reserved now, up to ``at_most`` >= 0."""
        room = at_most
        for name in _CAPPED:
            cap, each = getattr(self.budget, name), getattr(upper, name)
            if cap is not None and each > 0:
                taken = getattr(self._spent, name) + getattr(self._outstanding, name)
                room = min(room, int((cap - taken) // each))
        return max(0, room)

    def reserve(self, upper: Spend) -> Reservation | None:
        """Set ``upper`` aside, or return None if it does not fit."""
        if not self.affords(upper):
            return None
        self._outstanding += upper
        self._reserved_ever += upper
        return self._opened(upper)

    def draw(self, purse: Reservation, upper: Spend) -> tuple[Reservation, Reservation] | None:
        """Part a reservation in two: one of ``upper``, and one of what is then left of it.

        What ``upper`` needs beyond the reservation is reserved in addition; None, and nothing
        changes, if that does not fit.

        Raises:
            ValueError: the reservation was settled before.

        Example:
            >>> ledger = Ledger(Budget(calls=3))
            >>> purse = ledger.reserve(Spend(calls=2))
            >>> first, rest = ledger.draw(purse, Spend(calls=1))
            >>> first.amount.calls, rest.amount.calls
            (1, 1)
        """
        covered = upper.capped(purse.amount)
        extra = upper - covered
        if not self.affords(extra):
            return None
        self._close(purse)
        self._outstanding += extra
        self._reserved_ever += extra
        return self._opened(upper), self._opened(purse.amount - covered)

    def settle(self, reservation: Reservation, actual: Spend) -> None:
        """Book what an attempt cost and give the rest of its reservation back.

        Raises:
            ValueError: the reservation was settled before.
        """
        self._close(reservation)
        covered = actual.capped(reservation.amount)
        self._outstanding -= reservation.amount
        self._spent += actual
        self._settled += covered
        self._refunded += reservation.amount - covered
        self._overrun += actual - covered

    def release(self, reservation: Reservation) -> None:
        """Give a whole reservation back: nothing was sent."""
        self.settle(reservation, Spend())

    def charge(self, amount: Spend) -> None:
        """Book an amount that was spent without a reservation, in an earlier sitting."""
        self._spent += amount
        self._charged += amount

    @property
    def spent(self) -> Spend:
        """Spend of the whole run so far."""
        return self._spent

    def close(self) -> Books:
        """Return what was booked since this was last called: a sitting's books at its end."""
        books = self.balance().books
        since, self._closed = books - self._closed, books
        return since

    def balance(self) -> Balance:
        """Return the state; it always reconciles to zero."""
        return Balance(
            spent=self._spent,
            outstanding=self._outstanding,
            reserved_ever=self._reserved_ever,
            settled=self._settled,
            refunded=self._refunded,
            overrun=self._overrun,
            charged=self._charged,
        )

    def _opened(self, amount: Spend) -> Reservation:
        reservation = Reservation(self._next_id, amount)
        self._next_id += 1
        self._open[reservation.id] = amount
        return reservation

    def _close(self, reservation: Reservation) -> None:
        if self._open.pop(reservation.id, None) is None:
            raise ValueError(f"reservation {reservation.id} was settled or released before")
