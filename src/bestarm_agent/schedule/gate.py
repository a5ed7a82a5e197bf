"""How many calls may be under way at once, with first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque


class Gate:
    """A counted gate that says how much room it has.

    New work is let in by ``enter`` only where ``free`` says so; work that comes back after waiting
    outside (a backoff) queues in ``reenter`` and goes before new work.

    Args:
        capacity: how many may be inside, >= 1.

    Raises:
        ValueError: ``capacity`` < 1.
    """

    def __init__(self, capacity: int) -> None:
        _check(capacity)
        self.capacity = capacity
        self.inside = 0
        self._returning: deque[asyncio.Future[None]] = deque()

    @property
    def free(self) -> int:
        """How many new ones may enter now, >= 0."""
        return max(0, self.capacity - self.inside - len(self._returning))

    def enter(self) -> None:
        """Go in without waiting; the caller has looked at ``free``."""
        self.inside += 1

    async def reenter(self) -> None:
        """Wait for room, then go in."""
        if self.inside < self.capacity and not self._returning:
            self.inside += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._returning.append(turn)
        try:
            await turn  # whoever sets it has counted this one as inside
        except asyncio.CancelledError:
            if not turn.cancelled():  # the place had been handed over already
                self.leave()
            raise

    def leave(self) -> None:
        """Go out, and let the longest-waiting one in."""
        self.inside -= 1
        self._let_in()

    def resize(self, capacity: int) -> None:
        """Change the capacity; whoever is inside beyond a smaller one stays until they leave.

        Raises:
            ValueError: ``capacity`` < 1.
        """
        _check(capacity)
        self.capacity = capacity
        self._let_in()

    def _let_in(self) -> None:
        while self._returning and self.inside < self.capacity:
            turn = self._returning.popleft()
            if not turn.done():
                turn.set_result(None)
                self.inside += 1


def _check(capacity: int) -> None:
    if capacity < 1:
        raise ValueError(f"in_flight must be at least 1, got {capacity}")


class Slot:
    """One call's place inside several gates, given up while it waits for something else."""

    def __init__(self, *gates: Gate) -> None:
        self._gates = gates
        self._inside = 0  # the first so many gates are passed
        for gate in gates:
            gate.enter()
            self._inside += 1

    @classmethod
    def outside(cls, *gates: Gate) -> Slot:
        """A slot that has not entered yet: for calls that no free place was looked up for."""
        slot = cls()
        slot._gates = gates
        return slot

    def keep_last(self) -> None:
        """Go out of every gate but the last: the call is over, and what follows from it goes on."""
        while self._inside > 1:
            self._inside -= 1
            self._gates[0].leave()
            self._gates = self._gates[1:]

    @property
    def inside(self) -> bool:
        """Whether every gate is passed."""
        return self._inside == len(self._gates)

    def leave(self) -> None:
        """Go out of every gate; does nothing if already out."""
        while self._inside:
            self._inside -= 1
            self._gates[self._inside].leave()

    async def reenter(self) -> None:
        """Wait until every gate has room, then go in.

        No place is held while another is waited for: a judgement keeps one gate's place and waits
        for another's, so holding the second and waiting for the first could last forever.
        """
        missing = self._gates[self._inside :]
        while (full := next((gate for gate in missing if not gate.free), None)) is not None:
            await full.reenter()
            others = [gate for gate in missing if gate is not full]
            if all(gate.free for gate in others):
                missing = tuple(others)
            else:
                full.leave()
        for gate in missing:
            gate.enter()
        self._inside = len(self._gates)
