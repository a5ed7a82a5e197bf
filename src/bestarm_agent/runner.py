"""The run loop: asks, sends, books, without barriers; only it touches the selector."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from bestarm_agent._version import __version__
from bestarm_agent.domain.events import (
    Asked,
    BudgetSet,
    CandidatesBarred,
    Resumed,
    Stopped,
    Told,
)
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Outcome
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.endings import End as End
from bestarm_agent.endings import Rules as Rules
from bestarm_agent.evaluation import Deferred, Evaluator, Job, deferred
from bestarm_agent.journal import (
    Journal,
    audited,
    candidates_added,
    cost_of,
    examples_added,
    join,
    judged,
    move_budget,
)
from bestarm_agent.roster import Entry, Roster, both, excluded
from bestarm_agent.schedule.caller import Attempts
from bestarm_agent.schedule.clock import Clock, sleep_unless
from bestarm_agent.schedule.ledger import Ledger, Reservation
from bestarm_agent.schedule.purse import Purse
from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import Ask, BoolArray, State, Tell

_ENOUGH_TO_JUDGE_FAILURES = 20
_SHORTEST_SLEEP = 0.005  # under a rate limit, a few pairs at once are cheaper than one by one


class Runner:
    """One sitting of a run.

    Everything that happens is appended to the log in the order in which the selector sees it, so
    the log alone rebuilds the selector. An ask is durable before its call is sent.

    Args:
        journal: the run's event log.
        selector: was fed all that the journal holds.
        roster: the candidates.
        examples: the dataset; column j of the selector is ``examples[j]``.
        evaluator: turns pairs into outcomes.
        ledger: the budget.
        clock: tells the time.
        rules: how failures are treated, and what is aimed at.
    """

    def __init__(
        self,
        *,
        journal: Journal,
        selector: Selector,
        roster: Roster,
        examples: Sequence[Example],
        evaluator: Evaluator,
        ledger: Ledger,
        clock: Clock,
        rules: Rules,
    ) -> None:
        self.selector = selector
        self.state = journal.state
        self.roster = roster
        self.ledger = ledger
        self._journal = journal
        self._examples = list(examples)
        self._evaluator = evaluator
        self._clock = clock
        self._rules = rules
        self._aim = rules.aim
        self._finished: deque[tuple[Job, Outcome | Deferred | Exception]] = deque()
        self._wake = asyncio.Event()
        self._active = 0
        self._deferred: dict[int, Deferred] = {}
        self._unsent: dict[int, Job] = {}  # hold places and money, and their tasks never began
        self._void = 0
        self._began = clock.now()
        self._stop_asked = False
        self._running = False

    @property
    def in_flight(self) -> int:
        """How many pairs are under way."""
        return self._active

    @property
    def is_running(self) -> bool:
        """Whether ``run`` is under way."""
        return self._running

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of this and earlier sittings."""
        state = self._journal.state
        return state.seconds + (self._sitting() if self._running else state.elapsed)

    def stop(self) -> None:
        """Ask for no more pairs; ``run`` returns once those in flight are booked."""
        self._stop_asked = True
        self._wake.set()

    def add_candidates(self, entries: Sequence[Entry]) -> None:
        """Let candidates join as the next rows, also while running."""
        joined = candidates_added(entries)
        join(self.selector, len(entries), joined.costs)
        self._journal.record(joined)
        self.roster.add(entries)
        self._wake.set()

    def add_examples(self, examples: Sequence[Example]) -> None:
        """Let examples join as the next columns, also while running."""
        self._journal.record(examples_added(examples))
        self._examples.extend(examples)
        self.selector.add_examples(len(examples))
        self._wake.set()

    def set_budget(self, budget: Budget) -> None:
        """Replace the caps, also while running."""
        self._journal.record(BudgetSet(budget))
        move_budget(self.selector, self.ledger.budget, budget)
        self.ledger.budget = budget
        self._wake.set()

    async def run(self) -> End:
        """Ask, send and book until there is a reason to end; return it.

        Raises:
            StoreError: the log or the reply cache could not be written.
            asyncio.CancelledError: what was in flight stays pending and can be resumed.
        """
        self._begin()
        end = End.ERROR
        try:
            end = self._rules.reviewed(await self._run_tasks(), self.selector.table)
        except asyncio.CancelledError:
            end = End.INTERRUPTED
            self._book_finished()
            raise
        finally:
            self._running = False
            self._let_unsent_go()
            told = (self._sitting(), self.ledger.close(), self._evaluator.remarks())
            self._journal.record(Stopped(self._clock.utc(), end.value, *told))
            await self._journal.flush()
        return end

    def _begin(self) -> None:
        self._began = self._clock.now()
        self._running = True
        self._stop_asked = False
        self._active = 0
        self._finished.clear()
        if self._journal.state.end is not None or self._journal.state.asks:  # stopped, or killed
            self._journal.record(Resumed(self._clock.utc(), __version__))

    def _sitting(self) -> float:
        return self._clock.now() - self._began

    async def _run_tasks(self) -> End:
        try:
            async with asyncio.TaskGroup() as tasks:
                with self._alarm_at_deadline():
                    self._send_pending(tasks)
                    return await self._loop(tasks)
        except ExceptionGroup as group:  # a task group wraps even a single error
            raise group.exceptions[0] from group

    async def _loop(self, tasks: asyncio.TaskGroup) -> End:
        while True:
            self._book_finished()
            self._review()
            end = self._reason_to_end()
            jobs = [] if end else self._ask()
            if jobs:
                await self._journal.flush()  # an ask is durable before a byte leaves
                for job in jobs:
                    self._send(tasks, job)
            elif not self._active and not self._finished and (end or not self._throttled()):
                if end is None and (self._has_news() or self._send_put_off(tasks)):
                    continue
                return end or self._reason_of_silence()
            if not self._finished:
                await self._sleep(math.inf if end else self.roster.opens_in())

    def _throttled(self) -> bool:
        """Whether the selector asks for nothing only because a rate limit is in the way."""
        return self.roster.opens_in() < math.inf and self.selector.stopped() is None

    async def _sleep(self, at_most: float) -> None:
        """Wait until something happens, or a rate limit lets more be asked."""
        self._wake.clear()
        await sleep_unless(self._clock, max(at_most, _SHORTEST_SLEEP), self._wake)

    def _reason_to_end(self) -> End | None:
        """Why nothing more may be asked, though the selector may want to."""
        if self._stop_asked:
            return End.INTERRUPTED
        deadline = self.ledger.budget.seconds
        if deadline is not None and self.seconds >= deadline:
            return End.BUDGET
        if self._aim is not None and self._aim.is_reached:
            return End.SEPARATED
        told = len(self._journal.state.told)
        if told >= _ENOUGH_TO_JUDGE_FAILURES and self._void > self._rules.max_failed_share * told:
            return End.FAILURES
        return None

    def _reason_of_silence(self) -> End:
        """Why the selector asks for nothing although nothing is in flight."""
        if (stop := self.selector.stopped()) is not None:
            return End(stop.value)
        affordable = self.roster.affordable(self.ledger)
        if self._deferred or (affordable is not None and not affordable.all()):
            return End.FAILURES if self.roster.broken() else End.BUDGET
        return End.FAILURES if self.roster.broken() else End.INDIFFERENT

    def _ask(self) -> list[Job]:
        """Let the selector fill the free places with pairs that the budget can pay."""
        jobs: list[Job] = []
        while (room := self.roster.room()) > 0:
            available = self._available()
            affordable = self.roster.affordable(self.ledger)
            n = self.roster.payable(self.ledger, room, affordable)
            n = max(1, int(min(n, self.roster.turn_left())))
            asks = self.selector.ask(n, available=available, affordable=affordable)
            if not asks:
                if self.roster.end_turn():
                    continue
                break
            shut_out = excluded(available, affordable)
            jobs.extend(job for ask in asks if (job := self._note(ask, shut_out)) is not None)
        return jobs

    def _available(self) -> BoolArray | None:
        """(K,) candidates that can be called now and that it is worth asking; None if all."""
        worth = None if self._aim is None else self._aim.worth
        return both(self.roster.available(), worth)

    def _review(self, *, now: bool = False) -> None:
        """Let candidates go that are shown to cost more than is allowed."""
        while self._aim is not None and (gone := self._aim.review(self.selector, now=now)):
            self._journal.record(CandidatesBarred(gone, "dearer than the objective allows"))
            self.selector.bar(gone)

    def _has_news(self) -> bool:
        """Whether all that is told was not looked at yet, and may change what is to be asked."""
        if self._aim is None or not self._aim.is_behind(self.selector):
            return False
        self._review(now=True)
        return True

    def _note(self, ask: Ask, excluded: tuple[int, ...]) -> Job | None:
        """Log an ask and set its cost aside; None if it turns out not to be affordable."""
        i, j = ask.pair
        self._journal.record(Asked(ask.seq, i, j, ask.propensity, ask.reason, excluded))
        self.roster.note_asked(i)
        return self._job(ask.seq, i, j, inherited=False)

    def _job(self, seq: int, candidate: int, example: int, *, inherited: bool) -> Job | None:
        entry, case = self.roster.entries[candidate], self._examples[example]
        prior = self._deferred.pop(seq, Deferred())
        inherited = inherited or prior.inherited
        request = entry.request(case)
        bound = entry.line.provider.bound(request)
        call = bound + Spend(pulls=0 if prior.spend.pulls else 1)
        reserved = self._reserve(entry, call, self._evaluator.panel.bound(case))
        if reserved is None:
            self._deferred[seq] = replace(prior, inherited=inherited)
            return None
        self._unsent[seq] = job = Job(
            seq=seq,
            entry=entry,
            example=case,
            request=request,
            slot=self.roster.slot(entry),
            attempts=Attempts(reserved[0], prior.spend, entry.lane.take(request, bound)),
            purse=Purse(self.ledger, reserved[1], prior.judge_spend),
            inherited=inherited,
            resent=prior != Deferred(),
        )
        return job

    def _reserve(
        self, entry: Entry, call: Spend, judging: Spend
    ) -> tuple[Reservation, Reservation] | None:
        """Set a pair's cost aside, the candidate's call and its judging: both or none."""
        self.roster.raise_bound(entry, replace(call + judging, pulls=0))
        if not self.ledger.affords(call + judging):
            return None
        first, second = self.ledger.reserve(call), self.ledger.reserve(judging)
        return None if first is None or second is None else (first, second)

    def _send_pending(self, tasks: asyncio.TaskGroup) -> None:
        """Send again what an earlier sitting left without an outcome, under the same numbers.

        All at once, beyond the gates if need be: they were in flight together before.
        """
        for asked in list(self._journal.state.pending.values()):
            inherited = asked.seq not in self._deferred
            job = self._job(asked.seq, asked.candidate, asked.example, inherited=inherited)
            if job is not None:
                self._send(tasks, job)

    def _send_put_off(self, tasks: asyncio.TaskGroup) -> bool:
        """Send again what found no money while more was set aside than is now.

        False if nothing of it can be paid now either.
        """
        if self.selector.stopped() is not None:
            return False
        for seq in [seq for seq, put_off in self._deferred.items() if put_off.error is None]:
            asked = self._journal.state.asks[seq]
            if self.roster.room() and self.roster.entries[asked.candidate].broken is None:
                job = self._job(seq, asked.candidate, asked.example, inherited=False)
                if job is not None:
                    self._send(tasks, job)
        return self._active > 0

    def _send(self, tasks: asyncio.TaskGroup, job: Job) -> None:
        self._active += 1
        tasks.create_task(self._work(job))

    def _let_unsent_go(self) -> None:
        """Give back what is held for pairs that were asked, and not sent before the end."""
        for job in self._unsent.values():
            self._evaluator.let_go(job)
            self._deferred[job.seq] = deferred(job)
        self._unsent.clear()

    async def _work(self, job: Job) -> None:
        del self._unsent[job.seq]
        result: Outcome | Deferred | Exception
        try:
            result = await self._evaluator.evaluate(job, self._wake.set)
        except asyncio.CancelledError:
            self._deferred[job.seq] = deferred(job)  # booked; it stays pending
            raise
        except Exception as error:  # raised again by the loop, which must not wait for it forever
            result = error
        self._finished.append((job, result))
        self._wake.set()

    def _book_finished(self) -> None:
        tells: list[Tell] = []
        while self._finished:
            job, result = self._finished.popleft()
            self._active -= 1
            if isinstance(result, Exception):
                raise result
            if isinstance(result, Deferred):
                self._defer(job, result)
            else:
                tells.append(self._book(job, result))
        if tells:
            self.selector.tell(tells)

    def _defer(self, job: Job, put_off: Deferred) -> None:
        self._deferred[job.seq] = put_off
        if put_off.error is not None and put_off.judge:
            self.roster.close(f"the judge cannot be called: {put_off.error}")
        elif put_off.error is not None:
            self.roster.withdraw(job.entry, put_off.error)

    def _book(self, job: Job, outcome: Outcome) -> Tell:
        state, score = judged(outcome, self._rules.failed_score)
        self._void += state is State.VOID
        self._journal.record(Told(job.seq, outcome, score, self._sitting()))
        return Tell(job.seq, state, score or 0.0, cost_of(outcome.spend), *audited(outcome))

    @contextmanager
    def _alarm_at_deadline(self) -> Iterator[None]:
        """Wake the loop when the wall-clock budget is over, even if nothing comes back."""
        deadline = self.ledger.budget.seconds
        if deadline is None:
            yield
            return
        left = max(0.0, deadline - self.seconds)
        alarm = asyncio.get_running_loop().call_later(left, self._wake.set)
        try:
            yield
        finally:
            alarm.cancel()
