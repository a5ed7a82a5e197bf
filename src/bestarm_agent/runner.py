"""The run loop: asks, sends, books, without barriers; only it touches the selector."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from bestarm_agent._version import __version__
from bestarm_agent.asking import Asking
from bestarm_agent.dispatch import Dispatch
from bestarm_agent.domain.events import BudgetSet, Resumed, Stopped, Told
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Outcome
from bestarm_agent.domain.spend import Budget
from bestarm_agent.endings import End as End
from bestarm_agent.endings import Rules as Rules
from bestarm_agent.endings import end_of_silence
from bestarm_agent.evaluation import Evaluator
from bestarm_agent.jobs import Job
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
from bestarm_agent.roster import Entry, Roster
from bestarm_agent.schedule.clock import Clock, alarm, sleep_unless
from bestarm_agent.schedule.ledger import Ledger
from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import State, Tell

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
        self._evaluator = evaluator
        self._clock = clock
        self._rules = rules
        self._dispatch = Dispatch(roster, examples, evaluator, ledger)
        self._asking = Asking(journal, roster, ledger, self._dispatch, rules.aim)
        self._void = 0
        self._began = clock.now()
        self._stop_asked = False
        self._running = False

    @property
    def in_flight(self) -> int:
        """How many pairs are under way."""
        return self._dispatch.active

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
        self._dispatch.news.set()

    def add_candidates(self, entries: Sequence[Entry]) -> None:
        """Let candidates join as the next rows, also while running."""
        joined = candidates_added(entries)
        join(self.selector, len(entries), joined.costs)
        self._journal.record(joined)
        self.roster.add(entries)
        self._dispatch.news.set()

    def add_examples(self, examples: Sequence[Example]) -> None:
        """Let examples join as the next columns, also while running."""
        self._journal.record(examples_added(examples))
        self._dispatch.examples.extend(examples)
        self.selector.add_examples(len(examples))
        self._dispatch.news.set()

    def set_budget(self, budget: Budget) -> None:
        """Replace the caps, also while running."""
        self._journal.record(BudgetSet(budget))
        move_budget(self.selector, self.ledger.budget, budget)
        self.ledger.budget = budget
        self._dispatch.news.set()

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
            self._dispatch.let_unsent_go()
            told = (self._sitting(), self.ledger.close(), self._evaluator.remarks())
            self._journal.record(Stopped(self._clock.utc(), end.value, *told))
            await self._journal.flush()
        return end

    def _begin(self) -> None:
        self._began = self._clock.now()
        self._running = True
        self._stop_asked = False
        self._dispatch.begin()
        if self._journal.state.end is not None or self._journal.state.asks:  # stopped, or killed
            self._journal.record(Resumed(self._clock.utc(), __version__))

    def _sitting(self) -> float:
        return self._clock.now() - self._began

    def _seconds_left(self) -> float | None:
        """Of the wall-clock budget, which may end though nothing comes back; None without one."""
        cap = self.ledger.budget.seconds
        return None if cap is None else cap - self.seconds

    async def _run_tasks(self) -> End:
        try:
            async with asyncio.TaskGroup() as tasks:
                with alarm(self._seconds_left(), self._dispatch.news):
                    self._send_pending(tasks)
                    return await self._loop(tasks)
        except ExceptionGroup as group:  # a task group wraps even a single error
            raise group.exceptions[0] from group

    async def _loop(self, tasks: asyncio.TaskGroup) -> End:
        dispatch = self._dispatch
        while True:
            selector = self.selector
            self._book_finished()
            self._asking.review(selector)
            end = self._reason_to_end()
            jobs = [] if end else self._asking.fill(selector)
            self.roster.hold_court(at_once=not jobs)
            if jobs:
                await self._journal.flush()  # an ask is durable before a byte leaves
                for job in jobs:
                    dispatch.send(tasks, job)
            elif not dispatch.active and (end or not self._asking.is_throttled(selector)):
                if end is None and (self._asking.catch_up(selector) or self._send_put_off(tasks)):
                    continue
                left = bool(dispatch.put_off)
                return end or end_of_silence(selector, self.roster, self.ledger, put_off=left)
            if not dispatch.has_outcomes:
                await self._sleep(math.inf if end else self.roster.opens_in())

    async def _sleep(self, at_most: float) -> None:
        """Wait until something happens, or a rate limit lets more be asked."""
        news = self._dispatch.news
        news.clear()
        await sleep_unless(self._clock, max(at_most, _SHORTEST_SLEEP), news)

    def _reason_to_end(self) -> End | None:
        """Why nothing more may be asked, though the selector may want to."""
        if self._stop_asked:
            return End.INTERRUPTED
        n_told = len(self._journal.state.told)
        return self._rules.end(self.seconds, self.ledger.budget, n_told, self._void)

    def _send_pending(self, tasks: asyncio.TaskGroup) -> None:
        """Send again what an earlier sitting left without an outcome, under the same numbers.

        All at once, beyond the gates if need be: they were in flight together before.
        """
        for asked in list(self._journal.state.pending.values()):
            inherited = asked.seq not in self._dispatch.put_off
            self._dispatch.send_again(tasks, asked, inherited=inherited)

    def _send_put_off(self, tasks: asyncio.TaskGroup) -> bool:
        """Send again what found no money while more was set aside than is now.

        False if nothing of it can be paid now either.
        """
        if self.selector.stopped() is not None:
            return False
        for seq in self._dispatch.short_of_money:
            asked = self._journal.state.asks[seq]
            if self.roster.room() and self.roster.entries[asked.candidate].broken is None:
                self._dispatch.send_again(tasks, asked)
        return self._dispatch.active > 0

    def _book_finished(self) -> None:
        tells = [self._book(job, outcome) for job, outcome in self._dispatch.outcomes()]
        if tells:
            self.selector.tell(tells)

    def _book(self, job: Job, outcome: Outcome) -> Tell:
        state, score = judged(outcome, self._rules.failed_score)
        self._void += state is State.VOID
        self._journal.record(Told(job.seq, outcome, score, self._sitting()))
        return Tell(job.seq, state, score or 0.0, cost_of(outcome.spend), *audited(outcome))
