"""A run, live: log, selector, candidates, ledger and loop, made of a study's parts and its log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from bestarm_agent.assembly import Parts, build_selector
from bestarm_agent.certifying.audit import trial_order
from bestarm_agent.certifying.driver import CertifyingSelector
from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.events import Event
from bestarm_agent.errors import ConfigError
from bestarm_agent.evaluation import Evaluator
from bestarm_agent.journal import Journal, Size, initial_size, replay
from bestarm_agent.objectives import aim_of
from bestarm_agent.opening import Options
from bestarm_agent.picture import Moment, picture
from bestarm_agent.replies import Replies
from bestarm_agent.roster import Entry, Roster
from bestarm_agent.runner import Rules, Runner
from bestarm_agent.schedule.ledger import Ledger
from bestarm_agent.schedule.waits import WaitBoard
from bestarm_agent.selectors.base import Selector
from bestarm_agent.standing import Standing
from bestarm_agent.stats.foresight import Lesson
from bestarm_agent.store.base import RunLog, RunStore
from bestarm_agent.store.fold import fold
from bestarm_agent.workshop import workshop_of


class LiveRun:
    """One run with all that it needs.

    Args:
        parts: what the configuration names.
        store: holds the reply cache.
        log: the run's log.
        events: what the log holds.
        options: how the study was opened.
        lesson: what the selection rule learned from history.

    Attributes:
        id: the run's id in the store.
        journal: the log, folded.
        ledger: the budget.
        workshop: makes candidates ready.
        replies: the reply cache, and the way to the providers.
        runner: the run loop.
    """

    def __init__(
        self,
        parts: Parts,
        store: RunStore,
        log: RunLog,
        events: Sequence[Event],
        options: Options,
        lesson: Lesson | None,
    ) -> None:
        self.id = log.run_id
        self._parts = parts
        self._clock = options.clock
        self._lesson = lesson
        self._board = WaitBoard()
        state = fold(events)
        selector = self._selector(initial_size(events), state.candidates)
        replay(events, selector)
        self._aim = aim_of(parts.config.objective, parts.config.selector, selector, events)
        self.journal = Journal(log, state, None if self._aim is None else self._aim.book)
        self.ledger = Ledger(state.budget, state.spend)
        self.workshop = workshop_of(parts, self.ledger, clock=self._clock, board=self._board)
        self.replies = Replies(store, self.ledger, use_cache=options.use_cache)
        self.runner = self._runner(selector)
        self._providers = AsyncExitStack()
        self._started: set[int] = set()

    def begin_anew_if_nothing_was_asked(self) -> None:
        """Let the selector begin with all that is there now.

        One that is rebuilt from the log begins with what was there at the first ask.
        """
        if self.runner.selector.table.n_asked == 0:
            state = self.journal.state
            n_candidates, n_examples = len(state.candidates), len(state.example_ids)
            size = Size(n_candidates, n_examples, state.budget, tuple(state.costs))
            self.runner.selector = self._selector(size, state.candidates)

    def standing(self) -> Standing:
        """Where the run stands now."""
        runner = self.runner
        moment = Moment(
            in_flight=runner.in_flight,
            waits=self._board.summary(self._clock.now()),
            seconds=runner.seconds,
            broken=runner.roster.broken(),
        )
        return picture(
            self.journal.state,
            runner.selector,
            run_id=self.id,
            budget=self.ledger.budget,
            spent=self.ledger.spent,
            moment=moment,
            aim=self._aim,
        )

    @asynccontextmanager
    async def held_open(self) -> AsyncIterator[None]:
        """Hold the providers open, then write what is left to write."""
        async with self._providers:
            await self.start_providers()
            yield
        await self.journal.flush()

    async def start_providers(self) -> None:
        """Start those that were not started before."""
        for provider in self._parts.fleet.providers:
            if id(provider) not in self._started:
                self._started.add(id(provider))
                await self._providers.enter_async_context(provider)

    def check_started(self, entries: Sequence[Entry]) -> None:
        """Check that candidates can join now.

        Raises:
            ConfigError: the run is under way, and one needs a provider that was not started.
        """
        if not self.runner.is_running:
            return
        for entry in entries:
            if id(entry.line.provider) not in self._started:
                raise ConfigError(
                    f"{entry.model} needs a provider that was not started with this run; add "
                    f"candidate {entry.candidate.label!r} while no run() is under way"
                )

    def _selector(self, size: Size, candidates: Sequence[Candidate]) -> Selector:
        chosen, audit = self._parts.config.selector, self._parts.audit
        if audit is not None:
            there = candidates[: size.n_candidates]
            order = trial_order(audit.order, there, size.costs or ())
            return CertifyingSelector(size.problem(per_dollar=False), audit, order)
        problem = size.problem(per_dollar=chosen.per == "dollar")
        return build_selector(chosen, problem, self._lesson, self._parts.config.objective)

    def _runner(self, selector: Selector) -> Runner:
        limits = self._parts.config.limits
        roster = Roster(limits.in_flight, self.workshop.panel.court)
        roster.add(self.workshop.entries(self.journal.state.candidates))
        return Runner(
            journal=self.journal,
            selector=selector,
            roster=roster,
            examples=self._parts.examples,
            evaluator=Evaluator(self.replies, self.workshop.panel, self.ledger),
            ledger=self.ledger,
            clock=self._clock,
            rules=Rules(limits.failed_score, limits.max_failed_share, self._aim),
        )
