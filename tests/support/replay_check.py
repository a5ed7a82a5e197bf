"""Checks that a run's log explains itself: every ask follows from what was logged before it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bestarm_agent.domain.events import Asked, BudgetSet, Event
from bestarm_agent.domain.spend import Budget
from bestarm_agent.engine.record import feed_pairs
from bestarm_agent.selectors.pairs import Pairs


def unexplained_asks(events: Sequence[Event], selector: Pairs) -> list[int]:
    """Return the numbers of the asks in a run's log that a fresh selector would not have made."""
    unexplained = []
    begun, budget = False, Budget()
    for event in events:
        if isinstance(event, Asked):
            begun = True
            allowed = np.ones(selector.table.n_candidates, dtype=np.bool_)
            allowed[list(event.excluded)] = False
            choice = selector.next_choice(allowed)
            if choice is None or choice.pair != (event.candidate, event.example):
                unexplained.append(event.seq)
        if begun:
            feed_pairs(selector, event, budget)
        if isinstance(event, BudgetSet):
            budget = event.budget
    return unexplained
