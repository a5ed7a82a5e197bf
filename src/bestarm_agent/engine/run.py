"""One run that this process writes: begun or gone on with, with all that it needs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import cast

from bestarm_agent._version import __version__
from bestarm_agent.config.candidates import explicit_candidate
from bestarm_agent.config.datasets import read_examples
from bestarm_agent.config.functions import files_digest
from bestarm_agent.config.load import study_from
from bestarm_agent.domain.concurrent import most_connections
from bestarm_agent.domain.events import BudgetSet, Event, Started
from bestarm_agent.domain.spend import Budget
from bestarm_agent.domain.values import Candidate, CandidateDict, Example, Json
from bestarm_agent.engine.earlier import earlier_order
from bestarm_agent.engine.evaluate import Evaluator
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.loop import End, Rules, RunLoop, StopFlag
from bestarm_agent.engine.mode import Mode, OpenMode
from bestarm_agent.engine.pool import CandidatePool, candidates_added
from bestarm_agent.engine.record import RunRecord, examples_added, size_of
from bestarm_agent.engine.reply_cache import ReplyCache
from bestarm_agent.engine.results.from_log import build_standing
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.candidates import ReadyCandidates, check_new
from bestarm_agent.engine.setup.history import History, learn_from_history, recorded_history
from bestarm_agent.engine.setup.options import Options
from bestarm_agent.engine.setup.parts import StudyParts, assemble
from bestarm_agent.engine.setup.requests import check_prompts
from bestarm_agent.errors import ConfigError, StoreError, counted
from bestarm_agent.plugins import in_thread
from bestarm_agent.stats.history import HistoryModel
from bestarm_agent.store.codec import line_of
from bestarm_agent.store.run_state import RunState, fold
from bestarm_agent.store.store import RunLog, Store, folder_of, open_store


class Run:
    """A run with its log, record, candidates, ledger and loop.

    Attributes:
        id: the run's id in the store.
        notices: sentences for the user, besides those of ``parts``.
    """

    def __init__(
        self,
        parts: StudyParts,
        candidates: ReadyCandidates,
        record: RunRecord,
        store: Store,
        log: RunLog,
        options: Options,
        notices: Sequence[str] = (),
    ) -> None:
        record.log = log
        self.id = log.run_id
        self.parts = parts
        self.record = record
        self.store = store
        self.options = options
        self.stop = StopFlag()  # of the study; set it before ``loop`` is made, if it is another's
        self.notices = tuple(notices)
        self.candidates = candidates
        self.ledger = candidates.ledger
        self._providers = AsyncExitStack()

    @cached_property
    def replies(self) -> ReplyCache:
        """The reply cache, and the way to the providers."""
        own = "" if self.options.use_cache else self.id
        return ReplyCache(self.store, self.ledger, own=own)

    @cached_property
    def loop(self) -> RunLoop:
        """The run loop; made when the run goes on, not when it is opened."""
        limits, judge_client = self.parts.config.limits, self.candidates.judge_client
        pool = CandidatePool(min(limits.in_flight, most_connections()))
        pool.add(self.candidates.ready)
        return RunLoop(
            record=self.record,
            pool=pool,
            examples=self.parts.examples,
            evaluator=Evaluator(self.replies, judge_client),
            ledger=self.ledger,
            clock=self.options.clock,
            rules=Rules(limits.failed_score, limits.max_failed_share),
            stop=self.stop,
        )

    async def run(self, caps: Budget) -> End:
        """Ask, send and record until there is a reason to end; ``caps`` hold meanwhile."""
        self.candidates.check_caps(caps)
        self.loop.set_budget(caps, self.loop.own_budget)
        await self.start_providers()
        return await self.loop.run()

    def add(self, specs: Sequence[CandidateDict | Candidate]) -> list[Candidate]:
        """Let candidates join; see ``Study.add_candidates``."""
        parts = self.parts
        candidates = [
            spec
            if isinstance(spec, Candidate)
            else explicit_candidate(
                parts.config, cast("Mapping[str, Json]", spec), parts.prompts, parts.shots
            )
            for spec in specs
        ]
        check_new(candidates, self.record.state.candidates)
        # All checks come before the candidates are recorded: the log keeps what joined for good.
        for new in candidates:
            check_prompts(
                *({new.prompt.name: new.prompt}, [new], parts.providers),
                *(parts.config.dataset, parts.examples),
            )
        entries = self.candidates.entries(candidates)
        for entry in entries if self.loop.is_running else ():
            if id(entry.model.client.provider) not in self.parts.providers.started:
                raise ConfigError(
                    f"{entry.model} needs a provider that was not started with this run; add "
                    f"candidate {entry.candidate.label!r} while no run() is under way"
                )
        self.loop.add_candidates(entries)
        return candidates

    def standing(self, *, of_new: bool = True) -> Standing:
        """Return where the run stands now; ``of_new`` as ``build_standing`` has it."""
        loop, record, now = self.loop, self.record, self.options.clock.now()
        return build_standing(
            record.state,
            record.pairs,
            self.id,
            record.objective,
            budget=self.ledger.budget,
            spent=self.ledger.spent,
            seconds=loop.seconds,
            broken=loop.pool.broken(),
            in_flight=loop.in_flight,
            waits=self.candidates.board.summary(now) if loop.is_running else (),
            of_new=of_new,
        )

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Run]:
        """Hold the providers open, then write what is left to write."""
        async with self._providers:
            await self.start_providers()
            yield self
        await self.record.flush()

    async def start_providers(self) -> None:
        """Start those that were not started before; recall what their models do not take."""
        # Called at each run: a candidate that joined in between may have brought a provider.
        await self.replies.recall(self.candidates.models)
        started = self.parts.providers.started
        for provider in self.parts.providers.in_use:
            if id(provider) not in started:
                started.add(id(provider))
                await self._providers.enter_async_context(provider)


@asynccontextmanager
async def new_run(
    parts: StudyParts,
    options: Options,
    candidates: ReadyCandidates | None = None,
    mark: Mapping[str, Json] | None = None,
) -> AsyncIterator[Run]:
    """Begin a run; nothing is written if a part of it cannot be built.

    ``candidates`` were made ready earlier, which spares making them so again; ``mark`` holds
    sections of the recorded configuration that the study does not have.
    """
    if candidates is None:
        candidates = await in_thread(ReadyCandidates, parts, options.clock)
    where = options.store_of(parts.study)
    learns = bool(parts.config.selector.history)
    history = await learn_from_history(parts, where) if learns else None
    first = _started(parts, options, history, mark or {})
    others: list[Event] = [
        examples_added(parts.examples, parts.slices, parts.independent),
        candidates_added(candidates.ready),
        BudgetSet(parts.budget),
    ]
    # The record takes the first events before they are written anywhere. So the rule is made, which
    # may refuse the study, and the notices are known while no run stands in the store yet.
    record = record_of(parts.mode, None if history is None else history.model)
    record.take([line_of(event) for event in (first, *others)])
    of_history = () if history is None else history.notices
    notices = (*parts.mode.notices(record.pairs, size_of(record.state)), *of_history)
    async with open_store(where) as store, await store.create(parts.config.name) as log:
        for event in (first, *others):
            log.append(event)
        await log.flush()
        if options.use_cache:
            record.order = await earlier_order(store, first, others)
        async with Run(parts, candidates, record, store, log, options, notices).opened() as run:
            yield run


def _started(
    parts: StudyParts, options: Options, history: History | None, mark: Mapping[str, Json]
) -> Started:
    folder, path = folder_of(options.store_of(parts.study)), parts.study.path
    base = os.path.relpath(parts.study.base_dir, folder)
    return Started(
        name=parts.config.name,
        at=options.clock.utc(),
        version=__version__,
        config={**parts.study.record(), **mark},
        base=Path(base).as_posix(),  # relative: the log holds no absolute path
        lesson=None if history is None else history.name,
        judge=parts.judge.digest,
        judge_priced=parts.judge_priced,
        kept_back=len(parts.kept_back),
        measures=parts.judge.measures,
        scored_by=parts.judge.main.scored_by,
        study=None if path is None else Path(os.path.relpath(path, folder)).as_posix(),
        study_digest=files_digest([path], path.parent) if path and path.is_file() else None,
        changes=parts.study.changes,
    )


@asynccontextmanager
async def resumed_run(
    run: str, options: Options, parts_of: Callable[[RunState], StudyParts]
) -> AsyncIterator[Run]:
    """Go on with a run of the store that ``options`` names.

    Args:
        run: id, unique prefix of an id, name, or "latest".
        options: says where the store is.
        parts_of: rebuilds the run's parts; refuses one that cannot be gone on with, by raising
            ConfigError.
    """
    where = options.store
    if where is None:
        raise ValueError("options.store must say where the run is stored")
    async with (
        open_store(where, create=False) as store,
        await store.open(run) as log,
    ):
        # The log is read twice. Its outline, without asks and outcomes, says what the study was, so
        # that its parts can be made and checked; only then is there a rule to feed the whole log.
        known = fold(await store.outline_of(log.run_id))
        parts = await in_thread(parts_of, known)
        record = record_of(parts.mode, recorded_history(known, where))
        await record.take_all(store, log.run_id)
        # What pending pairs are known to have cost is spent too. Attempts of which nobody recorded
        # the cost are charged by the loop, at their bounds, once it has the calls.
        state = record.state
        ledger = Ledger(state.budget, state.spend + state.pending_spend)
        candidates = await in_thread(
            ReadyCandidates, parts, options.clock, ledger, state.candidates
        )
        async with Run(parts, candidates, record, store, log, options).opened() as resumed:
            yield resumed


def record_of(mode: Mode, history: HistoryModel | None) -> RunRecord:
    """Return what the log of a run is to be fed to."""
    return RunRecord(partial(mode.pairs, history=history))


def recorded_parts(
    state: RunState,
    options: Options,
    open_mode: OpenMode,
    *,
    examples: Sequence[Example] | None = None,
) -> StudyParts:
    """Rebuild the parts of a stored run as its log says, whatever its study's file says now.

    Raises:
        ConfigError: the dataset or the judge is not what it was, or a prompt, a provider or a
            variable is gone.
    """
    started = state.started
    if not state.n_events:
        raise StoreError("the run's log is empty; begin a new run")
    # Paths in the log are relative to the store's folder, so that both can be moved together.
    folder = Path() if options.store is None else folder_of(options.store)
    loaded = study_from(started.config, folder / started.base)
    with loaded.positions.at("dataset"):
        rows = examples or read_examples(loaded.config.dataset, loaded.base_dir)
    # Rows that were added at the end since the run began are left out; rows that changed are
    # refused below. Only the first draw of each example has to be compared: the others are of the
    # same row.
    n = len(state.example_ids) // loaded.config.repeats
    began_with = n + started.kept_back
    parts = assemble(loaded, options.catalog(loaded), open_mode, examples=rows[:began_with])
    path, notices = folder / (started.study or ""), [*parts.notices]
    if path.is_file() and files_digest([path], path.parent) != started.study_digest:
        notices.append(
            f"{path.name} was edited since the run began, which goes on as it began; begin a new "
            f"run for the edits (equal requests are taken from the reply cache)"
        )
    if (more := len(rows) - began_with) > 0:
        notices.append(
            f"the dataset has grown by {counted(more, 'example')}; the run goes on with the "
            f"{began_with:,} that it began with, since its intervals are about these; begin a new "
            f"run for all (equal requests are taken from the reply cache)"
        )
    parts = replace(parts, notices=tuple(notices))
    originals = parts.examples[: len(parts.examples) // loaded.config.repeats]
    check_unchanged(originals, state.example_digests[:n])
    judge = parts.judge
    if started.judge not in (None, judge.digest):  # scores of two judges never mix
        raise ConfigError(
            f"judge `{judge.name}` is no longer what it was when the run began (digest "
            f"{judge.digest}, was {started.judge}), and scores of two judges do not mix; restore "
            f"its catalogue entry and template, or begin a new run (the candidates' replies are "
            f"taken from the reply cache, so that only judging is paid for again)"
        )
    return parts


def check_unchanged(rows: Sequence[Example], began_with: Sequence[str]) -> None:
    """Check that a run goes on with the examples, given by digest, with which it began."""
    now = [row.digest for row in rows]
    if now == list(began_with):
        return
    changed = sum(a != b for a, b in zip(now, began_with, strict=False))
    raise ConfigError(
        f"the dataset has changed since the run began: {len(now)} examples where there were "
        f"{len(began_with)}, {changed} of them different; restore it, or begin a new "
        f"run (equal requests are taken from the reply cache)"
    )
