"""Asks for a run's next pairs, as many as places, rate limits and the budget allow."""

from __future__ import annotations

import math

import numpy as np

from bestarm_agent.domain.events import Asked
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.results.objectives import ObjectiveTracker
from bestarm_agent.engine.run.candidate_pool import CandidatePool, excluded
from bestarm_agent.engine.run.event_log import EventLog
from bestarm_agent.engine.run.in_flight import InFlight
from bestarm_agent.engine.run.stopping import Rules
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Ask, BoolArray, both

# While pairs are spared, at most so many are in flight, or one for each candidate, or this share of
# those that were told, whichever is most.
_FEW_IN_FLIGHT, _SHARE_IN_FLIGHT = 16, 0.5


class NextPairs:
    """Asks for the rule's pairs, and records them."""

    def __init__(
        self,
        event_log: EventLog,
        selector: Pairs,
        pool: CandidatePool,
        pairs: InFlight,
        ledger: Ledger,
        rules: Rules,
        objective: ObjectiveTracker | None,
    ) -> None:
        self._event_log = event_log
        self._selector = selector
        self._pool = pool
        self._pairs = pairs
        self._ledger = ledger
        self._rules = rules
        self._objective = objective

    def ask(self) -> list[Asked]:
        """Ask for pairs until no place is free; return those that are prepared, to be sent."""
        ready: list[Asked] = []
        while (room := self._room()) > 0:
            affordable = self._pool.affordable(self._ledger)
            reachable = both(self._pool.available(), self._pairs.first.mask())
            idle = both(affordable, _inverse(self._pool.busy()))
            if self._spares_pairs():
                reachable = both(reachable, self._pool.affordable(self._ledger, later=True))
                idle = both(idle, self._not_held_up())
            else:
                reachable, idle = both(reachable, idle), None
            allowed = both(reachable, self._rules.worth)
            n = min(self._pool.payable(self._ledger, room, affordable), self._pool.blocks.left())
            asks = self._selector.ask(max(1, int(n)), allowed=allowed, busy=_inverse(idle))
            if not asks and not self._pool.blocks.end():
                break
            asked = [self._recorded(ask, allowed) for ask in asks]
            ready.extend(one for one in asked if self._pairs.prepare(one))
        return ready

    def wants_more(self) -> bool:
        """Return whether the budget pays for a pair to ask, if its model is waited for."""
        payable = both(self._pool.usable(), self._pool.affordable(self._ledger))
        allowed = both(payable, self._rules.worth)
        return self._selector.next_choice(allowed) is not None

    def _room(self) -> int:
        """Return how many more pairs may be asked now."""
        return int(min(self._pool.room(), self._pairs.first.left(), self._leeway()))

    def _leeway(self) -> float:
        """Limit the pairs in flight where they are spared: what is asked early is asked blindly."""
        if not self._spares_pairs():
            return math.inf
        told, each_once = len(self._event_log.state.told), len(self._pool.candidates)
        return max(_FEW_IN_FLIGHT, each_once, told * _SHARE_IN_FLIGHT) - self._pool.gate.inside

    def _not_held_up(self) -> BoolArray | None:
        """Return (K,) who has few asks after its first pending pair; None if all have.

        That pair hides them from the intervals: more of them prove nothing until it is told. One
        that failed holds nothing up: alone, repeated, it would pass for an outage of its model.
        """
        if not self._rests_on_intervals:
            return None
        table, few = self._selector.table, _FEW_IN_FLIGHT
        mask, failed = np.full(table.n_candidates, True), self._pairs.repeated()
        for asked in self._event_log.state.pending.values():  # in the order of asking
            if table.n_asked - asked.seq < few:
                break
            known = int(table.position[asked.seq])
            hidden = int(table.n_trials[asked.candidate]) - known
            if hidden >= max(few, known * _SHARE_IN_FLIGHT) and asked.seq not in failed:
                mask[asked.candidate] = False
        return None if mask.all() else mask

    @property
    def _rests_on_intervals(self) -> bool:
        """Return whether the run goes on until intervals of the rule establish something."""
        pairs = self._selector
        if not pairs.rule.seeks_best or not pairs.rule.exogenous:
            return False
        return pairs.problem.seeks_proof or self._objective is not None

    def _spares_pairs(self) -> bool:
        """Return whether to save pairs rather than time; then a busy model's turn is waited for.

        Time counts more if it is capped, if all pairs are to be asked anyway, or if models take
        turns in memory.
        """
        if self._ledger.budget.seconds is not None or self._pool.blocks.mask() is not None:
            return False
        if self._selector.problem.seeks_proof or self._objective is not None:
            return True
        left = int(self._selector.table.n_unseen.sum())
        return self._pool.payable(self._ledger, left, None) < left

    def _recorded(self, ask: Ask, allowed: BoolArray | None) -> Asked:
        asked = Asked(ask.seq, *ask.pair, ask.propensity, ask.reason, excluded(allowed))
        self._event_log.record(asked)
        self._pool.blocks.note(asked.candidate)
        return asked


def _inverse(mask: BoolArray | None) -> BoolArray | None:
    return None if mask is None else ~mask
