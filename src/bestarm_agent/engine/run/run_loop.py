"""The run loop: ask, send, record, without barriers; only it touches the selector."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence

from bestarm_agent._version import __version__
from bestarm_agent.domain.events import (
    BudgetSet,
    CandidatesBarred,
    Resumed,
    Stopped,
    Told,
)
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.engine.calls.pair import PairEvaluator
from bestarm_agent.engine.clock import Clock, sleep_unless
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.run.candidate_pool import CandidatePool, ReadyCandidate
from bestarm_agent.engine.run.event_log import EventLog, candidates_added, judged
from bestarm_agent.engine.run.in_flight import InFlight
from bestarm_agent.engine.run.next_pairs import NextPairs
from bestarm_agent.engine.run.replay import cost_of, gold_of, join, move_budget
from bestarm_agent.engine.run.stopping import End, Rules, end_of_silence
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import State, Stop, Tell

_SETTLED = (Stop.SEPARATED, Stop.WITHIN)
_SHORTEST_SLEEP = 0.005  # under a rate limit, a few pairs at once are cheaper than one by one


class RunLoop:
    """Runs a study until there is a reason to end.

    Everything that happens is appended to the log in the order in which the selector sees it, so
    the log alone rebuilds the selector. An ask is durable before its call is sent. The selector was
    fed all that the log holds; its column j is ``examples[j]``.
    """

    _next: NextPairs  # of this session

    def __init__(
        self,
        *,
        event_log: EventLog,
        selector: Pairs,
        pool: CandidatePool,
        examples: Sequence[Example],
        evaluator: PairEvaluator,
        ledger: Ledger,
        clock: Clock,
        rules: Rules,
    ) -> None:
        self.each_turn: list[Callable[[], None]] = []  # called after answers were recorded
        self.selector = selector
        self.state = event_log.state
        self.pool = pool
        self.ledger = ledger
        self._event_log = event_log
        self._evaluator = evaluator
        self._clock = clock
        self._rules = rules
        self._pairs = InFlight(pool, examples, evaluator, event_log, ledger)
        self._pairs.begin()
        self._void = 0
        self._began = clock.now()
        self._stop_asked = False
        self.is_running = False  # True while ``run`` is running

    @property
    def in_flight(self) -> int:
        """Number of pairs in flight."""
        return self._pairs.active

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of this and earlier sessions."""
        state = self._event_log.state
        return state.seconds + (self._elapsed() if self.is_running else state.elapsed)

    def stop(self) -> None:
        """Ask for no more pairs; ``run``, or its next call, returns once those in flight ended."""
        self._stop_asked = True
        self._pairs.news.set()

    def bar(self, candidates: tuple[int, ...], reason: str) -> None:
        """Take candidates out of the competition for good, by their rows, also while running."""
        self._event_log.record(CandidatesBarred(candidates, reason))
        self.selector.bar(candidates)
        self._event_log.trajectory.barred(candidates, self.selector.table.n_asked)

    def add_candidates(self, candidates: Sequence[ReadyCandidate]) -> None:
        """Add candidates as the next rows, also while running."""
        joined = candidates_added(candidates)
        join(self.selector, joined.candidates, joined.costs)
        self._event_log.record(joined)
        self.pool.add(candidates)
        self._pairs.news.set()

    def allow(self, more: Budget | None) -> None:
        """Let the next call of ``run`` spend ``more``, within the run's caps; None: those alone."""
        state, ledger = self.state, self.ledger
        budget = state.configured or ledger.budget
        if more is not None:
            own = state.configured or state.budgets[0]
            budget = own.with_room(ledger.spent, self.seconds, more).within(own)
        if budget != ledger.budget:
            self.set_budget(budget, state.configured or state.budgets[0])

    def raise_budget(self, more: Budget, elsewhere: Spend | None = None) -> None:
        """Let the run spend ``more`` beyond what is spent and reserved for calls under way.

        ``elsewhere`` was spent under the same caps by another run.
        """
        taken = self.ledger.spent + self.ledger.balance().outstanding + (elsewhere or Spend())
        self.set_budget(self.own_budget.with_room(taken, self.seconds, more))

    @property
    def own_budget(self) -> Budget:
        """The run's own caps, whatever one call of ``run`` may spend."""
        return self.state.configured or self.ledger.budget

    def set_budget(self, budget: Budget, own: Budget | None = None) -> None:
        """Replace the caps, also while running.

        Args:
            budget: the caps from here on.
            own: the run's own caps, if ``budget`` holds for one call of ``run`` only.
        """
        self._event_log.record(BudgetSet(budget, own or budget))
        move_budget(self.selector, self.ledger.budget, budget)
        self.ledger.budget = budget
        self._pairs.news.set()

    async def run(self) -> End:
        """Ask, send and record until there is a reason to end; return it.

        If it is cancelled, what was in flight stays pending and can be resumed. Raise StoreError
        if the log or the reply cache could not be written.
        """
        self._begin()
        end = End.ERROR
        try:
            end = self._rules.reviewed(await self._run_tasks(), self.selector.table)
        except asyncio.CancelledError:
            end = End.INTERRUPTED
            self._record_finished()
            raise
        finally:
            self.is_running = self._stop_asked = False
            self._pairs.end()
            told = (self._elapsed(), self.ledger.close(), self._evaluator.replies.remarks())
            self._event_log.record(Stopped(self._clock.utc(), end.value, *told, self.pool.broken()))
            await self._event_log.flush()
        return end

    def _begin(self) -> None:
        self._began = self._clock.now()
        self.is_running = True
        self._pairs.begin()
        self._next = NextPairs(
            self._event_log,
            self.selector,
            self.pool,
            self._pairs,
            self.ledger,
            self._rules,
            self._rules.objective,
        )
        if self.state.end is not None or self.state.asks:  # stopped, or killed
            self._event_log.record(Resumed(self._clock.utc(), __version__))

    def _elapsed(self) -> float:
        return self._clock.now() - self._began

    def _seconds_left(self) -> float:
        cap = self.ledger.budget.seconds
        return math.inf if cap is None else max(0.0, cap - self.seconds)

    async def _run_tasks(self) -> End:
        try:
            async with asyncio.TaskGroup() as tasks:
                self._pairs.send_pending(tasks)
                return await self._loop(tasks)
        except ExceptionGroup as group:  # a task group wraps even a single error
            raise group.exceptions[0] from group

    async def _loop(self, tasks: asyncio.TaskGroup) -> End:
        pairs = self._pairs
        while True:
            self._record_finished()
            for look in self.each_turn:
                look()
            self._review()
            end = self._reason_to_end()
            self._end_calls(end)
            opens_in = self.pool.opens_in()  # first: a limit may open while pairs are asked for
            asked = [] if end else self._next.ask()
            opens_in = min(opens_in, self.pool.opens_in())
            if asked:
                await self._event_log.flush()  # an ask is durable before a byte leaves
                for one in asked:
                    pairs.send(tasks, one)
            elif not pairs.active and (end or not self._is_throttled(opens_in)):
                if end is None and (self._catch_up() or self._send_put_off(tasks)):
                    continue
                left = bool(pairs.put_off)
                return end or end_of_silence(self.selector, self.pool, self.ledger, put_off=left)
            if not pairs.has_outcomes:
                await self._sleep(math.inf if end else opens_in)

    def _end_calls(self, end: End | None) -> None:
        """End calls in flight that are not to be waited for, given why the run ends."""
        if end is not None and not self._seconds_left():
            self._pairs.cut_off()  # the time cap binds what is in flight too
        elif end not in (None, End.FAILURES) or self.selector.stopped() in _SETTLED:
            self._pairs.leave_waiting()

    def _is_throttled(self, opens_in: float) -> bool:
        """Return whether only a pause or a rate limit keeps the selector from asking."""
        if opens_in == math.inf:
            return False
        return self.selector.stopped() is None and self._next.wants_more()

    def _review(self, *, now: bool = False) -> None:
        """Bar candidates that are shown to break a limit of the objective.

        ``now``: look even if little was told since the last time.
        """
        objective = self._rules.objective
        while objective is not None and (gone := objective.review(self.selector, now=now)):
            for reason in dict.fromkeys(gone.values()):
                self.bar(tuple(row for row in gone if gone[row] == reason), reason)

    def _catch_up(self) -> bool:
        """Review the objective if results came since the last time; return whether it was done."""
        objective = self._rules.objective
        if objective is None or not objective.is_behind(self.selector):
            return False
        self._review(now=True)
        return True

    def _send_put_off(self, tasks: asyncio.TaskGroup) -> bool:
        return self.selector.stopped() is None and self._pairs.send_put_off(tasks)

    async def _sleep(self, at_most: float) -> None:
        """Wait until something happens, a rate limit lets more be asked, or the time is over."""
        news = self._pairs.news
        news.clear()
        left = self._seconds_left() or math.inf  # at 0, what is in flight was cut off already
        await sleep_unless(self._clock, max(min(at_most, left), _SHORTEST_SLEEP), news)

    def _reason_to_end(self) -> End | None:
        """Return why nothing more may be asked even if the selector wants to."""
        if self._stop_asked:
            return End.INTERRUPTED
        if self._pairs.first.failed:
            return End.FAILURES
        return self._rules.end(self.seconds, self.ledger.budget, len(self.state.told), self._void)

    def _record_finished(self) -> None:
        for seq, outcome in self._pairs.outcomes():
            state, score = judged(outcome, self._rules.failed_score)
            self._void += state is State.VOID
            self._event_log.record(Told(seq, outcome, score, round(self._elapsed(), 3)))
            told = Tell(seq, state, score or 0.0, cost_of(outcome.spend), gold_of(outcome))
            self.selector.tell([told])
            self._event_log.trajectory.told(self.selector)
