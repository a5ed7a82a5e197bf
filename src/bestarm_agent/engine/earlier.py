"""A run asked again: its asks and outcomes come in the order that they had before.

What a rule asks next depends on the outcomes that it was told, so on the order in which calls end.
Replies from the cache come in another order than they did when they were bought, and the same study
would decide otherwise when it is run again. So a new run follows the log of an earlier one::

    the log of the earlier run   asked 0, asked 1, told 1, asked 2, told 0, ...
    next an ask                  the rule, offered whom it was offered then, chooses the same pair
    next an outcome              it is told; others, which came too early, wait for their turn

It goes its own way from the first ask that differs, reply that is not stored, or turn that cannot
come, and where the earlier run ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from bestarm_agent.domain.events import Asked, Event, Started, Told
from bestarm_agent.errors import StoreError
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Ask, both
from bestarm_agent.stats.arrays import BoolArray
from bestarm_agent.store.codec import Line, event_of
from bestarm_agent.store.store import Store

_MOST_EVENTS = 500_000  # of a log that is followed: it is held in memory, some hundred bytes each


class EarlierOrder(deque[Line]):
    """Asks and outcomes of an earlier run, as its log has them, that are still to come."""

    @property
    def next(self) -> Event | None:
        """Return what comes next; None if nothing does, or it cannot be read."""
        with suppress(StoreError):
            return event_of(self[0]) if self else None
        return None

    def ask(
        self, pairs: Pairs, allowed: BoolArray | None, busy: BoolArray | None
    ) -> tuple[list[Ask], BoolArray] | None:
        """Ask the rule what it was asked next; return that and whom (K,) it was offered then.

        None: an outcome comes first, or who was asked has yet to join, or is not ``allowed`` (K,)
        now, or ``busy`` (K,). If the rule asks for another pair than it did, nothing is followed
        any more.
        """
        was, now = self.next, both(allowed, None if busy is None else ~busy)
        if not isinstance(was, Asked) or was.candidate >= pairs.table.n_candidates:
            return None
        if now is not None and not now[was.candidate]:
            return None
        offered = np.ones(pairs.table.n_candidates, dtype=np.bool_)
        for first, last in was.excluded:
            offered[first : last + 1] = False
        asks = pairs.ask(allowed=offered)
        self.popleft()
        if [ask.pair for ask in asks] != [(was.candidate, was.example)]:
            self.clear()
        return asks, offered

    def turn(self, ended: Sequence[tuple[int, bool]]) -> int | None:
        """Return the place of the outcome that is told next; None: wait for another.

        ``ended``: of each that is there the number of its ask, and whether its reply was stored.
        """
        if not all(is_stored for _, is_stored in ended):
            self.clear()
            return 0
        seqs, move = [seq for seq, _ in ended], self.next
        if not isinstance(move, Told) or move.seq not in seqs:
            return None
        self.popleft()
        return seqs.index(move.seq)


async def earlier_order(store: Store, first: Started, others: Sequence[Event]) -> EarlierOrder:
    """Return the order of the longest run of a store that began with the same events."""
    for info in sorted(await store.runs(), key=lambda info: -info.n_told):
        if info.name != first.name or not 0 < info.n_told <= info.n_events <= _MOST_EVENTS:
            continue
        with suppress(StoreError):
            # The first event tells most runs apart; those after it hold all examples.
            [[begin]] = [page async for page in store.lines_of(info.id, until=1)]
            if event_of(begin) != replace(first, at=info.at):
                continue
            if (await store.outline_of(info.id))[1 : 1 + len(others)] == others:
                lines = [line async for page in store.lines_of(info.id) for line in page]
                return EarlierOrder(line for line in lines if line[0] in ("asked", "told"))
    return EarlierOrder()
