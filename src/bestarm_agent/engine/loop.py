"""The run loop: ask, send, record, without barriers; only it touches the rule.

A pair goes from the rule to the log, then to a task of its own, and its outcome comes back to the
log and the rule. Everything is recorded in the order in which the rule sees it. An ask is durable
before its call is sent.
"""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from bestarm_agent._version import __version__
from bestarm_agent.domain.events import (
    Asked,
    BudgetSet,
    Resumed,
    Stopped,
    Told,
    ranges_of,
)
from bestarm_agent.domain.spend import NOTHING, Budget, Spend
from bestarm_agent.domain.values import Example, Outcome
from bestarm_agent.engine.asking import Asking, Review
from bestarm_agent.engine.evaluate import Evaluator, ReadyCandidate
from bestarm_agent.engine.first_pairs import FirstPairs
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.limits.clock import Clock
from bestarm_agent.engine.pending import PendingPairs
from bestarm_agent.engine.pool import CandidatePool, candidates_added
from bestarm_agent.engine.record import RunRecord, score_of
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import State, Stop, both

_COLLECTED_AFTER = 10_000  # objects created beyond those freed
# Once the rule has stopped for one of these, the answer needs no outcome that is still awaited.
# ``LEVEL`` is no proof: what is awaited may show that the examples do tell candidates apart.
_SETTLED = (Stop.SEPARATED, Stop.WITHIN)
_SHORTEST_SLEEP = 0.005  # under a rate limit, a few pairs at once are cheaper than one by one
# Outcomes recorded before pairs without an answer, in this process, end the run: of the first few
# pairs, a half may fail by chance.
_FEWEST_TOLD = 20


class StopFlag:
    """The wish that a study ends: one flag that every stage of it reads, whoever sets it.

    Its first run, the run that confirms a winner and the calls of proposers read the same one. It
    stays set until the call of ``Study.run`` that it ended, or kept from beginning, returns.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._wake: list[Callable[[], None]] = []

    def set(self) -> None:
        """Ask for the end, and wake what may be waiting."""
        self.is_set = True
        for wake in self._wake:
            wake()

    def clear(self) -> None:
        """Let the next run begin."""
        self.is_set = False

    def wakes(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` whenever it is set."""
        self._wake.append(wake)


class End(StrEnum):
    """The reason why a run ended."""

    SEPARATED = "separated"  # the answer is established at the confidence asked for
    EXHAUSTED = "exhausted"  # every pair that may be asked was evaluated
    INDIFFERENT = "indifferent"  # no remaining pair could change the answer
    LEVEL = "level"  # the examples cannot tell the remaining candidates apart
    WITHIN = "within"  # the answer is proved to be good enough
    LABELS = "labels"  # people score what was collected, before more is
    VERDICT = "verdict"  # a certification has its verdicts
    SERVED = "served"  # a router answered every prompt
    BUDGET = "budget"  # the budget cannot pay another pair
    INTERRUPTED = "interrupted"  # the user asked to stop
    FAILURES = "failures"  # too many pairs could not be measured, or nothing can be called
    ERROR = "error"  # an unexpected error


# Ends at which nothing was established: the pairs, or what pays them, ran out.
_RUN_OUT = (End.EXHAUSTED, End.INDIFFERENT, End.BUDGET)


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Keep the garbage collector from looking at every call in flight again and again.

    What is loaded by now is not looked at meanwhile, unless the caller has frozen what it wants. Of
    runs at once the outermost does this.
    """
    # By default the collector looks at the youngest objects after every few hundred or thousand
    # new ones, and now and then at all. Calls in flight live for seconds, so it would look at them,
    # and at all imported modules, again and again and free next to nothing. Freezing moves what is
    # loaded out of its sight. A run inside another finds the threshold raised and changes nothing.
    usual = gc.get_threshold()
    if not 0 < usual[0] < _COLLECTED_AFTER:  # the caller wants it off, or seldom
        yield
        return
    if is_ours := not gc.get_freeze_count():  # counts them one by one, in milliseconds
        gc.freeze()
    gc.set_threshold(_COLLECTED_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        if is_ours:
            gc.unfreeze()


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules about failures."""

    failed_score: float = 0.0  # score of a pair on which the candidate itself failed, in [0, 1]
    max_failed_share: float = 0.5  # share of void pairs, in [0, 1], above which the run stops

    def reviewed(self, end: End, table: ScoreTable, *, is_late: bool) -> End:
        """Return FAILURES in place of ``end`` if too few pairs could be measured.

        ``is_late``: the time is over; then not one outcome is as bad as not one score.
        What was established in spite of them stands: intervals were widened by what is missing.
        """
        # An interruption is the user's wish, and stays the reason even if nothing was answered.
        # An end that established something stays too; the share of failures counts only where the
        # pairs or the budget ran out.
        n_void = int(table.count(State.VOID).sum())
        n_told = table.n_asked - int(table.count(State.PENDING).sum())
        if n_void == n_told and (n_void or (is_late and table.n_asked)):  # not one score
            return End.FAILURES if end is not End.INTERRUPTED else end
        if end in _RUN_OUT and n_void > self.max_failed_share * n_told:
            return End.FAILURES
        return end


class RunLoop:
    """Runs a study until there is a reason to end.

    A pair that ends without an outcome stays pending, and may be sent again. The record was fed
    all that the log holds; column j is ``examples[j]``.
    """

    def __init__(
        self,
        *,
        record: RunRecord,
        pool: CandidatePool,
        examples: Sequence[Example],
        evaluator: Evaluator,
        ledger: Ledger,
        clock: Clock,
        rules: Rules,
        stop: StopFlag,
    ) -> None:
        self.record, self.pool, self.ledger = record, pool, ledger
        self.is_running = False  # True while ``run`` is running
        self.evaluator = evaluator
        self._clock, self._rules = clock, rules
        self._began = clock.now()
        self._news = asyncio.Event()  # set when there may be an outcome, or a free place
        self.stop = stop
        stop.wakes(self._news.set)
        self._first = FirstPairs(pool, evaluator.judge_client, record.state)
        self._pending = PendingPairs(
            record, pool, examples, ledger, evaluator, self._first, self._news
        )
        self._n_void = 0  # in this process
        self._review = Review(record, pool, evaluator.replies)
        self._asking = Asking(record, pool, ledger, self._first, self._seconds_left)
        self._take_over()

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of this and earlier sessions."""
        state = self.record.state
        return state.seconds + (self._elapsed() if self.is_running else state.elapsed)

    @property
    def in_flight(self) -> int:
        """The pairs that were sent, and whose end was not noted yet."""
        return self._pending.in_flight

    @property
    def own_budget(self) -> Budget:
        """The run's own caps, whatever one call of ``run`` may spend."""
        return self.record.state.configured or self.ledger.budget

    def add_candidates(self, candidates: Sequence[ReadyCandidate]) -> None:
        """Add candidates as the next rows, also while running."""
        self.record.record(candidates_added(candidates))
        self.pool.add(candidates)
        self._news.set()

    def raise_budget(self, more: Budget, elsewhere: Spend = NOTHING, seconds: float = 0.0) -> None:
        """Let the run spend ``more`` beyond what is spent and reserved for calls under way.

        A cap that allows as much already stays, and none is added. ``elsewhere`` and
        ``seconds`` were spent under the same caps by another run.
        """
        own, taken = self.own_budget, self.ledger.spent + self.ledger.outstanding
        room = own.with_room(taken + elsewhere, self.seconds + seconds, more)
        self.set_budget(own.raised(room))

    def set_budget(self, budget: Budget, own: Budget | None = None) -> None:
        """Replace the caps, also while running.

        Args:
            budget: the caps from here on; those below what is spent and held are set to that.
            own: the run's own caps, if ``budget`` holds for one call of ``run`` only.
        """
        own = own or budget
        budget = budget.covering(self.ledger.spent + self.ledger.outstanding)
        if (budget, own) != (self.ledger.budget, self.own_budget):
            self.record.record(BudgetSet(budget, own))
            self.ledger.budget = budget
            self._news.set()

    async def run(self) -> End:
        """Run to a reason to end; return it.

        Once ``stop`` is set, nothing more is sent, and it returns when what is in flight has ended.
        If it is cancelled, what was in flight stays pending and can be resumed. Raise StoreError
        if the log or the reply cache could not be written.
        """
        state = self.record.state
        self._began = self._clock.now()
        self.is_running = True
        # An earlier call of ``run`` that was cancelled left pairs in flight whose tasks are gone:
        # they are pending again.
        self._take_over()
        if state.end is not None or state.n_asked:  # stopped, or killed
            self.record.record(Resumed(self._clock.utc(), __version__))
        end = End.ERROR
        try:
            with _seldom_collected():
                end = await self._run_tasks()
            is_late = not self._seconds_left()
            end = self._rules.reviewed(end, self.record.pairs.table, is_late=is_late)
        except asyncio.CancelledError:
            end = End.INTERRUPTED
            self._record_finished()  # what was answered is paid for: it is not to be asked again
            raise
        finally:
            # What is held is given back before the end is logged: giving back also logs what the
            # attempts of pending pairs cost, and `Stopped` is the last event of a session.
            self.is_running = False
            self._pending.let_go()
            summary = (self._elapsed(), self.evaluator.replies.remarks(), self.pool.broken())
            self.record.record(Stopped(self._clock.utc(), end.value, *summary))
            await self.record.flush()
        return end

    async def _run_tasks(self) -> End:
        try:
            async with asyncio.TaskGroup() as tasks:
                # At once, beyond the gates if need be: they were in flight together before.
                for asked in list(self.record.state.pending_asks()):
                    if not self.stop.is_set and self._pending.prepare(asked):
                        self._pending.send(tasks, asked)
                return await self._loop(tasks)
        except ExceptionGroup as group:  # a task group wraps even a single error
            raise group.exceptions[0] from group

    async def _loop(self, tasks: asyncio.TaskGroup) -> End:
        # Asks and outcomes pass between rule and log here alone: the tasks of pairs append to
        # `_finished`, set `_news` and log their attempts, and leave the rule alone. Candidates and
        # caps that are added meanwhile come in where this coroutine waits, never within a step. So
        # there is no lock, and the rule sees asks and outcomes in the order of the log: a resumed
        # run that is fed the log has the same rule.
        while True:
            # Outcomes first, so that every choice below knows all that there is to know. Then the
            # review, which may bar candidates by these outcomes, so that none of them is asked
            # again. Then the reason to end, which depends on both: the outcome of a first pair may
            # end the run, a review may find the objective reached. With a reason to end, calls that
            # only wait to be repeated are ended before anything is waited for.
            # News is forgotten here, and not before the sleep: what comes while the log is flushed
            # is kept for the next turn. A raised cap, or a stop, would else wait for the end of a
            # call.
            self._news.clear()
            self._record_finished()
            self._review.look()
            end = self._reason_to_end()
            self._end_calls(end)
            # The wait is measured twice. A limit that opens while pairs are asked for is no longer
            # shut at a later look, but the rule was told that it was: the first look has it.
            # A limit that this very round of asks has used up shows at the last look alone.
            self.pool.look()
            opens_in = self.pool.opens_in()
            to_send = [] if end else self._ask()
            opens_in = min(opens_in, self.pool.opens_in())
            if to_send:
                # All asks of a round become durable together, before any is sent. The event of an
                # ask also stands for its first attempt: were a request sent before, a kill in
                # between would lose a call that may be billed, and a resumed run could pass a cap.
                await self.record.flush()
                for asked in to_send:
                    self._pending.send(tasks, asked)
            elif self.record.order and self.in_flight == len(self._pending.finished):
                # all that is in flight waits for a turn in the earlier order that cannot come
                if not self.pool.end_blocks():
                    self.record.order.clear()
                continue
            elif not self.in_flight and (end or not self._asking.is_throttled(opens_in)):
                # Nothing is under way and nothing was asked. Before this counts as the end, two
                # things may make more possible: a review that was put off as too little had come
                # in, and pairs that did not fit while others held reservations.
                if end is None and (self._review.look(now=True) or self._pending.resend(tasks)):
                    continue
                return end or self._end_of_silence()
            await self._sleep(math.inf if end else opens_in)

    # What is asked next.

    def _ask(self) -> list[Asked]:
        """Ask for pairs until no place is free; return those that are prepared, to be sent."""
        # Each turn asks for as many as may be chosen with the same masks: every ask changes what
        # is reserved, which model has a block and whose first pair is under way, so these are
        # looked at again. A turn without an ask ends a block whose model the rule does not want,
        # so that other models come up; if there is no such block, the rule has nothing to ask.
        ready: list[Asked] = []
        while (room := int(min(self.pool.room(), self._first.room(), self._asking.leeway()))) > 0:
            allowed, busy = self._asking.who()
            payable = self.pool.payable(self.ledger, room, self.pool.affordable(self.ledger))
            n = max(1, int(min(payable, self.pool.blocks_left())))
            if order := self.record.order:
                if (followed := order.ask(self.record.pairs, allowed, busy)) is None:
                    break
                asks, allowed = followed
            else:
                asks = self.record.pairs.ask(n, allowed=allowed, busy=busy)
                if not asks and not self.pool.end_blocks():
                    break
            excluded = ranges_of(() if allowed is None else np.flatnonzero(~allowed).tolist())
            chosen = [Asked(ask.seq, *ask.pair, ask.reason, excluded) for ask in asks]
            self.record.record(*chosen)
            for asked in chosen:
                self.pool.note_asked(asked.candidate)
                if self._pending.prepare(asked):
                    ready.append(asked)
            self.pool.look()
        return ready

    # Whether to end.

    def _reason_to_end(self) -> End | None:
        """Return why nothing more may be asked even if the rule wants to; None if it may.

        The ledger watches all caps but the time.
        """
        # The first that holds is logged. The user's wish goes before everything; a failed first
        # pair goes before the time cap, since calling it will not work with more time either.
        objective = self.record.objective
        if self.stop.is_set:
            return End.INTERRUPTED
        if self._first.failed:
            return End.FAILURES
        if not self._seconds_left():
            return End.BUDGET
        if objective is not None and objective.is_reached:
            return End.SEPARATED
        n_told = self.record.state.n_told
        if n_told >= _FEWEST_TOLD and self._n_void > self._rules.max_failed_share * n_told:
            return End.FAILURES
        return None

    def _end_of_silence(self) -> End:
        """Return why a run is over whose rule asks for nothing while nothing is in flight."""
        if (stop := self.record.pairs.stopped()) is not None:
            return End(stop.value)
        if self.pool.broken():
            return End.FAILURES
        # A pair that is pending now could not be paid, and neither could a candidate outside the
        # mask, or not in time: then the rule was silent for want of budget. Else everyone could be
        # asked, and the rule wants nobody.
        payable = both(self.pool.affordable(self.ledger), self._asking.in_time())
        is_short = self._pending.by_seq or (payable is not None and not payable.all())
        return End.BUDGET if is_short else End.INDIFFERENT

    def _end_calls(self, end: End | None) -> None:
        """End calls in flight that are not to be waited for, given why the run ends."""
        # Before the time is over, a call that a server works on is paid for and is waited for. One
        # that failed and waits to be repeated costs nothing to give up, and may wait for minutes.
        # Where failures end the run, such calls go on: then the problem of each model is known.
        if end is not None and not self._seconds_left():
            self._pending.cancel([*self._pending.tasks])
        # The rule is asked only where there are some: that takes as long as its choice of a pair.
        elif (waiting := self._pending.waiting) and (
            end not in (None, End.FAILURES) or self.record.pairs.stopped() in _SETTLED
        ):
            self._pending.cancel(waiting)

    # The pairs between ask and outcome.

    def _take_over(self) -> None:
        """Forget what was in flight, which stays pending; inherit what other processes sent."""
        self._first.begin()
        self._pending.inherit()

    def _record_finished(self) -> None:
        """Record the outcomes that are there; pairs that ended without one stay pending."""
        told: list[Told] = []
        for asked, pair, outcome in self._pending.ended():
            self._first.ended(pair, outcome)
            if outcome is not None and pair.obstacle is None:
                told.append(self._told(asked.seq, outcome))
            elif pair.obstacle is not None:
                self.pool.note_obstacle(self.pool.candidates[asked.candidate], pair.obstacle)
        self.record.record(*told)

    def _told(self, seq: int, outcome: Outcome) -> Told:
        score = score_of(outcome, self._rules.failed_score)
        del self._pending.by_seq[seq]
        self._n_void += score is None
        if outcome.score is not None:
            self._asking.note_seconds(outcome.seconds)
        return Told(seq, outcome, score, round(self._elapsed(), 3))

    # Time.

    def _elapsed(self) -> float:
        return self._clock.now() - self._began

    def _seconds_left(self) -> float:
        cap = self.ledger.budget.seconds
        return math.inf if cap is None else max(0.0, cap - self.seconds)

    async def _sleep(self, at_most: float) -> None:
        """Wait until something happens, a rate limit lets more be asked, or the time is over."""
        # At 0 seconds left, what was in flight is cancelled already, and its end is awaited.
        until_cap = self._seconds_left() or math.inf
        await self._clock.sleep(max(min(at_most, until_cap), _SHORTEST_SLEEP), unless=self._news)
