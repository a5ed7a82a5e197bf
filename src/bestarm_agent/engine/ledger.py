"""The budget as a hard cap: reserve an upper bound before a call, settle its cost after it.

Checking the spend after each call overshoots by whatever is in flight. Here what is spent plus
what is reserved never exceeds a cap.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from bestarm_agent.domain.spend import Budget, Reservations, Spend

_CAPPED = tuple(field.name for field in fields(Spend))


@dataclass(frozen=True, slots=True)
class Reservation:
    """An amount reserved for one attempt; ``id`` is unique in its ledger."""

    id: int
    amount: Spend


@dataclass(frozen=True, slots=True)
class Balance:
    """A ledger's state; ``reserved_ever`` = ``settled`` + ``refunded`` + ``outstanding``."""

    spent: Spend  # spend of the whole run, earlier sessions included
    outstanding: Spend  # reserved for attempts in flight
    reserved_ever: Spend  # everything reserved in this session
    settled: Spend  # cost of the finished attempts, up to what was reserved for each
    refunded: Spend  # what was reserved in excess
    overrun: Spend  # cost beyond the reservation; 0 unless a provider's bound is wrong
    charged: Spend  # recorded without a reservation: calls that an earlier session sent

    @property
    def reservations(self) -> Reservations:
        """Return the same as it is recorded when a session ends."""
        return Reservations(
            self.reserved_ever, self.settled, self.refunded, self.overrun, self.charged
        )


class Ledger:
    """Keeps a run within its budget; ``seconds`` is watched by the run loop, not here.

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
        self.spent = spent or Spend()  # by the whole run so far
        self._open: dict[int, Spend] = {}
        self._outstanding = Spend()
        self._reserved_ever = Spend()
        self._settled = Spend()
        self._overrun = Spend()
        self._charged = Spend()
        self._refunded = Spend()
        self._closed = Reservations()
        self._next_id = 0

    def affords(self, upper: Spend, *, later: bool = False) -> bool:
        """Return whether ``upper`` fits under every cap on top of what is spent and held.

        ``later``: once all that is reserved now was given back.
        """
        held = Spend() if later else self._outstanding
        for name in _CAPPED:
            cap = getattr(self.budget, name)
            if cap is None:
                continue
            if self._taken(name, held) + getattr(upper, name) > cap:
                return False
        return True

    def room_for(self, upper: Spend, at_most: int) -> int:
        """Count how many times ``upper`` can be reserved now, up to ``at_most`` >= 0."""
        room = at_most
        for name in _CAPPED:
            cap, each = getattr(self.budget, name), getattr(upper, name)
            if cap is not None and each > 0:
                room = min(room, int((cap - self._taken(name, self._outstanding)) // each))
        return max(0, room)

    def _taken(self, name: str, held: Spend) -> float:
        taken: float = getattr(self.spent, name) + getattr(held, name)
        return taken

    def reserve(self, upper: Spend) -> Reservation | None:
        """Reserve ``upper``; return None if it does not fit."""
        if not self.affords(upper):
            return None
        self._outstanding += upper
        self._reserved_ever += upper
        return self._opened(upper)

    def draw(self, reserve: Reservation, upper: Spend) -> tuple[Reservation, Reservation] | None:
        """Split a reservation into one of ``upper`` and one of the rest.

        What ``upper`` needs beyond the reservation is reserved in addition; None, and nothing
        changes, if that does not fit.

        Example:
            >>> ledger = Ledger(Budget(calls=3))
            >>> reserve = ledger.reserve(Spend(calls=2))
            >>> first, rest = ledger.draw(reserve, Spend(calls=1))
            >>> first.amount.calls, rest.amount.calls
            (1, 1)
        """
        covered = upper.capped(reserve.amount)
        extra = upper - covered
        if not self.affords(extra):
            return None
        self._close(reserve)
        self._outstanding += extra
        self._reserved_ever += extra
        return self._opened(upper), self._opened(reserve.amount - covered)

    def settle(self, reservation: Reservation, actual: Spend) -> None:
        """Record an attempt's cost and give the rest of its reservation back."""
        self._close(reservation)
        covered = actual.capped(reservation.amount)
        self._outstanding -= reservation.amount
        self.spent += actual
        self._settled += covered
        self._refunded += reservation.amount - covered
        self._overrun += actual - covered

    def release(self, reservation: Reservation) -> None:
        """Give a whole reservation back: nothing was sent."""
        self.settle(reservation, Spend())

    def charge(self, amount: Spend) -> None:
        """Record an amount that an earlier session spent, without a reservation."""
        self.spent += amount
        self._charged += amount

    def close(self) -> Reservations:
        """Return what was reserved since the last call, and what became of it."""
        now = self.balance().reservations
        since, self._closed = now - self._closed, now
        return since

    def balance(self) -> Balance:
        """Return the state; it always reconciles to zero."""
        return Balance(
            spent=self.spent,
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


class SharedReserve:
    """A reservation for several calls that are not known one by one yet, such as a judge's.

    Without a reservation, each call is reserved when it is made.
    """

    def __init__(
        self, ledger: Ledger, reservation: Reservation | None = None, spent: Spend | None = None
    ) -> None:
        self.spent = spent or Spend()  # cost of the calls so far
        self._ledger = ledger
        self._left = reservation

    def draw(self, upper: Spend) -> Reservation | None:
        """Reserve ``upper`` for one call, first from the reserve; None if it does not fit."""
        if self._left is None:
            return self._ledger.reserve(upper)
        parted = self._ledger.draw(self._left, upper)
        if parted is None:
            return None
        drawn, self._left = parted
        return drawn

    def close(self) -> None:
        """Give back what is left."""
        if self._left is not None:
            self._ledger.release(self._left)
            self._left = None
