"""Checks that a run's log explains itself: every ask follows from what was logged before it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import numpy as np

from bestarm_agent.domain.events import Asked, Event, Told
from bestarm_agent.domain.spend import usd
from bestarm_agent.engine.record import Size, feed_rare, size_of
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Ask, Pair, State, Tell
from bestarm_agent.store.run_state import fold


def first_size(events: Sequence[Event]) -> Size:
    """Return the size of the problem when the first pair was asked."""
    return size_of(fold(takewhile(lambda event: not isinstance(event, Asked), events)))


def unexplained_asks(events: Sequence[Event], selector: Pairs) -> list[int]:
    """Return the numbers of the asks in a run's log that a fresh selector would not have made."""
    unexplained = []
    begun = False
    for event in events:
        if isinstance(event, Asked):
            begun = True
            allowed = np.ones(selector.table.n_candidates, dtype=np.bool_)
            for first, last in event.excluded:
                allowed[first : last + 1] = False
            choice = selector.next_choice(allowed)
            if choice is None or choice.pair != (event.candidate, event.example):
                unexplained.append(event.seq)
        if begun:
            feed(selector, event)
    return unexplained


def feed(selector: Pairs, event: Event) -> None:
    """Feed a source of pairs the next event of a log."""
    match event:
        case Asked():
            pair = Pair(event.candidate, event.example)
            selector.adopt([Ask(event.seq, pair, event.reason)])
        case Told(outcome=outcome, score=score):
            state = State.FAILED if outcome.score is None else State.DONE
            cost, gold = usd(outcome.spend.usd_nanos), outcome.score.gold if outcome.score else None
            state = State.VOID if score is None else state
            selector.tell([Tell(event.seq, state, score or 0.0, cost, gold)])
        case _:
            feed_rare(selector, event)
