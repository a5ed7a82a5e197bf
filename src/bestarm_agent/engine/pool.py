"""The candidates of a run: which can be called now, and which the budget can pay.

Where a provider loads one model at a time, asks come in blocks of one model: loading takes as long
as many calls, and a rule that may ask any candidate would have models swapped every few calls. So
the model that was asked last has a block: only its candidates may be asked until the block is over.
A block is over after n asks, where n is the smaller of

- the asks after which loading took a tenth of the time, once that was measured;
- max(K_m, asks so far / M), for K_m candidates of the model and M models: at the beginning every
  model gets a block soon, however slowly it loads, and since blocks grow with the asks made, there
  are no more than about M log(asks) of them.

It is over at once when the rule asks nothing of the model and no call is under way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from bestarm_agent.domain.events import CandidatesAdded
from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Request
from bestarm_agent.engine.call import WHOLE_PROVIDER, Model
from bestarm_agent.engine.evaluate import CANDIDATES_OWN, ReadyCandidate
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.limits.gates import Gate
from bestarm_agent.engine.limits.model_limits import ModelLimits
from bestarm_agent.errors import ProviderError
from bestarm_agent.providers.base import Provider
from bestarm_agent.selectors.types import both
from bestarm_agent.stats.arrays import BoolArray, FloatArray

# What every ask costs besides its calls: the cap on answers counts it.
_PULL = Spend(answers=1)


class _Block:
    """The block of a provider that loads one of several models at a time."""

    def __init__(self, provider: Provider, gate: Gate) -> None:
        self.models: dict[Model, int] = {}  # with the number of their candidates
        self.model: Model | None = None  # that may be asked; None between two blocks
        self._provider, self._gate = provider, gate
        self._n_asked = 0  # in all blocks
        self._n_in_block = 0

    @property
    def asks_left(self) -> float:
        """The asks until any model may be asked, >= 0; infinite if any may always be."""
        if not self._provider.loads_one_at_a_time or len(self.models) < 2:
            return math.inf
        if self.model is None:
            return 0
        # A block of K_m asks lets each candidate of the model be asked once. The other term makes a
        # block as long as all asks so far, spread over the models: the asks made grow by a constant
        # factor with each round of blocks, so that M models need about M log(asks) blocks.
        length = max(self.models[self.model], self._n_asked // len(self.models))
        # The provider may have measured how many asks make up for loading: longer blocks than that
        # gain nothing, and the rule waits longer for the candidates that it wants.
        paying = self._provider.asks_per_load(self.model.name)
        length = length if paying is None else min(length, max(1, paying))
        return max(0, length - self._n_in_block)

    @property
    def binds(self) -> bool:
        """True if only the model of the block may be asked."""
        return 0 < self.asks_left < math.inf

    def note(self, model: Model) -> None:
        """Note that a model was asked."""
        if model is not self.model or not self.asks_left:
            self.model, self._n_in_block = model, 0
        self._n_asked += 1
        self._n_in_block += 1

    def end(self) -> bool:
        """End the block; return False if that changes nothing, or calls are under way."""
        # The outcomes of calls under way may make the rule want the model again, and then its block
        # goes on.
        if self._gate.inside or not self.binds:
            return False
        self.model = None
        return True


class _Limits:
    """The limits of all models: the calls that each would let go, and who may answer.

    A run may have thousands of models, and asks for this before each pair. What is at rest says the
    same as at the last look, so only the others are looked at.

    Attributes:
        all: L of them, by place; models may share some.
        own_room: (L,) calls that could be sent, at the last look; may be infinite.
        may_answer: (L,) at the last look.
    """

    def __init__(self) -> None:
        self.all: list[ModelLimits] = []
        self.own_room, self.may_answer = np.empty(0), np.empty(0, dtype=np.bool_)
        self._places: dict[ModelLimits, int] = {}
        self._gates: dict[Gate, int] = {}  # of the providers
        self._gate_of = np.empty(0, dtype=np.intp)  # (L,)
        self._moving: set[int] = set()  # places of those that are not at rest

    def add(self, models: Sequence[Model]) -> list[int]:
        """Return the places of the models' limits, which are new or known."""
        gates: list[int] = []
        for model in models:
            if model.limits not in self._places:
                place = self._places[model.limits] = len(self.all)
                self.all.append(model.limits)
                gates.append(self._gates.setdefault(model.client.gate, len(self._gates)))
                self._moving.add(place)
                model.limits.watch(partial(self._moving.add, place))
        self._gate_of = np.append(self._gate_of, np.array(gates, dtype=np.intp))
        self.own_room = np.append(self.own_room, np.zeros(len(gates)))
        self.may_answer = np.append(self.may_answer, np.ones(len(gates), dtype=np.bool_))
        return [self._places[model.limits] for model in models]

    def look(self) -> None:
        """Look at the limits that may have changed since the last look."""
        for place in [*self._moving]:
            limits = self.all[place]
            if limits.is_at_rest:  # before its room, which may open between the two
                self._moving.discard(place)
            self.own_room[place], self.may_answer[place] = limits.room, limits.may_answer

    def free(self) -> FloatArray:
        """Return (L,) the free places in the gate of each one's provider."""
        return np.array([gate.free for gate in self._gates], dtype=np.float64)[self._gate_of]


class CandidatePool:
    """All candidates of a run, in the order of their rows."""

    def __init__(self, in_flight: int) -> None:
        self.candidates: list[ReadyCandidate] = []
        self.gate = Gate(in_flight)  # limits the calls in flight over all providers
        self.models: dict[Model, int] = {}  # with their number, from 0
        self._blocks: dict[int, _Block] = {}  # by provider
        self._limits = _Limits()
        self._free = np.empty(0)  # (L,) places in the gates, at the last look
        self._rooms = np.empty(0)  # (L,) of limits and gates, at the last look
        self._model_of = np.empty(0, dtype=np.intp)  # (K,) place of the model in ``models``
        self._limits_of = np.empty(0, dtype=np.intp)  # (K,) place of the model's limits
        self._usable = np.empty(0, dtype=np.bool_)
        self._bounds = np.empty((0, len(_PULL.amounts)))  # (K, 5) amounts of each one's bound
        self._highest_bound = Spend()

    def add(self, candidates: Sequence[ReadyCandidate]) -> None:
        """Add candidates as the next rows."""
        for new in candidates:
            client, provider = new.model.client, new.model.client.provider
            block = self._blocks.setdefault(id(provider), _Block(provider, client.gate))
            block.models[new.model] = block.models.get(new.model, 0) + 1
            self._highest_bound = self._highest_bound.highest(new.bound)
        rows = [self.models.setdefault(new.model, len(self.models)) for new in candidates]
        places = self._limits.add([new.model for new in candidates])
        self.candidates.extend(candidates)
        self._model_of = np.append(self._model_of, np.array(rows, dtype=np.intp))
        self._limits_of = np.append(self._limits_of, np.array(places, dtype=np.intp))
        bounds = np.array([new.bound.amounts for new in candidates], dtype=np.float64)
        self._bounds = np.append(self._bounds, bounds.reshape(-1, len(_PULL.amounts)), axis=0)
        self._refresh()

    def look(self) -> None:
        """Look at the room of each model.

        ``room``, ``not_busy`` and ``opens_in`` go by this very look: at a second one a limit might
        have opened, and they would not fit together.
        """
        if self.gate.free:
            self._limits.look()
        self._free = self._limits.free() * (self.gate.free > 0)
        self._rooms = np.minimum(self._limits.own_room, self._free)

    def room(self) -> int:
        """Return how many pairs may be asked at once, for any candidates."""
        # The rule may choose one model for all that is asked at once, so it is the smallest room of
        # those that have any. Models without room are masked by ``not_busy``.
        free = self._rooms[self._rooms > 0]
        return int(min(self.gate.free, free.min())) if free.size else 0

    def usable(self) -> BoolArray | None:
        """Return (K,) whether a candidate was not given up; None if none was."""
        return None if self._usable.all() else self._usable

    def available(self, held: Iterable[Model] = ()) -> BoolArray | None:
        """Return (K,) whether a candidate can be called, now or after a wait; None if all can.

        Models in ``held`` cannot, nor can those that another model's block keeps waiting.
        """
        blocks = [block for block in self._blocks.values() if block.binds]
        waiting = {model for block in blocks for model in block.models if model is not block.model}
        allowed = self._limits.may_answer[self._limits_of]
        if out := [self.models[model] for model in waiting.union(held)]:
            allowed &= ~np.isin(self._model_of, out)
        return both(self.usable(), None if allowed.all() else allowed)

    def not_busy(self) -> BoolArray | None:
        """Return (K,) who could be called at once; None if all could."""
        has_room = self._rooms > 0
        return None if has_room.all() else has_room[self._limits_of]

    def opens_in(self) -> float:
        """Return the seconds until a rate limit lets more be called; infinite if none does."""
        # Only limits open by time alone. A full gate opens when a call ends, and that wakes the
        # loop.
        shut = np.flatnonzero((self._rooms == 0) & (self._free > 0)).tolist()
        return min((self._limits.all[place].opens_in for place in shut), default=math.inf)

    @property
    def takes_turns(self) -> bool:
        """True while a model's block keeps others from being asked."""
        return any(block.binds for block in self._blocks.values())

    def blocks_left(self) -> float:
        """Return how many asks, >= 1, may be made before a block is over."""
        return max(1, min((block.asks_left for block in self._blocks.values()), default=math.inf))

    def note_asked(self, row: int) -> None:
        """Note that a candidate was asked."""
        model = self.candidates[row].model
        self._blocks[id(model.client.provider)].note(model)

    def end_blocks(self) -> bool:
        """End the blocks of idle providers; return False if that changes nothing."""
        ended = [block.end() for block in self._blocks.values()]
        return any(ended)

    def affordable(self, ledger: Ledger, *, later: bool = False) -> BoolArray | None:
        """Return (K,) whether the budget pays a candidate's next pull; None if it pays any.

        ``later``: once all that is reserved now was given back.
        """
        # Nearly always the budget pays even the dearest candidate, and then no row has to be looked
        # at.
        if ledger.affords(self._highest_bound + _PULL, later=later):
            return None
        return ledger.affords_each(self._bounds + _PULL.amounts, later=later)

    def payable(self, ledger: Ledger, at_most: int, affordable: BoolArray | None) -> int:
        """Count the answers, up to ``at_most``, that the budget pays of any ``affordable`` rows."""
        # The rule may choose any of the rows for any of the asks. So the number is what the budget
        # pays if each ask costs, of each amount, the most that any of these rows can.
        upper = self._highest_bound
        if affordable is not None:
            most = self._bounds[affordable].max(axis=0, initial=0.0)
            answers, calls, tokens, nano, seconds = most.tolist()
            upper = Spend(int(answers), int(calls), int(tokens), int(nano), seconds)
        return ledger.room_for(upper + _PULL, at_most)

    def raise_bound(self, row: int, bound: Spend) -> None:
        """Note that a pull of a candidate can cost ``bound``."""
        candidate = self.candidates[row]
        if (highest := candidate.bound.highest(bound)) == candidate.bound:
            return
        candidate.bound = highest
        self._bounds[row] = candidate.bound.amounts
        self._highest_bound = self._highest_bound.highest(bound)

    def note_obstacle(self, candidate: ReadyCandidate, error: Exception) -> None:
        """Stop asking what a fatal error of a candidate's call makes pointless."""
        # What is given up, by the error: of a judge, everything, since no reply can be scored; of a
        # provider as a whole (a wrong key, say), all its candidates; a refused request, or a
        # program's error, says something about this candidate alone; any other, about its model.
        gone, reason = self.candidates, f"no reply can be judged: {error}"
        if isinstance(error, ProviderError):
            model = None if error.kind in CANDIDATES_OWN else candidate.model
            client = candidate.model.client if error.kind in WHOLE_PROVIDER else None
            reason = str(error)
            gone = [
                other
                for other in self.candidates
                if other is candidate or other.model is model or other.model.client is client
            ]
        for other in gone:
            other.broken = other.broken or reason  # the first reason is the one that users read
        self._refresh()

    def equal_ones(self) -> dict[int, list[int]]:
        """Return the rows that are equal but for what their model does not take.

        They are keyed by the first row of those that are equal.
        """
        first: dict[str, int] = {}
        equal: dict[int, list[int]] = {}
        for row, ready in enumerate(self.candidates):
            own, provider = ready.candidate, ready.model.client.provider
            if own.model in provider.not_taken:
                params = provider.fitted(Request(own.model, params=own.params)).params
                stays = first.setdefault(replace(own, params=params).id, row)
                if stays != row:
                    equal.setdefault(stays, []).append(row)
        return equal

    def broken(self) -> dict[str, str]:
        """Return the labels of the candidates that can no longer be asked, with the reason."""
        return {each.candidate.label: each.broken for each in self.candidates if each.broken}

    def _refresh(self) -> None:
        self._usable = np.array([each.broken is None for each in self.candidates], dtype=np.bool_)


def candidates_added(candidates: Sequence[ReadyCandidate]) -> CandidatesAdded:
    """Record candidates with the most that a call to each can cost, and the price's source."""
    return CandidatesAdded(
        candidates=tuple(ready.candidate for ready in candidates),
        costs=tuple(ready.usd for ready in candidates),
        prices=tuple(ready.price_source for ready in candidates),
    )
