"""Which candidates may be asked now where models share a memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from bestarm_agent.providers.base import Provider, SharesMemory
from bestarm_agent.schedule.court import Court
from bestarm_agent.schedule.gate import Gate
from bestarm_agent.schedule.turns import Turns
from bestarm_agent.selectors.types import BoolArray


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a candidate's model lives: the turns of its memory, and what it needs there."""

    turns: Turns | None
    model: str
    holder: str = ""


class Sharing:
    """The turns of all providers whose models share a memory, seen as rows.

    Where nothing is shared, or everything fits, nothing is masked.

    Args:
        court: where replies wait for a judge's model that shares a memory with candidates'.
    """

    def __init__(self, court: Court) -> None:
        self._court = court
        self._places: list[_Place] = []
        self._turns: dict[int, Turns] = {}
        self._gates: dict[int, Gate] = {}

    def add(self, members: Sequence[tuple[Provider, str, Gate]]) -> None:
        """Let candidates join as the next rows.

        Args:
            members: provider, model, and the gate of the provider's calls, of each.
        """
        for provider, model, gate in members:
            turns = self._turns_of(provider, gate)
            if turns is None:
                self._places.append(_Place(None, model))
                continue
            turns.add(model)
            self._places.append(_Place(turns, model, turns.holder(model)))

    def mask(self) -> BoolArray | None:
        """(K,) candidates whose turn it is; None if it is everybody's."""
        open_to = {key: self._open_to(key) for key in self._turns}
        if all(holders is None for holders in open_to.values()):
            return None
        by_turns = {id(self._turns[key]): holders for key, holders in open_to.items()}
        return np.array([_is_open(place, by_turns) for place in self._places], dtype=np.bool_)

    def left(self) -> float:
        """How many asks may be made under the present mask, >= 1."""
        return min((turns.left() for turns in self._turns.values()), default=inf)

    def note(self, row: int) -> None:
        """Note that a candidate was asked."""
        place = self._places[row]
        if place.turns is not None:
            place.turns.note(place.model)

    def end(self) -> bool:
        """End the turns of models that nothing can be asked of and that have nothing left to do.

        False if there are none: then there is nothing to wait for but what is in flight.
        """
        idle = [key for key in self._turns if self._gates[key].inside == 0]
        return any(self._turns[key].end() for key in idle)

    def hold_court(self, *, at_once: bool) -> None:
        """Let the judge have its turn, if replies wait for it and no candidate's model is busy.

        Args:
            at_once: also if a candidate's turn is not over, since nothing is asked in it.
        """
        crowded = [key for key, turns in self._turns.items() if turns.is_crowded]
        if self._court.is_sitting or not self._court.waiting:
            return
        if any(self._gates[key].inside for key in crowded):
            return
        if at_once or all(self._turns[key].open_to() is None for key in crowded):
            for key in crowded:
                self._turns[key].clear()
            self._court.open()

    def _open_to(self, key: int) -> frozenset[str] | None:
        """What an ask may have in memory now; nothing in the judge's turn, or if that is next."""
        turns = self._turns[key]
        holders = turns.open_to()
        if not turns.is_crowded:
            return holders
        is_judges = holders is None and (self._gates[key].inside or self._court.waiting)
        return frozenset() if is_judges or self._court.is_sitting else holders

    def _turns_of(self, provider: Provider, gate: Gate) -> Turns | None:
        key = id(provider)
        if key not in self._turns and isinstance(provider, SharesMemory):
            share = provider.loading_share
            if share is not None:
                self._turns[key] = Turns(provider, share, self._court.models_of(provider))
                self._court.watch(self._turns[key])
                self._gates[key] = gate
        return self._turns.get(key)


def _is_open(place: _Place, open_to: dict[int, frozenset[str] | None]) -> bool:
    if place.turns is None:
        return True
    holders = open_to[id(place.turns)]
    return holders is None or place.holder in holders
