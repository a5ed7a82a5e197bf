"""An amount set aside for several calls that are not known one by one yet."""

from __future__ import annotations

from bestarm_agent.domain.spend import Spend
from bestarm_agent.schedule.caller import Attempts
from bestarm_agent.schedule.ledger import Ledger, Reservation


class Purse:
    """Pays the calls of one judgement out of what was reserved for them together.

    Args:
        ledger: the budget.
        reservation: what is set aside, or None if that was given back before.
        spent: what the judgement cost in an earlier sitting.

    Attributes:
        spent: what the judgement has cost so far.
    """

    def __init__(
        self, ledger: Ledger, reservation: Reservation | None, spent: Spend | None = None
    ) -> None:
        self.spent = spent or Spend()
        self._ledger = ledger
        self._left = reservation

    def draw(self, upper: Spend) -> Reservation | None:
        """Set ``upper`` aside for one call, out of the purse as far as it goes.

        None if it does not fit into purse and budget together.
        """
        if self._left is None:
            return self._ledger.reserve(upper)
        parted = self._ledger.draw(self._left, upper)
        if parted is None:
            return None
        drawn, self._left = parted
        return drawn

    def note(self, attempts: Attempts) -> None:
        """Take a call's end in: count what it cost, give back what it did not use."""
        self.spent += attempts.spend
        if attempts.reservation is not None:
            self._ledger.release(attempts.reservation)
            attempts.reservation = None

    def close(self) -> None:
        """Give back what is left."""
        if self._left is not None:
            self._ledger.release(self._left)
            self._left = None
