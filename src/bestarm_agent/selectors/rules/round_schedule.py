"""Plans of rules that work in rounds: the rounds to come, and who is still in the race."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bestarm_agent.selectors.types import IntArray

_BISECTIONS = 60


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """The rounds to come."""

    # (rounds,) pulls that each active candidate has in all at the end; never falling
    targets: IntArray
    leaving: IntArray  # (rounds,) how many candidates leave at the end

    def __len__(self) -> int:
        return len(self.targets)

    def n_pulls(self, n_active: int, most: int) -> int:
        """Count the pulls if no candidate can be pulled more than ``most`` times."""
        sizes = n_active - np.cumsum(self.leaving) + self.leaving
        return int((sizes * np.diff(np.minimum(self.targets, most), prepend=0)).sum())


def fit_schedule(
    make: Callable[[float], Schedule], n_active: int, most: int, budget: int
) -> Schedule:
    """Return the schedule for ``budget`` pulls of candidates with ``most`` examples each.

    Where examples run out, it is that of the largest nominal budget which costs no more than
    ``budget``. Where even the first round is too expensive, the budget cuts the schedule short.
    """
    schedule = make(budget)
    if schedule.n_pulls(n_active, most) <= budget and not (schedule.targets > most).any():
        return schedule
    low, high = 0.0, 2.0 * budget
    while (wider := make(high)).n_pulls(n_active, most) <= budget:
        if (wider.targets >= most).all():
            return wider
        low, high = high, 2.0 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        fits = make(middle).n_pulls(n_active, most) <= budget
        low, high = (middle, high) if fits else (low, middle)
    return make(low)


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """Candidates in the race and out of it."""

    active: IntArray  # candidates under test, ascending
    accepted: tuple[int, ...] = ()  # candidates chosen for good, in the order of acceptance
    dropped: tuple[int, ...] = ()  # candidates out for good, in the order of leaving

    def accept(self, *who: int) -> Field:
        """Choose candidates for good."""
        return Field(self._without(who), self.accepted + who, self.dropped)

    def drop(self, *who: int) -> Field:
        """Let candidates leave for good."""
        return Field(self._without(who), self.accepted, self.dropped + who)

    def _without(self, who: tuple[int, ...]) -> IntArray:
        return self.active[~np.isin(self.active, who)]
