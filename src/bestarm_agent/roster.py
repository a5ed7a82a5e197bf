"""The candidates of a run, each with all that is needed to call it, and which can be asked now."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Request
from bestarm_agent.domain.spend import Spend
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.prompts.rendering import CompiledPrompt
from bestarm_agent.providers.base import Provider
from bestarm_agent.schedule.caller import Caller
from bestarm_agent.schedule.court import Court
from bestarm_agent.schedule.gate import Gate, Slot
from bestarm_agent.schedule.lane import Lane
from bestarm_agent.schedule.lanes import WHOLE_PROVIDER
from bestarm_agent.schedule.ledger import Ledger
from bestarm_agent.selectors.types import BoolArray, both
from bestarm_agent.sharing import Sharing


@dataclass(slots=True)
class Line:
    """A provider in use.

    Attributes:
        provider: answers requests.
        caller: sends them, with retries.
        gate: how many may be under way.
        broken: why it can no longer be used, or None.
    """

    provider: Provider
    caller: Caller
    gate: Gate
    broken: str | None = None

    def gates(self, model: str) -> tuple[Gate, ...]:
        """The gates that every call to a model passes."""
        return (self.gate, *self.caller.lane(model).gates)


@dataclass(slots=True)
class Entry:
    """A candidate, ready to be called.

    Attributes:
        candidate: what it is.
        prompt: its compiled prompt.
        line: its provider.
        fingerprint: what decides its replies besides the request.
        bound: highest cost of one attempt met so far, judging included; starts with the longest
            example's.
        usd: the most dollars that a call to it can cost, judging left aside: for the longest
            example, or for any where the objective depends on prices; None if not known.
        price_source: where its price comes from, for people, or None.
        broken: why it can no longer be asked, or None.
    """

    candidate: Candidate
    prompt: CompiledPrompt
    line: Line
    fingerprint: str
    bound: Spend
    usd: float | None = None
    price_source: str | None = None
    broken: str | None = None

    def request(self, example: Example) -> Request:
        """Render the prompt for one example."""
        return request_of(self.candidate, self.prompt, example)

    @property
    def model(self) -> str:
        """Provider and model, as users write it."""
        return f"{self.candidate.provider}/{self.candidate.model}"

    @property
    def lane(self) -> Lane:
        """The way to its model, shared with all that call it."""
        return self.line.caller.lane(self.candidate.model)


def request_of(candidate: Candidate, prompt: CompiledPrompt, example: Example) -> Request:
    """Render a candidate's prompt for one example."""
    rendered = prompt.render(example.inputs)
    return Request(
        model=candidate.model,
        text=rendered if isinstance(rendered, str) else None,
        messages=() if isinstance(rendered, str) else rendered,
        params=candidate.params,
        candidate=candidate.label,
        example=example.id,
        inputs=example.inputs,
    )


class Roster:
    """All candidates of a run, in the order of their rows.

    Args:
        in_flight: calls that may be under way at once, over all providers, >= 1.
        court: where replies wait for a judge's model, if it shares a memory with candidates'.
    """

    def __init__(self, in_flight: int, court: Court | None = None) -> None:
        self.entries: list[Entry] = []
        self.gate = Gate(in_flight)
        self._doors: list[tuple[Line, Lane]] = []
        self._door_of = np.empty(0, dtype=np.intp)
        self._usable = np.empty(0, dtype=np.bool_)
        self._dearest = Spend()
        self._sharing = Sharing(court or Court())

    def add(self, entries: Sequence[Entry]) -> None:
        """Let candidates join as the next rows."""
        numbers = {id(lane): i for i, (_, lane) in enumerate(self._doors)}
        for entry in entries:
            if id(entry.lane) not in numbers:
                numbers[id(entry.lane)] = len(self._doors)
                self._doors.append((entry.line, entry.lane))
            self._dearest = _highest(self._dearest, entry.bound)
        self.entries.extend(entries)
        self._sharing.add([(e.line.provider, e.candidate.model, e.line.gate) for e in entries])
        self._door_of = np.array([numbers[id(e.lane)] for e in self.entries], dtype=np.intp)
        self._refresh()

    def slot(self, entry: Entry) -> Slot:
        """Take a place for one call of a candidate."""
        return Slot(*entry.line.gates(entry.candidate.model), self.gate)

    def room(self) -> int:
        """How many pairs may be asked at once, whichever candidates they go to."""
        free = [room for room in map(_room, self._doors) if room]
        return int(min(self.gate.free, *free)) if free else 0

    def available(self) -> BoolArray | None:
        """(K,) candidates that can be called now, and whose turn it is; None if all can."""
        return both(self._callable(), self._sharing.mask())

    def turn_left(self) -> float:
        """How many pairs may be asked before ``available`` is to be looked at again, >= 1."""
        return self._sharing.left()

    def note_asked(self, row: int) -> None:
        """Note that a candidate was asked: turns are counted in asks."""
        self._sharing.note(row)

    def end_turn(self) -> bool:
        """Let other models have their turn, where those in memory are idle and cannot be asked.

        False if that changes nothing.
        """
        return self._sharing.end()

    def hold_court(self, *, at_once: bool) -> None:
        """Let a judge's model have its turn, where replies wait for it and the others are idle.

        Args:
            at_once: also if a candidate's turn is not over.
        """
        self._sharing.hold_court(at_once=at_once)

    def _callable(self) -> BoolArray | None:
        is_open = np.array([_room(door) > 0 for door in self._doors], dtype=np.bool_)
        if is_open.all() and self._usable.all():
            return None
        return self._usable & is_open[self._door_of]

    def opens_in(self) -> float:
        """Seconds until a rate limit lets more candidates be called; infinite if none does."""
        if not self.gate.free:
            return math.inf
        waits = (
            lane.opens_in
            for line, lane in self._doors
            if line.broken is None and line.gate.free and not lane.room
        )
        return min(waits, default=math.inf)

    def affordable(self, ledger: Ledger) -> BoolArray | None:
        """(K,) candidates whose next pull the budget can pay; None if it can pay any."""
        one_pull = Spend(pulls=1)
        if ledger.affords(self._dearest + one_pull):
            return None
        return np.array([ledger.affords(e.bound + one_pull) for e in self.entries], dtype=np.bool_)

    def payable(self, ledger: Ledger, at_most: int, affordable: BoolArray | None) -> int:
        """How many pulls the budget can pay together, whichever of the ``affordable`` they are.

        Up to ``at_most``.
        """
        dearest = self._dearest
        if affordable is not None:
            bounds = (e.bound for e, can in zip(self.entries, affordable, strict=True) if can)
            dearest = reduce(_highest, bounds, Spend())
        return ledger.room_for(dearest + Spend(pulls=1), at_most)

    def raise_bound(self, entry: Entry, bound: Spend) -> None:
        """Note that an attempt at a candidate can cost ``bound``."""
        entry.bound = _highest(entry.bound, bound)
        self._dearest = _highest(self._dearest, bound)

    def withdraw(self, entry: Entry, error: ProviderError) -> None:
        """Stop asking what a fatal error makes pointless: a provider, a model or a candidate."""
        reason = str(error)
        if error.kind in WHOLE_PROVIDER:
            entry.line.broken = entry.line.broken or reason
        for other in self.entries:
            same_model = error.kind is not FailureKind.BAD_REQUEST and other.model == entry.model
            if other is entry or same_model or other.line.broken:
                other.broken = other.broken or reason
        self._refresh()

    def close(self, reason: str) -> None:
        """Stop asking anything: no reply could be scored."""
        for entry in self.entries:
            entry.broken = entry.broken or reason
        self._refresh()

    def broken(self) -> dict[str, str]:
        """Labels of the candidates that can no longer be asked, with the reason."""
        return {e.candidate.label: e.broken for e in self.entries if e.broken is not None}

    def _refresh(self) -> None:
        self._usable = np.array([e.broken is None for e in self.entries], dtype=np.bool_)


def _room(door: tuple[Line, Lane]) -> float:
    line, lane = door
    return min(line.gate.free, lane.room) if line.broken is None else 0


def excluded(available: BoolArray | None, affordable: BoolArray | None) -> tuple[int, ...]:
    """Rows that could not be asked."""
    left = both(available, affordable)
    return () if left is None else tuple(int(i) for i in np.flatnonzero(~left))


def _highest(one: Spend, other: Spend) -> Spend:
    return Spend(
        max(one.pulls, other.pulls),
        max(one.calls, other.calls),
        max(one.tokens, other.tokens),
        max(one.usd_nanos, other.usd_nanos),
        max(one.gpu_seconds, other.gpu_seconds),
    )
