"""The Python API: a study that is opened, run, looked at, changed and run again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bestarm_agent.archive import Record, failures_of, recorded_lesson, report_path
from bestarm_agent.assembly import Parts, assemble, build_selector
from bestarm_agent.certifying.audit import trial_order
from bestarm_agent.certifying.driver import CertifyingSelector
from bestarm_agent.checking import JudgeCheck
from bestarm_agent.config.explicit import explicit_candidate
from bestarm_agent.config.loading import LoadedStudy
from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.events import Event
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.spend import Budget
from bestarm_agent.errors import ConfigError
from bestarm_agent.evaluation import Evaluator
from bestarm_agent.gold import check_run
from bestarm_agent.journal import Journal, Size, initial_size, replay
from bestarm_agent.objectives import aim_of
from bestarm_agent.opening import (
    Options,
    catalog_of,
    check_new,
    first_events,
    learn_from_history,
    loaded_study,
    recorded_parts,
    relative,
    store_of,
)
from bestarm_agent.picture import Moment, picture
from bestarm_agent.plan import check_prices, ready_entries
from bestarm_agent.replies import Replies
from bestarm_agent.report.page import FailureLine
from bestarm_agent.roster import Entry, Roster
from bestarm_agent.runner import Rules, Runner
from bestarm_agent.schedule.caller import RetryPolicy
from bestarm_agent.schedule.ledger import Balance, Ledger
from bestarm_agent.schedule.waits import WaitBoard
from bestarm_agent.selectors.base import Selector
from bestarm_agent.standing import Standing
from bestarm_agent.stats.foresight import Lesson
from bestarm_agent.store.base import RunLog, RunStore
from bestarm_agent.store.fold import fold
from bestarm_agent.store.sql import SqlStore
from bestarm_agent.workshop import Workshop


class Study:
    """One run, live: its candidates, its budget, its standing.

    Made by ``Study.open`` and ``Study.resume``, both async context managers. All methods belong to
    the event loop that opened it; those that are not coroutines may be called while ``run`` runs.

    Attributes:
        parts: what the configuration names.
        run_id: the run's id in the store.
        notices: what was done that the user should know, one sentence each.

    Example:
        >>> import asyncio
        >>> async def demo() -> str:
        ...     config = {
        ...         "candidates": [{"model": "replay/good", "prompt": "p"},
        ...                        {"model": "replay/bad", "prompt": "p"}],
        ...         "prompts": [{"p": "{{ question }}"}],
        ...         "dataset": "questions.jsonl",
        ...         "scorer": "recorded",
        ...         "providers": {"replay": {"path": "scores.jsonl"}},
        ...     }
        ...     async with Study.open(config) as study:
        ...         standing = await study.run(Budget(pulls=100))
        ...         return standing.best.candidate.label
    """

    def __init__(
        self,
        parts: Parts,
        store: RunStore,
        log: RunLog,
        events: Sequence[Event],
        options: Options,
        *,
        lesson: Lesson | None = None,
        notices: Sequence[str] = (),
    ) -> None:
        self.parts = parts
        self.notices = (*parts.notices, *notices)
        self._lesson = lesson
        self.run_id = log.run_id
        self._store = store
        self._check: JudgeCheck | None = None
        self._options = options
        self._where = store_of(parts.study, options)
        self._board = WaitBoard()
        selector = self._selector(initial_size(events), fold(events).candidates)
        replay(events, selector)
        self._aim = aim_of(parts.config.objective, parts.config.selector, selector, events)
        prices = None if self._aim is None else self._aim.book
        self._journal = Journal(log, fold(events), prices)
        state = self._journal.state
        self._ledger = Ledger(state.budget, state.spend)
        limits = parts.config.limits
        self._workshop = Workshop(
            parts.fleet,
            parts.examples,
            parts.judge,
            self._ledger,
            policy=RetryPolicy(limits.max_attempts, limits.timeout_seconds),
            clock=options.clock,
            board=self._board,
            every_bound=parts.config.objective.by_price,
        )
        self._runner = self._make_runner(selector, store)
        self._providers = AsyncExitStack()
        self._started: set[int] = set()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        source: str | Path | Mapping[str, Json] | LoadedStudy,
        *,
        overrides: Mapping[str, Json] | None = None,
        examples: Sequence[Example] | None = None,
        options: Options | None = None,
    ) -> AsyncIterator[Study]:
        """Begin a new run.

        Args:
            source: path of a study file, or what one holds, with paths from the working directory,
                or a study that is loaded already.
            overrides: values that replace the source's, by dotted key ("selector.seed").
            examples: the dataset, if it is not to be read from a file.
            options: how to open it.

        Raises:
            ConfigError: the configuration is wrong; nothing was written.
            StoreError: the store cannot be written.
        """
        options = options or Options()
        loaded = loaded_study(source, overrides or {})
        parts = assemble(loaded, catalog_of(loaded, options), examples=examples)
        entries = await _ready(parts)  # nothing is written for a study that cannot run
        where = store_of(loaded, options)
        async with await SqlStore.connect(where) as store:
            learned = await learn_from_history(parts, store, where)
            log = await store.create(parts.config.name)
            base = relative(loaded.base_dir, where)
            events = first_events(parts, entries, base, options.clock, lesson=learned.name)
            for event in events:
                log.append(event)
            await log.flush()
            study = cls(
                parts, store, log, events, options, lesson=learned.lesson, notices=learned.notices
            )
            async with study._live():
                yield study

    @classmethod
    @asynccontextmanager
    async def resume(
        cls, run: str = "latest", *, options: Options, examples: Sequence[Example] | None = None
    ) -> AsyncIterator[Study]:
        """Go on with a run: what was paid for is kept, what was in flight is sent again.

        Args:
            run: id, unique prefix of an id, name, or "latest".
            options: says where the store is.
            examples: the dataset, if the run was opened with one.

        Raises:
            RunNotFoundError: there is no such run.
            ConfigError: the dataset is no longer what it was, or a model is gone.
            StoreError: the store cannot be used, or another process is writing the run.
        """
        where = options.store
        if where is None:
            raise ValueError("options.store must say where the run is stored")
        async with await SqlStore.connect(where, create=False) as store:
            log = await store.open(run)
            events = await log.events()
            state = fold(events)
            parts = recorded_parts(state, options, examples=examples)
            lesson = recorded_lesson(state, where)
            await _ready(parts)
            async with cls(parts, store, log, events, options, lesson=lesson)._live() as study:
                yield study

    async def run(self, budget: Budget | None = None) -> Standing:
        """Evaluate pairs until the budget ends or nothing is left to ask.

        Args:
            budget: spend at most this much more; None: what is left of the configured budget.

        Returns:
            The standing at the end; ``end`` says why it ended.

        Raises:
            StoreError: the store could not be written.
        """
        if budget is not None:
            caps = self._ledger.budget.with_room(self._ledger.spent, self._runner.seconds, budget)
            self._runner.set_budget(caps)
            self._begin_anew_if_nothing_was_asked()
        await self._start_providers()
        await self._runner.run()
        standing = self.standing()
        if self.parts.labels:
            state, labels = self._journal.state, self.parts.labels
            self._check = await check_run(self._store, state, labels, standing.confidence)
        return standing

    def stop(self) -> None:
        """Ask for no more pairs; ``run`` returns once those in flight are booked."""
        self._runner.stop()

    def add_candidates(self, specs: Sequence[Mapping[str, Json] | Candidate]) -> list[Candidate]:
        """Let candidates join, also while ``run`` runs.

        Args:
            specs: candidates, or what an entry of ``candidates:`` in a study file holds; there
                ``prompt`` may also be a whole prompt instead of a name.

        Raises:
            ConfigError: one is wrong or is there already; none joins then.
        """
        candidates = [self._candidate(spec) for spec in specs]
        check_new(candidates, self._journal.state.candidates)
        entries = self._workshop.entries(candidates)
        check_prices(self.parts.config, entries)
        self._check_started(entries)
        self._runner.add_candidates(entries)
        self._begin_anew_if_nothing_was_asked()
        return candidates

    def standing(self) -> Standing:
        """Where the run stands now."""
        runner = self._runner
        moment = Moment(
            in_flight=runner.in_flight,
            waits=self._board.summary(self._options.clock.now()),
            seconds=runner.seconds,
            broken=runner.roster.broken(),
        )
        return picture(
            self._journal.state,
            runner.selector,
            run_id=self.run_id,
            budget=self._ledger.budget,
            spent=self._ledger.spent,
            moment=moment,
            aim=self._aim,
        )

    @property
    def confidence_asked(self) -> bool:
        """Whether the configuration asks for a confidence to be reached."""
        return self.parts.config.selector.confidence is not None

    @property
    def certifying(self) -> CertifyingSelector | None:
        """The driver of a certification, which knows the certificate; None in other runs."""
        selector = self._runner.selector
        return selector if isinstance(selector, CertifyingSelector) else None

    def write_report(self, path: Path | None = None) -> Path:
        """Write the HTML report; by default next to the store. Return its path.

        Raises:
            StoreError: the file cannot be written.
        """
        target = path or report_path(self._where, self.run_id)
        record = Record(self._journal.state, self.standing(), self._check, self.certifying)
        record.write_report(target)
        return target

    def failures(self) -> list[FailureLine]:
        """What went wrong, by candidate and kind, most frequent first."""
        return failures_of(self._journal.state)

    def remarks(self) -> tuple[str, ...]:
        """What the replies of this sitting showed that users should know, a sentence each."""
        return self._replies.remarks()

    def balance(self) -> Balance:
        """The books of this sitting: what was reserved, spent and given back."""
        return self._ledger.balance()

    def _candidate(self, spec: Mapping[str, Json] | Candidate) -> Candidate:
        if isinstance(spec, Candidate):
            return spec
        return explicit_candidate(self.parts.config, spec, self.parts.prompts)

    def _selector(self, size: Size, candidates: Sequence[Candidate]) -> Selector:
        chosen, audit = self.parts.config.selector, self.parts.audit
        if audit is not None:
            there = candidates[: size.n_candidates]
            order = trial_order(audit.order, there, size.costs or ())
            return CertifyingSelector(size.problem(per_dollar=False), audit, order)
        problem = size.problem(per_dollar=chosen.per == "dollar")
        return build_selector(chosen, problem, self._lesson, self.parts.config.objective)

    def _begin_anew_if_nothing_was_asked(self) -> None:
        """A selector rebuilt from the log begins with all that was there at the first ask."""
        if self._runner.selector.table.n_asked == 0:
            candidates = self._journal.state.candidates
            self._runner.selector = self._selector(self._size(), candidates)

    def _size(self) -> Size:
        state = self._journal.state
        costs = tuple(state.costs)
        return Size(len(state.candidates), len(state.example_ids), state.budget, costs)

    def _make_runner(self, selector: Selector, store: RunStore) -> Runner:
        parts, limits = self.parts, self.parts.config.limits
        roster = Roster(limits.in_flight)
        roster.add(self._workshop.entries(self._journal.state.candidates))
        self._replies = Replies(store, self._ledger, use_cache=self._options.use_cache)
        return Runner(
            journal=self._journal,
            selector=selector,
            roster=roster,
            examples=parts.examples,
            evaluator=Evaluator(self._replies, self._workshop.panel, self._ledger),
            ledger=self._ledger,
            clock=self._options.clock,
            rules=Rules(limits.failed_score, limits.max_failed_share, self._aim),
        )

    @asynccontextmanager
    async def _live(self) -> AsyncIterator[Study]:
        """Hold the providers open, then write what is left to write."""
        async with self._providers:
            await self._start_providers()
            yield self
        await self._journal.flush()

    async def _start_providers(self) -> None:
        for provider in self.parts.fleet.providers:
            if id(provider) not in self._started:
                self._started.add(id(provider))
                await self._providers.enter_async_context(provider)

    def _check_started(self, entries: Sequence[Entry]) -> None:
        if not self._runner.is_running:
            return
        for entry in entries:
            if id(entry.line.provider) not in self._started:
                raise ConfigError(
                    f"{entry.model} needs a provider that was not started with this run; add "
                    f"candidate {entry.candidate.label!r} while no run() is under way"
                )


async def _ready(parts: Parts) -> list[Entry]:
    """Check every candidate beside the event loop: digests of large weights take a while."""
    return await asyncio.to_thread(ready_entries, parts)
