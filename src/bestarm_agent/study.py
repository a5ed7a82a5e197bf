"""The Python API: a study that is opened, run, looked at, changed and run again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bestarm_agent.archive import Record, recorded_lesson, report_path
from bestarm_agent.assembly import Parts, assemble
from bestarm_agent.certifying.driver import CertifyingSelector
from bestarm_agent.checking import JudgeCheck
from bestarm_agent.config.explicit import explicit_candidate
from bestarm_agent.config.loading import LoadedStudy
from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.events import Event
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.spend import Budget
from bestarm_agent.gold import check_run
from bestarm_agent.live import LiveRun
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
from bestarm_agent.plan import check_prices, ready_entries
from bestarm_agent.report.page import FailureLine
from bestarm_agent.reporting import failures_of
from bestarm_agent.roster import Entry
from bestarm_agent.schedule.ledger import Balance
from bestarm_agent.standing import Standing
from bestarm_agent.stats.foresight import Lesson
from bestarm_agent.store.base import RunLog, RunStore
from bestarm_agent.store.fold import fold
from bestarm_agent.store.sql import SqlStore


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
        self.run_id = log.run_id
        self._store = store
        self._where = store_of(parts.study, options)
        self._live = LiveRun(parts, store, log, events, options, lesson)
        self._check: JudgeCheck | None = None

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
            async with study._live.held_open():
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
            study = cls(parts, store, log, events, options, lesson=lesson)
            async with study._live.held_open():
                yield study

    async def run(self, budget: Budget | None = None) -> Standing:
        """Evaluate pairs until the budget ends or nothing is left to ask.

        Args:
            budget: spend at most this much more; None: what is left of the configured budget.

        Returns:
            The standing at the end; ``end`` says why it ended.

        Raises:
            StoreError: the store could not be written.
            TypeError: ``budget`` is none, such as a number.
        """
        live = self._live
        if budget is not None:
            if not isinstance(budget, Budget):
                raise TypeError(
                    f"budget must be a Budget, such as Budget(pulls=60), got {budget!r}"
                )
            caps = live.ledger.budget.with_room(live.ledger.spent, live.runner.seconds, budget)
            live.runner.set_budget(caps)
            live.begin_anew_if_nothing_was_asked()
        await live.start_providers()
        await live.runner.run()
        standing = self.standing()
        if self.parts.labels:
            state, labels = live.journal.state, self.parts.labels
            self._check = await check_run(self._store, state, labels, standing.confidence)
        return standing

    def stop(self) -> None:
        """Ask for no more pairs; ``run`` returns once those in flight are booked."""
        self._live.runner.stop()

    def add_candidates(self, specs: Sequence[Mapping[str, Json] | Candidate]) -> list[Candidate]:
        """Let candidates join, also while ``run`` runs.

        Args:
            specs: candidates, or what an entry of ``candidates:`` in a study file holds; there
                ``prompt`` may also be a whole prompt instead of a name.

        Raises:
            ConfigError: one is wrong or is there already; none joins then.
        """
        live = self._live
        candidates = [self._candidate(spec) for spec in specs]
        check_new(candidates, live.journal.state.candidates)
        entries = live.workshop.entries(candidates)
        check_prices(self.parts.config, entries)
        live.check_started(entries)
        live.runner.add_candidates(entries)
        live.begin_anew_if_nothing_was_asked()
        return candidates

    def standing(self) -> Standing:
        """Where the run stands now."""
        return self._live.standing()

    @property
    def store(self) -> str | Path:
        """Where the run is stored: path or URL, for ``Options.store`` when it is resumed."""
        return self._where

    @property
    def confidence_asked(self) -> bool:
        """Whether the configuration asks for a confidence to be reached."""
        return self.parts.config.selector.confidence is not None

    @property
    def certifying(self) -> CertifyingSelector | None:
        """The driver of a certification, which knows the certificate; None in other runs."""
        selector = self._live.runner.selector
        return selector if isinstance(selector, CertifyingSelector) else None

    def write_report(self, path: Path | None = None) -> Path:
        """Write the HTML report; by default next to the store. Return its path.

        Raises:
            StoreError: the file cannot be written.
        """
        target = path or report_path(self._where, self.run_id)
        record = Record(self._live.journal.state, self.standing(), self._check, self.certifying)
        record.write_report(target)
        return target

    def failures(self) -> list[FailureLine]:
        """What went wrong, by candidate and kind, most frequent first."""
        return failures_of(self._live.journal.state)

    def remarks(self) -> tuple[str, ...]:
        """What the replies of this sitting showed that users should know, a sentence each."""
        return self._live.replies.remarks()

    def balance(self) -> Balance:
        """The books of this sitting: what was reserved, spent and given back."""
        return self._live.ledger.balance()

    def _candidate(self, spec: Mapping[str, Json] | Candidate) -> Candidate:
        if isinstance(spec, Candidate):
            return spec
        return explicit_candidate(self.parts.config, spec, self.parts.prompts)


async def _ready(parts: Parts) -> list[Entry]:
    """Check every candidate beside the event loop: digests of large weights take a while."""
    return await asyncio.to_thread(ready_entries, parts)
