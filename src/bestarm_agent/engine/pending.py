"""The pairs of a run that were asked and have no outcome yet, with what each has cost so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bestarm_agent.domain.events import Asked
from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Example
from bestarm_agent.engine.call import AttemptLog
from bestarm_agent.engine.evaluate import Evaluation
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.pool import CandidatePool
from bestarm_agent.engine.record import RunRecord


class PendingPairs:
    """Makes the evaluations of pairs that were asked, and keeps them until they have outcomes.

    Attributes:
        by_seq: those that are pending, by number of the ask.
    """

    def __init__(
        self, record: RunRecord, pool: CandidatePool, examples: Sequence[Example], ledger: Ledger
    ) -> None:
        self.by_seq: dict[int, Evaluation] = {}
        self._record, self._pool, self._examples, self._ledger = record, pool, examples, ledger

    def inherit(self) -> None:
        """Take over the pairs that the log has pending and this process does not know."""
        for asked in self._record.state.pending_asks():
            if asked.seq not in self.by_seq:
                self.by_seq[asked.seq] = self._inherited(asked)

    def begin(self, asked: Asked) -> Evaluation:
        """Return a pair ready to be sent, for the first time or again."""
        if (pair := self.by_seq.get(asked.seq)) is not None:
            pair.begin_again()
            return pair
        log = self._attempt_log(asked.seq)
        log.is_asked = True
        candidate, example = self._pool.candidates[asked.candidate], self._examples[asked.example]
        pair = self.by_seq[asked.seq] = Evaluation(candidate, example, log)
        return pair

    def let_go(self) -> None:
        """Give back what is held for pairs that were not sent; log what pending pairs cost."""
        for pair in self.by_seq.values():
            pair.let_go()
            pair.close_log()

    def _inherited(self, asked: Asked) -> Evaluation:
        """Charge the attempts whose cost no process lived to record: they may have been billed."""
        # What a killed process may have spent on a pair has three parts.
        # 1. Attempts that are settled in the log: their cost is known, and was charged when the log
        #    was read (``spend`` and ``judge_spend`` of the known attempts).
        # 2. Attempts that were begun and not settled: their reply may have been sent and billed, or
        #    not. They are charged with their bound, here, and remembered (``log.lost``): if the
        #    reply is found in the cache, its true cost takes the bound's place.
        # 3. The ask itself, which stands for a first attempt. Its event has no bound, so its key is
        #    empty and the bound is worked out anew.
        # ``begun`` has the keys of the replies of all of them: such a reply may lie in the cache,
        # and then the pair has paid for it.
        candidate, example = self._pool.candidates[asked.candidate], self._examples[asked.example]
        known, call = self._record.state.attempts_of(asked.seq), candidate.call(example)
        lost = [a if a.key else replace(a, cost=call.bound()) for a in known.open]
        log = self._attempt_log(asked.seq)
        log.lost, log.begun = lost, {key or call.key for key in known.keys}
        spend = sum((attempt.cost for attempt in lost if not attempt.judge), known.spend)
        judge_spend = sum((attempt.cost for attempt in lost if attempt.judge), known.judge_spend)
        self._ledger.charge(sum((attempt.cost for attempt in lost), Spend()))
        return Evaluation(candidate, example, log, spend=spend, judge_spend=judge_spend)

    def _attempt_log(self, seq: int) -> AttemptLog:
        return AttemptLog(seq, self._record.record, self._record.flush)
