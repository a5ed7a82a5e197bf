"""The pairs of a run that were asked and have no outcome yet: prepared, sent, and awaited.

A pair is in one of these phases; ``PendingPairs.by_seq`` holds it in all of them but the last::

    asked -> prepared -> sent -> finished -> told (recorded, and known to the rule)
      ^         |          |         |
      +---------+----------+---------+   it stays pending, and may be prepared again:
                                         not payable, cancelled, or kept by an obstacle
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bestarm_agent.domain.events import Asked
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.domain.values import Example, Outcome
from bestarm_agent.engine.call import AttemptLog
from bestarm_agent.engine.evaluate import Evaluation, Evaluator
from bestarm_agent.engine.first_pairs import FirstPairs
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.limits.gates import Slot
from bestarm_agent.engine.pool import CandidatePool
from bestarm_agent.engine.record import RunRecord
from bestarm_agent.errors import PluginError


class PendingPairs:
    """Makes the evaluations of pairs that were asked, and keeps them until they have outcomes.

    Args:
        record, pool, examples, ledger, evaluator, first: of the run.
        news: is set when there may be an outcome, or a free place.

    Attributes:
        by_seq: those that are pending, by number of the ask.
        in_flight: those whose task runs, and those whose outcome was not taken yet: a run is not
            over while an outcome waits to be recorded.
        tasks: of the former, each with its pair, but for those that were cancelled.
        finished: the latter, which may wait for their turn in the order of an earlier run.
    """

    def __init__(
        self,
        record: RunRecord,
        pool: CandidatePool,
        examples: Sequence[Example],
        ledger: Ledger,
        evaluator: Evaluator,
        first: FirstPairs,
        news: asyncio.Event,
    ) -> None:
        self.by_seq: dict[int, Evaluation] = {}
        self.in_flight = 0
        self._record, self._pool, self._examples, self._ledger = record, pool, examples, ledger
        self._evaluator, self._first, self._news = evaluator, first, news
        self.tasks: dict[asyncio.Task[None], Evaluation] = {}
        # spend and caps when pairs that could not be paid were sent again last
        self._tried_with: tuple[Spend, Budget] | None = None
        self.finished: deque[tuple[Asked, Evaluation, Outcome | None]] = deque()

    def inherit(self) -> None:
        """Forget what was in flight; take over what the log has and this process does not know."""
        self.in_flight = 0
        self.finished.clear()
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

    def prepare(self, asked: Asked) -> bool:
        """Reserve a pair's cost and take its place in the gates.

        Return False if the budget cannot pay it now; it stays pending.
        """
        pair = self.begin(asked)
        try:
            bound, judging = pair.call.bound(), self._evaluator.judge_client.bound(pair.example)
        except PluginError as error:  # it is told as soon as the loop looks what has ended
            self.in_flight += 1
            self.finished.append((asked, pair, pair.failed(error)))
            return False
        # The pool's bound of a candidate starts with its longest example, by characters; this one
        # may cost more in tokens. It is raised before the reservation, so that after a refusal the
        # rule is offered only what can be paid, and does not ask for the like again.
        self._pool.raise_bound(asked.candidate, bound + judging)
        if not pair.reserve(bound, judging):
            pair.close_log()
            return False
        # From here on the pair holds places, perhaps a permit, and money. The rule asked for it
        # because there was room; taking all of it before the next ask keeps that true.
        model = pair.call.model
        pair.call.slot = Slot(model.client.gate, self._pool.gate, when_left=self._news.set)
        pair.call.permit = model.limits.take(pair.call.request, bound)
        self._evaluator.replies.claim(pair.call)
        self._first.sent(pair)
        return True

    def send(self, tasks: asyncio.TaskGroup, asked: Asked) -> None:
        """Evaluate a prepared pair in a task of its own."""
        self.in_flight += 1
        pair = self.by_seq[asked.seq]
        task = tasks.create_task(self._evaluate(asked, pair))
        self.tasks[task] = pair
        task.add_done_callback(self._note_end)

    def resend(self, tasks: asyncio.TaskGroup) -> bool:
        """Send pairs that did not fit while others held reservations; now nothing is reserved.

        Return False if none of them can be paid now either. Nothing is tried twice with the same
        budget and the same spend.
        """
        balance = (self._ledger.spent, self._ledger.budget)
        if self._record.pairs.stopped() is not None or balance == self._tried_with:
            return False
        self._tried_with = balance
        for seq in [seq for seq, pair in self.by_seq.items() if pair.obstacle is None]:
            asked = self._record.state.ask(seq)
            is_usable = self._pool.candidates[asked.candidate].broken is None
            if is_usable and self.prepare(asked):
                self.send(tasks, asked)
        return self.in_flight > 0

    def ended(self) -> Iterator[tuple[Asked, Evaluation, Outcome | None]]:
        """Yield the pairs whose task has ended and whose turn it is; they are no more in flight."""
        while self.finished:
            if order := self._record.order:
                ended = [(ask.seq, out is not None and out.cached) for ask, _, out in self.finished]
                if (place := order.turn(ended)) is None:
                    return
                self.finished.rotate(-place)
            self.in_flight -= 1
            yield self.finished.popleft()

    @property
    def waiting(self) -> list[asyncio.Task[None]]:
        """The tasks of calls that failed, wait to be repeated, and hold no place."""
        calls = [(task, pair.call) for task, pair in self.tasks.items()]
        return [task for task, call in calls if call.tries.failure and not call.slot.inside]

    def cancel(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """End tasks of pairs, which stay pending; attempts under way count with their bound."""
        # A task is cancelled once. Its cleaning up may wait for something; the loop comes here
        # again before that is over, and a second cancellation would cut it off. So it leaves
        # `tasks` as it is cancelled; `_note_end`, its callback, still counts it out of
        # `in_flight`.
        for task in tasks:
            del self.tasks[task]
            task.cancel()

    async def _evaluate(self, asked: Asked, pair: Evaluation) -> None:
        outcome = await self._evaluator.evaluate(pair)
        self.finished.append((asked, pair, outcome))  # before the loop sees that a place is free
        self._news.set()

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self.tasks.pop(task, None)
        if task.cancelled():
            self.in_flight -= 1
            self._news.set()

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
