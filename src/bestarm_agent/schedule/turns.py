"""Whose turn it is where models share a memory: asks stay with the loaded ones until a swap pays.

Loading a model takes as long as many calls to it. A selector that is free to ask any candidate goes
from model to model and would have them swapped for every few calls. So the models in memory have a
turn: only they may be asked, until the turn is over and the selector is free. If it then goes to a
model that is not in memory, those unused for longest leave and a new turn begins; else it stays
free, and nothing is swapped.

A turn is over after n asks, where n is the smaller of

- ceil(t_load / (share * t_call)): loading then takes no more than that share of the time;
- max(K_m, asks so far / M), for K_m candidates of the new model and M models: at the beginning
  every model gets a turn soon, however slowly it loads, and since turns grow with the asks made,
  there are no more than about M log(asks) of them.

It is over at once when the selector has nothing to ask of the models in memory and they have
nothing left to do, so that nothing ever waits for a turn to end.

A judge's model in the same memory is needed all the time. If it fits beside any one of the
candidates' it stays, and they share what it leaves. Else the memory is crowded: between two turns
the judge has one, for all replies that came in; it counts as one of the M models, and its loading
and its calls are added to those of n.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import ceil, inf

from bestarm_agent.providers.base import Footprint, SharesMemory


class Turns:
    """The turns of one provider's models.

    Models are planned for by what they take, not by what is loaded at the moment: a provider learns
    of a call only some time after it was asked for.

    Args:
        provider: says what its models take.
        share: of the time, in (0, 1], that loading may take.
        judges: the judge's models among the provider's.
    """

    def __init__(self, provider: SharesMemory, share: float, judges: Sequence[str] = ()) -> None:
        self._provider = provider
        self._share = share
        self._judges = tuple(judges)
        for model in self._judges:
            provider.keep(model)
        self._rows: Counter[str] = Counter()  # candidates, by what has to be in memory
        self._bytes: dict[str, int] = {}
        self._guests: dict[str, None] = {}  # in memory, by the plan; the longest unasked first
        self._newest_model = ""
        self._asked = 0
        self._asked_in_turn = 0
        self._is_ended = False

    def add(self, model: str) -> None:
        """Let one more candidate of a model join."""
        footprint = self._provider.footprint(model)
        self._rows[footprint.holder] += 1
        self._bytes[footprint.holder] = footprint.n_bytes

    def holder(self, model: str) -> str:
        """What has to be in memory for a model."""
        return self._provider.footprint(model).holder

    def open_to(self) -> frozenset[str] | None:
        """What may be in memory for an ask now; None: anything, or all of it at once."""
        if self._is_over() or self._all_fit():
            return None
        fitting = {holder for holder in self._bytes if self._room_for({*self._guests, holder})}
        return frozenset(fitting | self._guests.keys())

    def left(self) -> float:
        """How many asks may be made before ``open_to`` is to be looked at again, >= 1."""
        if self._all_fit():
            return inf
        return max(1, self._length() - self._asked_in_turn)

    def note(self, model: str) -> None:
        """Note that a model was asked."""
        footprint = self._provider.footprint(model)
        holder = footprint.holder
        self._bytes[holder] = footprint.n_bytes  # not known before it was downloaded
        if holder not in self._guests:
            self._seat(holder, model)
        self._guests[holder] = self._guests.pop(holder)
        self._asked += 1
        self._asked_in_turn += 1

    def end(self) -> bool:
        """End the turn; False if it was over already."""
        if self.open_to() is None:
            return False
        self._is_ended = True
        return True

    @property
    def is_crowded(self) -> bool:
        """Whether the judge's models and a candidate's do not fit into the memory together."""
        return bool(self._judges) and not all(self._fit({h}, self._judging()) for h in self._bytes)

    def clear(self) -> None:
        """End the turn, and plan with an empty memory: the judge's models take it."""
        self._guests.clear()

    def _seat(self, holder: str, model: str) -> None:
        """Plan for a newcomer; a new turn begins unless there was room for it."""
        begins = not self._guests
        while self._guests and not self._room_for({*self._guests, holder}):
            del self._guests[next(iter(self._guests))]
            begins = True
        self._guests[holder] = None
        if begins:
            self._newest_model = model
            self._asked_in_turn = 0
            self._is_ended = False

    def _is_over(self) -> bool:
        return self._asked_in_turn >= self._length()

    def _length(self) -> int:
        """Asks in this turn."""
        if not self._guests or self._is_ended:
            return 0
        newest = self._provider.footprint(self._newest_model)
        is_crowded = self.is_crowded
        fair = max(self._rows[newest.holder], self._asked // (len(self._rows) + is_crowded))
        swapped = [newest, *self._judging()] if is_crowded else [newest]
        loads = [one.load_seconds for one in swapped if one.load_seconds is not None]
        calls = [one.call_seconds for one in swapped if one.call_seconds]
        if min(len(loads), len(calls)) < len(swapped):
            return fair
        paying = ceil(sum(loads) / (self._share * sum(calls)))
        return min(fair, max(1, paying))

    def _judging(self) -> list[Footprint]:
        return [self._provider.footprint(model) for model in self._judges]

    def _all_fit(self) -> bool:
        return not self.is_crowded and self._room_for(self._bytes)

    def _room_for(self, holders: Iterable[str]) -> bool:
        """Whether there is room for some of the candidates' models, besides a judge that stays."""
        return self._fit(holders, () if self.is_crowded else self._judging())

    def _fit(self, holders: Iterable[str], judging: Sequence[Footprint]) -> bool:
        sizes = {one.holder: one.n_bytes for one in judging}
        sizes |= {holder: self._bytes[holder] for holder in holders}
        return sum(sizes.values()) <= self._provider.memory_bytes
