"""The review between two rounds of asks: candidates that need not be asked any more are barred."""

from __future__ import annotations

from bestarm_agent.domain.events import CandidatesBarred
from bestarm_agent.engine.pool import CandidatePool
from bestarm_agent.engine.record import RunRecord
from bestarm_agent.engine.reply_cache import ReplyCache


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
