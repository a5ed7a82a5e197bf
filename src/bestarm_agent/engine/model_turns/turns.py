"""Turns of models that share a memory: asks go to the loaded ones until a swap pays.

Loading a model takes as long as many calls to it, and a selector that may ask any candidate would
have models swapped every few calls. So the models in memory have a turn: only they may be asked
until it is over. If the selector then asks a model that is not in memory, the least recently asked
ones leave, and a new turn begins.

A turn is over after n asks, where n is the smaller of

- ceil(t_load / (share * t_call)): loading then takes no more than that share of the time;
- max(K_m, asks so far / M), for K_m candidates of the new model and M models: at the beginning
  every model gets a turn soon, however slowly it loads, and since turns grow with the asks made,
  there are no more than about M log(asks) of them.

It is over at once when the selector asks nothing of the models in memory and they are idle.

A judge's model in the same memory is needed all the time. If it fits together with any one of the
candidates' it stays, and they share the rest. Else the memory is crowded: between two turns the
judge has one, for all replies that came in. It then counts as one of the M models, and its loading
and call times are added to t_load and t_call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import ceil, inf

from bestarm_agent.providers.base import Footprint, SharesMemory


class ModelTurns:
    """The turns of one provider's models; loading may take ``share`` of the time, in (0, 1].

    Turns go by the plan, not by what is loaded at the moment: a provider gets a call some time
    after it was asked for.
    """

    def __init__(self, provider: SharesMemory, share: float, judges: Sequence[str] = ()) -> None:
        self._provider = provider
        self._share = share
        self._judges = tuple(judges)
        for model in self._judges:
            provider.pin(model)
        self._rows: Counter[str] = Counter()  # candidates, by what has to be in memory
        self._loaded: dict[str, None] = {}  # in memory, by the plan; the longest unasked first
        self._newest_model = ""
        self._asked = 0
        self._asked_in_turn = 0
        self._is_ended = False

    def add(self, model: str) -> None:
        """Add a candidate of a model."""
        self._rows[self.holder(model)] += 1

    def holder(self, model: str) -> str:
        """Return what has to be in memory for a model."""
        return self._provider.footprint(model).holder

    def open_to(self) -> frozenset[str] | None:
        """Return what may be in memory for an ask now; None: anything."""
        if self._asked_in_turn >= self._length() or self._all_fit():
            return None
        fitting = {holder for holder in self._rows if self._room_for({*self._loaded, holder})}
        return frozenset(fitting | self._loaded.keys())

    def left(self) -> float:
        """Return how many asks, >= 1, may be made before ``open_to`` changes."""
        if self._all_fit():
            return inf
        return max(1, self._length() - self._asked_in_turn)

    def note(self, model: str) -> None:
        """Note that a model was asked."""
        holder = self.holder(model)
        if holder not in self._loaded:
            self._plan(holder, model)
        self._loaded[holder] = self._loaded.pop(holder)
        self._asked += 1
        self._asked_in_turn += 1

    def end(self) -> bool:
        """End the turn; return False if it was over already."""
        if self.open_to() is None:
            return False
        self._is_ended = True
        return True

    @property
    def is_crowded(self) -> bool:
        """True if the judge's models and some candidate's do not fit into memory together."""
        return bool(self._judges) and not all(self._fit({h}, self._judging()) for h in self._rows)

    def clear(self) -> None:
        """End the turn and plan with an empty memory: the judge's models take it."""
        self._loaded.clear()

    def _plan(self, holder: str, model: str) -> None:
        """Plan to load a model; a new turn begins unless there was room for it."""
        staying = {holder}
        for other in reversed(self._loaded):  # the latest asked first
            if self._room_for({*staying, other}):
                staying.add(other)
        begins = not self._loaded or any(other not in staying for other in self._loaded)
        self._loaded = {other: None for other in (*self._loaded, holder) if other in staying}
        if begins:
            self._newest_model = model
            self._asked_in_turn = 0
            self._is_ended = False

    def _length(self) -> int:
        """Return n, the asks of this turn."""
        if not self._loaded or self._is_ended:
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
        return not self.is_crowded and self._room_for(self._rows)

    def _room_for(self, holders: Iterable[str]) -> bool:
        return self._fit(holders, () if self.is_crowded else self._judging())

    def _fit(self, holders: Iterable[str], judging: Sequence[Footprint]) -> bool:
        return self._provider.fits({*holders, *(one.holder for one in judging)})
