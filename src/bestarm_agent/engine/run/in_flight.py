"""The pairs of a run between ask and outcome: what is held for each, and the task it is in."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence

from bestarm_agent.domain.events import Asked, Attempted, Charged
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Outcome
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.engine.calls.pair import PairEvaluator
from bestarm_agent.engine.calls.retrying import Call, Origin
from bestarm_agent.engine.ledger import Ledger, SharedReserve
from bestarm_agent.engine.run.candidate_pool import CandidatePool
from bestarm_agent.engine.run.event_log import EventLog, PairLog
from bestarm_agent.engine.run.first_pairs import FirstPairs


class InFlight:
    """Reserves what pairs need, sends them, and hands over their outcomes."""

    def __init__(
        self,
        pool: CandidatePool,
        examples: Sequence[Example],
        evaluator: PairEvaluator,
        event_log: EventLog,
        ledger: Ledger,
    ) -> None:
        self.examples = list(examples)  # the dataset, as it is now
        self.active = 0  # pairs that were sent and not handed over yet
        self.news = asyncio.Event()  # set when there may be an outcome, or a free place
        self.put_off: dict[int, Call] = {}  # calls of pairs that stay pending, by number of the ask
        self.first = FirstPairs(pool, evaluator.judge_client, event_log.state)
        self._pool = pool
        self._evaluator = evaluator
        self._event_log = event_log
        self._ledger = ledger
        self._finished: deque[tuple[Asked, Call, Outcome | Exception | None]] = deque()
        self._tasks: dict[asyncio.Task[None], tuple[int, Call]] = {}
        self._unsent: dict[int, Call] = {}  # hold places and money, and their tasks never began
        self._tried: set[int] = set()  # pairs put off that were sent again
        self._tried_with: tuple[Spend, Budget] | None = None  # spend and caps at that time

    @property
    def has_outcomes(self) -> bool:
        """True if a finished pair was not handed over yet."""
        return bool(self._finished)

    def begin(self) -> None:
        """Forget what was in flight, which stays pending; inherit what other processes sent."""
        self.active = 0
        self._finished.clear()
        self.first.begin()
        for asked in self._event_log.state.pending.values():
            if asked.seq not in self.put_off:
                self.put_off[asked.seq] = self._inherited(asked)

    def _inherited(self, asked: Asked) -> Call:
        """Charge the attempts whose cost no process lived to record: they may have been billed."""
        call = self._call(asked, Origin.INHERITED)
        call.key = self._evaluator.replies.key_of(call)
        cost = self._event_log.state.cost_of(asked.seq)
        first = [Attempted(asked.seq, call.key, call.bound())] if cost.first_sent else []
        attempts = [*first, *cost.attempts]
        lost = sum((one.cost for one in attempts if not one.judge), Spend())
        lost_judging = sum((one.cost for one in attempts if one.judge), Spend())
        self._ledger.charge(lost + lost_judging)
        latest = {one.key: one.cost for one in attempts}
        call.log = PairLog(self._event_log, asked.seq, latest)
        call.spend = cost.spend + lost
        call.judging = SharedReserve(self._ledger, None, cost.judge_spend + lost_judging)
        return call

    def prepare(self, asked: Asked) -> bool:
        """Reserve a pair's cost and take its place in the gates.

        Return False if the budget cannot pay it now; it is put off.
        """
        candidate = self._pool.candidates[asked.candidate]
        example = self.examples[asked.example]
        call = self.put_off.pop(asked.seq, None)
        if call is None:
            call = self._call(asked, Origin.FRESH)
            call.is_logged = True
        else:
            call.renew()
        bound, judging = call.bound(), self._evaluator.judge_client.bound(example)
        self._pool.raise_bound(candidate, bound + judging)
        if not self._evaluator.reserve(call, bound, judging):
            self._put_off(asked.seq, call)
            return False
        call.slot = self._pool.slot(candidate, self.news.set)
        call.permit = candidate.limiter.take(call.request, bound)
        self._unsent[asked.seq] = call
        self.first.sent(asked.candidate, call)
        return True

    def send(self, tasks: asyncio.TaskGroup, asked: Asked) -> None:
        """Evaluate a prepared pair in a task of its own."""
        self.active += 1
        task = tasks.create_task(self._work(asked))
        self._tasks[task] = asked.seq, self._unsent[asked.seq]
        task.add_done_callback(self._note_end)

    def send_pending(self, tasks: asyncio.TaskGroup) -> None:
        """Send the pending pairs of an earlier session again, under the same numbers.

        All at once, beyond the gates if need be: they were in flight together before.
        """
        for asked in list(self._event_log.state.pending.values()):
            if self.prepare(asked):
                self.send(tasks, asked)

    def send_put_off(self, tasks: asyncio.TaskGroup) -> bool:
        """Send what the budget could not pay while more was reserved than is now.

        Return False if it cannot pay any of it now either. What was tried and spent nothing is not
        tried again until the budget or the spend is another.
        """
        balance = (self._ledger.spent, self._ledger.budget)
        if balance != self._tried_with:
            self._tried_with, self._tried = balance, set()
        unpaid = [seq for seq, call in self.put_off.items() if call.obstacle is None]
        for seq in [seq for seq in unpaid if seq not in self._tried]:
            asked = self._event_log.state.pending[seq]
            usable = self._pool.candidates[asked.candidate].broken is None
            if self._pool.room() and usable and self.prepare(asked):
                self._tried.add(seq)
                self.send(tasks, asked)
        return self.active > 0

    def cut_off(self) -> None:
        """Cancel what is in flight: attempts count with their bound, and pairs stay pending."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()  # a second cancellation would cut off their cleaning up

    def repeated(self) -> set[int]:
        """Return the numbers of the pairs in flight with a call that failed before."""
        return {seq for seq, call in self._tasks.values() if call.n_failures}

    def leave_waiting(self) -> None:
        """Put off the calls that failed and wait to be repeated: they hold no place."""
        for task, (_, call) in list(self._tasks.items()):
            if call.failure is not None and not call.slot.inside:
                del self._tasks[task]
                task.cancel()

    def outcomes(self) -> Iterator[tuple[int, Outcome]]:
        """Hand over what is finished, by number of the ask; the rest is put off.

        Raise what an evaluation raised though nothing should.
        """
        while self._finished:
            asked, call, result = self._finished.popleft()
            self.active -= 1
            if isinstance(result, Exception):
                raise result
            self.first.ended(asked.candidate, call, result)
            if result is not None and call.obstacle is None:
                yield asked.seq, result
                continue
            self.put_off[asked.seq] = call
            if call.obstacle is not None:
                self._pool.note_obstacle(self._pool.candidates[asked.candidate], call.obstacle)

    def end(self) -> None:
        """Give back what is held for pairs that were not sent; log what pending pairs cost."""
        for call in self._unsent.values():
            call.let_go()
        self.put_off |= self._unsent
        self._unsent.clear()
        for seq, call in self.put_off.items():
            self._put_off(seq, call)

    def _call(self, asked: Asked, origin: Origin) -> Call:
        candidate = self._pool.candidates[asked.candidate]
        call = candidate.call(self.examples[asked.example], origin)
        call.log = PairLog(self._event_log, asked.seq)
        return call

    def _put_off(self, seq: int, call: Call) -> None:
        """Keep a pair pending, and log its exact cost if the log does not tell it."""
        self.put_off[seq] = call
        judge_spend = call.judging.spent if call.judging is not None else Spend()
        told = self._event_log.state.cost_of(seq)
        if not told.is_exact or (told.spend, told.judge_spend) != (call.spend, judge_spend):
            self._event_log.record(Charged(seq, call.spend, judge_spend))

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            self.active -= 1
            self.news.set()

    async def _work(self, asked: Asked) -> None:
        call = self._unsent.pop(asked.seq)
        result: Outcome | Exception | None
        try:
            example = self.examples[asked.example]
            result = await self._evaluator.evaluate(call, example)
        except asyncio.CancelledError:
            self.put_off[asked.seq] = call  # its cost is recorded; it stays pending
            raise
        except Exception as error:  # raised again by the loop, which must not wait for it forever
            result = error
        self._finished.append((asked, call, result))
        self.news.set()
