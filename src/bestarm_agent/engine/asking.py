"""Candidates that may be asked next, for how many pairs, and those that are barred for good.

The rule chooses; ``Asking`` says what it is offered: budget, limits, memory, first pairs, the
objective and the time each rule somebody out for now. ``Review`` looks between two rounds of asks
whom the objective has ruled out for good.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bestarm_agent.domain.events import CandidatesBarred
from bestarm_agent.engine.first_pairs import FirstPairs
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.pool import CandidatePool
from bestarm_agent.engine.record import RunRecord
from bestarm_agent.engine.reply_cache import ReplyCache
from bestarm_agent.selectors.types import both
from bestarm_agent.stats.arrays import BoolArray

# Where pairs are scarcer than time, so many may be in flight, or one for each candidate, or this
# share of the outcomes so far, whichever is most. Each pair in flight was chosen without the scores
# of the others, so that a share of what is known keeps the choices informed as the run grows; the
# least number keeps the beginning from asking one by one.
_FEW_IN_FLIGHT, _SHARE_IN_FLIGHT = 16, 0.5


class Asking:
    """Says who may be asked next, and how many pairs may be in flight; it changes nothing.

    Args:
        record, pool, ledger, first: of the run.
        seconds_left: tells the seconds until the time cap; infinite without one.
    """

    def __init__(
        self,
        record: RunRecord,
        pool: CandidatePool,
        ledger: Ledger,
        first: FirstPairs,
        seconds_left: Callable[[], float],
    ) -> None:
        self._record, self._pool, self._ledger = record, pool, ledger
        self._first, self._seconds_left = first, seconds_left
        self._slowest = float(record.state.told["seconds"].max(initial=0.0))  # answered call

    def note_seconds(self, seconds: float) -> None:
        """Note how long a call took that was answered."""
        self._slowest = max(self._slowest, seconds)

    def who(self) -> tuple[BoolArray | None, BoolArray | None]:
        """Return two masks (K,): who may be asked, and who of these would have to wait.

        The first is None if all may be asked, the second if nobody would have to wait. Where pairs
        are spared, the rule may choose one that has to wait, and then waits for it. Elsewhere it
        chooses among those whose pairs can be sent at once.
        """
        # The masks differ in what passes by itself. Reservations are given back and busy models
        # answer, so where pairs are scarce the rule is offered those who can be paid *later*, and
        # is told who cannot be asked at once. Without that, a slow or dear candidate would be
        # passed over whenever it is busy, and the pairs would go to others who need them less.
        # Where time is scarce only those who can be asked at once are offered. Whoever is given up,
        # kept back by a block or a first pair, or does not matter is offered in neither case.
        pool, ledger = self._pool, self._ledger
        may = both(pool.available(self._first.held), self._worth_asking())
        at_once = both(pool.affordable(ledger), pool.not_busy())
        if not self._spares_pairs():
            return both(may, at_once), None
        wait = None if at_once is None else ~at_once
        return both(may, pool.affordable(ledger, later=True)), wait

    def _worth_asking(self) -> BoolArray | None:
        """Return (K,) who matters for the objective, and usually answers in time; None: all."""
        objective = self._record.objective
        return both(None if objective is None else objective.worth, self.in_time())

    def in_time(self) -> BoolArray | None:
        """Return (K,) whose calls end before the time cap, on average; None if all do, or may."""
        seconds_left = self._seconds_left()
        if seconds_left >= self._slowest:  # this spares the means until the time is nearly over
            return None
        seconds = self._record.state.told["seconds"]
        _, usual = self._record.state.means(np.where(seconds > 0, seconds, np.nan))
        # Not `usual <= seconds_left`: a candidate without an answer has NaN, and may be asked.
        return ~(usual > seconds_left)

    def leeway(self) -> float:
        """Return how many more pairs may take a place; infinite where pairs are not spared.

        Each of them is chosen without the scores of the others. A pair that waits to be repeated
        holds no place: were it counted, an outage of one provider would keep the rule from asking
        the others.
        """
        if not self._spares_pairs():
            return math.inf
        n_told, each_once = self._record.state.n_told, len(self._pool.candidates)
        return max(_FEW_IN_FLIGHT, each_once, n_told * _SHARE_IN_FLIGHT) - self._pool.gate.inside

    def _spares_pairs(self) -> bool:
        """Return whether pairs are scarcer than time; then a busy model is waited for.

        Time counts more if it is capped, if all pairs are to be asked anyway, or if models take
        turns in memory.
        """
        if self._ledger.budget.seconds is not None or self._pool.takes_turns:
            return False
        if self._record.pairs.rule.problem.seeks_proof or self._record.objective is not None:
            return True
        n_unseen = int(self._record.pairs.table.n_unseen.sum())
        return self._pool.payable(self._ledger, n_unseen, None) < n_unseen

    def is_throttled(self, opens_in: float) -> bool:
        """Return whether only a rate limit keeps the rule from asking what the budget pays."""
        # Asked when nothing is in flight: to wait for a limit is right only if the rule then wants
        # a pair. So the rule is asked what it would choose if no limit stood in the way, without
        # the choice being made.
        if opens_in == math.inf or self._record.pairs.stopped() is not None:
            return False
        payable = both(self._pool.usable(), self._pool.affordable(self._ledger))
        return self._record.pairs.next_choice(both(payable, self._worth_asking())) is not None


class Review:
    """Bars candidates of a run, in its log."""

    def __init__(self, record: RunRecord, pool: CandidatePool, replies: ReplyCache) -> None:
        self._record, self._pool, self._replies = record, pool, replies
        self._n_refused = 0  # what was known of parameters when candidates were compared last

    def look(self, *, now: bool = False) -> bool:
        """Bar candidates that are proved to break a limit of the objective, or became equal.

        ``now``: look even if little was told since the last time; return False if nothing was.
        """
        self._merge()
        objective = self._record.objective
        if objective is None or (now and not objective.is_behind()):
            return False
        # Barring one candidate changes who leads, and so what the others have to reach: look again
        # until nobody leaves. One event for each reason, with the rows that leave for it.
        while gone := objective.review(now=now):
            for reason in dict.fromkeys(gone.values()):
                rows = tuple(row for row in gone if gone[row] == reason)
                self._record.record(CandidatesBarred(rows, reason))
        return True

    def _merge(self) -> None:
        """Keep one of the candidates that are equal without what their model does not take.

        The first one stays. Answers of the others are its own, in the reply cache. In a plan that
        looks for no best nobody leaves, and what is equal is paid for once.
        """
        n_refused = self._replies.n_refused
        if n_refused == self._n_refused or not self._record.pairs.rule.seeks_best:
            return
        self._n_refused = n_refused
        for first, rows in self._pool.equal_ones().items():
            stays, others = self._pool.candidates[first], [self._pool.candidates[i] for i in rows]
            label = stays.candidate.label
            self._replies.note_equal(
                str(stays.model), label, [other.candidate.label for other in others]
            )
            if new := tuple(row for row in rows if row not in self._record.state.barred):
                why = f"is {label}, without what {stays.model} does not take"
                self._record.record(CandidatesBarred(new, why))
