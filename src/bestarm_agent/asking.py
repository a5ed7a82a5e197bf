"""Which pairs are asked now: the selector's choice among what can be called, paid and matters."""

from __future__ import annotations

import math

from bestarm_agent.dispatch import Dispatch
from bestarm_agent.domain.events import Asked, CandidatesBarred
from bestarm_agent.jobs import Job
from bestarm_agent.journal import Journal
from bestarm_agent.objectives import Aim
from bestarm_agent.roster import Roster, excluded
from bestarm_agent.schedule.ledger import Ledger
from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import Ask, BoolArray, both


class Asking:
    """Lets a selector fill the free places of a run; every ask is logged.

    Args:
        journal: the run's event log.
        roster: the candidates.
        ledger: the budget.
        dispatch: makes the pairs ready to be sent.
        aim: an objective that depends on prices; None: the best candidate.
    """

    def __init__(
        self, journal: Journal, roster: Roster, ledger: Ledger, dispatch: Dispatch, aim: Aim | None
    ) -> None:
        self._journal = journal
        self._roster = roster
        self._ledger = ledger
        self._dispatch = dispatch
        self._aim = aim

    def fill(self, selector: Selector) -> list[Job]:
        """Fill the free places with pairs that the budget can pay."""
        jobs: list[Job] = []
        while (room := self._roster.room()) > 0:
            available = self._available()
            affordable = self._roster.affordable(self._ledger)
            n = self._roster.payable(self._ledger, room, affordable)
            n = max(1, int(min(n, self._roster.turn_left())))
            asks = selector.ask(n, available=available, affordable=affordable)
            if not asks:
                if self._roster.end_turn():
                    continue
                break
            shut_out = excluded(available, affordable)
            jobs.extend(job for ask in asks if (job := self._noted(ask, shut_out)) is not None)
        return jobs

    def is_throttled(self, selector: Selector) -> bool:
        """Whether the selector asks for nothing only because a rate limit is in the way."""
        return self._roster.opens_in() < math.inf and selector.stopped() is None

    def review(self, selector: Selector, *, now: bool = False) -> None:
        """Let candidates go that are shown to cost more than is allowed.

        Args:
            selector: the rule.
            now: look even if little was told since the last time.
        """
        while self._aim is not None and (gone := self._aim.review(selector, now=now)):
            self._journal.record(CandidatesBarred(gone, "dearer than the objective allows"))
            selector.bar(gone)

    def catch_up(self, selector: Selector) -> bool:
        """Look at what is told and may change what is to be asked; False if that was done."""
        if self._aim is None or not self._aim.is_behind(selector):
            return False
        self.review(selector, now=True)
        return True

    def _available(self) -> BoolArray | None:
        """(K,) candidates that can be called now and that it is worth asking; None if all."""
        worth = None if self._aim is None else self._aim.worth
        return both(self._roster.available(), worth)

    def _noted(self, ask: Ask, excluded: tuple[int, ...]) -> Job | None:
        """Log an ask and set its cost aside; None if it turns out not to be affordable."""
        i, j = ask.pair
        asked = Asked(ask.seq, i, j, ask.propensity, ask.reason, excluded)
        self._journal.record(asked)
        self._roster.note_asked(i)
        return self._dispatch.prepare(asked)
