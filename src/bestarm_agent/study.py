"""The Python API: a study that is opened, run, looked at and run again; and the runs of a store.

Modes of runs, the report and the comparison of candidates are imported once they are needed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import takewhile
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, TypeAlias, Unpack

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.load import LoadedStudy
from bestarm_agent.domain.events import Asked, CandidatesBarred, Event, Started
from bestarm_agent.domain.spend import Budget
from bestarm_agent.domain.values import Candidate, CandidateDict, Example
from bestarm_agent.engine.confirm import Confirming, confirmed, less, second_run
from bestarm_agent.engine.mode import Mode, ModeResult
from bestarm_agent.engine.proposer import Proposer
from bestarm_agent.engine.record import RunRecord
from bestarm_agent.engine.results.decision import decided
from bestarm_agent.engine.results.from_log import FailureLine, build_standing, failures_of
from bestarm_agent.engine.results.judge_check import JudgeCheck, check_run, run_labels
from bestarm_agent.engine.results.labelling import (
    MOST_CONTENDERS,
    Labelling,
    LabelPlan,
    contenders_of,
    read_plan,
    with_labels,
    write_plan,
)
from bestarm_agent.engine.results.pairs import PairFilter, RunTexts, row_of, texts_of
from bestarm_agent.engine.results.people import ByPeople, with_people
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.run import Run, new_run, record_of, recorded_parts, resumed_run
from bestarm_agent.engine.setup.history import recorded_history
from bestarm_agent.engine.setup.options import Objects, Options, changed_study
from bestarm_agent.engine.setup.parts import StudyParts, assemble
from bestarm_agent.engine.setup.selection import open_selection, recorded_selection
from bestarm_agent.errors import ConfigError, StoreError
from bestarm_agent.judges.base import Judge
from bestarm_agent.plugins import holds, in_thread
from bestarm_agent.selectors.types import Stop
from bestarm_agent.store.chunks import folded
from bestarm_agent.store.export import PairOutcome, whole_file
from bestarm_agent.store.run_state import RunState, fold
from bestarm_agent.store.store import RunInfo, Store, StorePlace, folder_of, open_store

if TYPE_CHECKING:
    from bestarm_agent.engine.results.compare import PairedComparison

# path of a study file, what one holds, or one that is loaded
Source: TypeAlias = str | Path | Mapping[str, object] | LoadedStudy


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as its log has it."""

    standing: Standing  # where it stands
    failures: tuple[FailureLine, ...] = ()  # by candidate and kind, most frequent first
    check: JudgeCheck | None = None  # how its judge fares on the study's gold scores, or None
    result: ModeResult | None = None  # of a certification, its certificate; of a gate, the verdicts

    def _repr_html_(self) -> str:
        """Show the ranking in a notebook."""
        return self.standing._repr_html_()

    def __repr__(self) -> str:
        return f"<StoredRun: {self.standing!r}>"


class Study:
    """One run, live: its candidates, its budget, its standing.

    Made by ``Study.open`` and ``Study.resume``, both async context managers. All methods belong to
    the event loop that opened it; those that are not coroutines may be called while ``run`` runs.

    Examples:
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
        ...         standing = await study.run(Budget(answers=100))
        ...         return standing.best.candidate.label
    """

    def __init__(self, run: Run) -> None:
        self.parts = run.parts
        self.notices = (*run.parts.notices, *run.notices)  # sentences for the user
        self.run_id = run.id  # the run's id in the store
        self.store = run.options.store_of(run.parts.study)  # for ``Options`` when it is resumed
        self.objects: tuple[object, ...] = ()  # of the caller, in place of labels, by row number
        self._run = run
        self._confirming = Confirming(run)
        self._is_running = False
        self._by_people: ByPeople | None = None  # where people are the scorer, and began

    def __repr__(self) -> str:
        return f"<Study: {self.standing()!r}>"

    def _repr_html_(self) -> str:
        """Show the ranking so far in a notebook."""
        return self.standing()._repr_html_()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        source: Source,
        *,
        overrides: Mapping[str, object] | None = None,
        examples: Sequence[Example] | None = None,
        options: Options | None = None,
        **objects: Unpack[Objects],
    ) -> AsyncIterator[Study]:
        """Begin a new run.

        Args:
            source: path of a study file, or what one holds, with paths from the working directory,
                or a study that is loaded already.
            overrides: values that replace the source's, by dotted key ("selector.seed").
            examples: the dataset, if it is not to be read from a file.
            options: how to open it.
            **objects: ``selector`` (a class), ``judge``, ``providers`` (by name) and ``store``
                instead of names, as in ``Options``; needed again to resume the run.

        Raises:
            ConfigError: the configuration is wrong; nothing was written.
            StoreError: the store cannot be written.
        """
        options = replace(options or Options(), **objects)
        loaded = options.load(source, overrides)
        if loaded.config.gate is not None:
            loaded = changed_study(loaded, {"gate": None}, is_own=True)
        catalog = options.catalog(loaded)
        parts = await in_thread(assemble, loaded, catalog, open_mode, examples=examples)
        async with new_run(parts, options) as opened:
            yield cls(opened)

    @classmethod
    @asynccontextmanager
    async def gate(
        cls,
        source: Source,
        *,
        overrides: Mapping[str, object] | None = None,
        examples: Sequence[Example] | None = None,
        options: Options | None = None,
        **objects: Unpack[Objects],
    ) -> AsyncIterator[Study]:
        """Begin a new run that compares candidates with a baseline.

        Arguments and errors are those of ``open``; the study or ``overrides`` say
        ``gate.baseline``, and may say ``gate.margin``, ``gate.confidence``, ``gate.improve`` and
        ``gate.challengers``; ``slices.by`` asks for verdicts by slice. After ``run``, ``result``
        returns the verdicts.
        """
        options = replace(options or Options(), **objects)
        loaded = options.load(source, overrides)
        from bestarm_agent.gate.mode import gate_parts, open_gate

        catalog = options.catalog(loaded)
        parts = await in_thread(assemble, loaded, catalog, open_gate, examples=examples)
        parts = await gate_parts(parts, Archive(options.store_of(loaded)).result_of)
        async with new_run(parts, options) as opened:
            yield cls(opened)

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
            ConfigError: the dataset or the judge is no longer what it was, or a model is gone.
            StoreError: the store cannot be used, or another process is writing the run.
        """
        parts_of = partial(_resumable, options=options, examples=examples)
        async with resumed_run(run, options, parts_of) as opened:
            study = cls(opened)
            await study._take_labels()
            if opened.parts.kept_back:
                study._confirming.state = await second_run(opened.store, opened.id)
            yield study

    async def run(self, budget: Budget | None = None, *, confirm: bool = True) -> Standing:
        """Evaluate pairs until the budget ends or nothing is left to ask.

        In a notebook, the cell shows the ranking meanwhile. A section ``optimize`` is followed by
        ``select`` and by the command, not here: a caller of ``run`` has a loop of their own.

        Args:
            budget: spend at most this much more, within the configured budget; None: what is left
                of that.
            confirm: whether the winner is confirmed at the end, where the study keeps examples
                back for it; False if the choice is not final.

        Returns:
            The standing at the end; ``end`` says why it ended.

        Raises:
            ConfigError: there is only one candidate, and the rule would ask nothing; dollars are
                capped, and a model's price is not known; ``budget`` is none, such as a number.
            StoreError: the store could not be written.
            RuntimeError: an earlier call is under way.
        """
        if self._is_running:
            raise RuntimeError(
                "run() is under way in this study; await that call, or end it with stop()"
            )
        if budget is not None:
            check_budget(budget)
        run = self._run
        _check_choice(run.record)
        self._is_running = True
        try:
            async with followed_by_cell(self.standing):
                # The confirmation has a log of its own: what it spent is not in the run's ledger.
                caps = less(self.budget, self._confirming.spent, self._confirming.seconds)
                if budget is not None:
                    caps = caps.with_room(run.ledger.spent, run.loop.seconds, budget).within(caps)
                if confirm and self.parts.kept_back:
                    await self._confirming.run(caps)
                else:
                    await run.run(caps)
            await self._take_labels()
            return self.standing()
        finally:
            self._is_running = False
            # Only here: a stop that came while nothing ran must still end the next run.
            run.stop.clear()

    async def complete(self, candidates: Sequence[str], budget: Budget | None = None) -> Standing:
        """Have candidates, by label, answer all examples, within what is left of the budget.

        ``budget`` is as that of ``run``.

        So people's labels of some answers can lean on the judge's scores of all the others.

        Raises:
            ConfigError: there is no such candidate.
        """
        pairs, state = self._run.record.pairs, self._run.record.state
        pairs.complete([row_of(state, label) for label in candidates])
        try:
            return await self.run(budget, confirm=False)
        finally:
            self._run.record.pairs.complete(None)

    @property
    def budget(self) -> Budget:
        """The configured caps, as they were raised since."""
        return self._run.loop.own_budget

    @budget.setter
    def budget(self, caps: Budget) -> None:
        self._run.loop.set_budget(caps.covering(self._run.ledger.spent + self._confirming.spent))

    def raise_budget(self, more: Budget) -> None:
        """Raise the configured caps, so that ``more`` can be spent beyond what is spent now.

        A cap that allows as much already stays as it is, and none is added.

        Raises:
            ConfigError: ``more`` is no budget.
        """
        check_budget(more, "more")
        self._run.loop.raise_budget(more, self._confirming.spent, self._confirming.seconds)

    def stop(self) -> None:
        """Ask for nothing more; ``run`` returns once the pairs in flight are recorded.

        That holds for every stage: also while the winner is confirmed, or a proposer asks a model.
        If ``run`` is not under way, its next call returns at once.
        """
        self._run.stop.set()

    def add_candidates(self, specs: Sequence[CandidateDict | Candidate]) -> list[Candidate]:
        """Let candidates join, also while ``run`` runs.

        Args:
            specs: candidates, or what an entry of ``candidates:`` in a study file holds; there
                ``prompt`` may also be a whole prompt instead of a name.

        Raises:
            ConfigError: one is wrong or is there already, or ``specs`` is no list of such, but one
                of them, say; none joins then.
        """
        given: object = specs
        if not holds(given, Candidate | Mapping):
            raise ConfigError(f"specs must be a list of candidates, got {specs!r}")
        return self._run.add(specs)

    def standing(self, *, of_new: bool = True) -> Standing:
        """Return where the run stands now.

        ``of_new``: whether to say what holds for new examples, which takes longest with very many
        candidates.
        """
        standing = confirmed(self._run.standing(of_new=of_new), self._confirming.state)
        if self.objects:
            standing = decided(replace(standing, objects=self.objects))
        return standing if self._by_people is None else with_people(standing, self._by_people)

    async def _take_labels(self) -> None:
        """Read people's labels where they are the scorer; whom they rule out is asked no more."""
        record, plan = self._run.record, read_plan(self.store, self.run_id)
        if plan is None or record.state.started.scored_by != "people":
            return
        await record.flush()
        self._by_people = await Labelling(self._texts(), self.store, plan).stand()
        out = (row_of(record.state, label) for label in self._by_people.decision.worse)
        if new := tuple(row for row in out if row not in record.state.barred):
            record.record(CandidatesBarred(new, "people's labels rule it out"))

    @cached_property
    def proposer(self) -> Proposer:
        """Calls of proposers of prompts, and how far the run is in their rounds."""
        return Proposer(self._run)

    def result(self, standing: Standing | None = None) -> ModeResult | None:
        """Return the certificate or the verdicts of a gate, so far; None in other runs.

        ``standing``: where the run stands, if that was worked out already.
        """
        return self.parts.mode.result(self._run.record.pairs, standing or self.standing())

    async def write_report(self, path: Path | None = None) -> Path:
        """Write the HTML report, by default next to the store, and return its path.

        Raises:
            StoreError: the file cannot be written.
        """
        run = self._run.record
        await run.flush()
        texts = self._texts()
        standing, of = self.standing(), (self._run.store, self.run_id, run.state, self.parts.labels)
        check = await check_run(*of, standing.confidence)
        record = StoredRun(standing, (), check, self.result(standing))
        return await _report(record, texts, path or report_path(self.store, self.run_id))

    async def outcomes(self, *, only: PairFilter | None = None) -> AsyncIterator[PairOutcome]:
        """Iterate over the pairs asked so far, with their texts, by ``async for``.

        Raises (when iterated):
            ConfigError: ``only`` names a candidate or an example that is not there.
        """
        async for pair in self._texts().outcomes(only):
            yield pair

    def _texts(self) -> RunTexts:
        run, parts = self._run, self.parts
        return RunTexts(run.store, run.id, run.record.state, parts.examples, parts.folder)

    def failures(self) -> list[FailureLine]:
        """Return the failures by candidate and kind, most frequent first."""
        return failures_of(self._run.record.state)

    def remarks(self) -> tuple[str, ...]:
        """Return what users should know about the replies since opening, a sentence each."""
        return self._run.loop.evaluator.replies.remarks()


def _resumable(known: RunState, options: Options, examples: Sequence[Example] | None) -> StudyParts:
    """Rebuild the parts of a stored run; raises ConfigError if it cannot go on."""
    if known.started.config.get("preselect"):
        raise ConfigError(
            f"{known.name} holds what `preselect run` did, and a router's prompts are not "
            f"resumed; run that command again (the replies that it bought are taken from "
            f"the reply cache)"
        )
    return recorded_parts(known, options, open_recorded_mode, examples=examples)


def check_budget(budget: object, name: str = "budget") -> None:
    """Raise ConfigError if an argument is no budget."""
    if not isinstance(budget, Budget):
        raise ConfigError(f"{name} must be a Budget, as Budget(answers=60), got {budget!r}")


def _check_choice(record: RunRecord) -> None:
    """Refuse to begin with a single candidate if the rule would ask nothing.

    "The best" would be named without a single call.
    """
    is_alone = len(record.state.candidates) == 1 and not record.state.n_asked
    if is_alone and record.pairs.stopped() is Stop.SEPARATED:
        raise ConfigError(
            "there is only one candidate, so there is nothing to choose; add another, or let "
            "it be scored with `selector: {stop_when_separated: false}`"
        )


@asynccontextmanager
async def followed_by_cell(current: Callable[[], object]) -> AsyncIterator[None]:
    """Show an object in the notebook cell that runs, updated each second; elsewhere do nothing.

    Its ``repr`` stays: a cell whose value it is shows it whole, once.
    """
    ipython = sys.modules.get("IPython")  # a notebook's kernel has imported it
    if ipython is None or getattr(ipython.get_ipython(), "kernel", None) is None:
        yield  # a terminal
        return
    handle = ipython.display.DisplayHandle()
    handle.display(current())

    async def update() -> None:
        while True:
            await asyncio.sleep(1.0)
            handle.update(current())

    updating = asyncio.create_task(update())
    try:
        yield
    finally:
        updating.cancel()
        handle.update({"text/plain": repr(current())}, raw=True)


def run_in_thread(
    opening: AbstractAsyncContextManager[Study], run: Callable[[Study], Awaitable[Standing]]
) -> Standing:
    """Open a study and run it, in a thread with a loop of its own, as scripts and notebooks need.

    The first Ctrl-C lets it end in order, the second raises. While the study opens, the first one
    ends that: then nothing is called, and KeyboardInterrupt is raised.
    """
    done: Future[Standing] = Future()
    began: Future[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = Future()

    async def whole() -> Standing:
        task, opened = asyncio.current_task(), list[Study]()

        def end() -> None:
            if opened:
                opened[0].stop()
            elif task is not None:
                task.cancel()

        began.set_result((asyncio.get_running_loop(), end))
        async with opening as study:
            opened.append(study)
            return await run(study)

    def main() -> None:
        try:
            done.set_result(asyncio.run(whole()))
        except BaseException as error:  # goes on in the caller's thread
            done.set_exception(error)

    Thread(target=copy_context().run, args=(main,), name="bestarm-agent", daemon=True).start()
    try:
        return done.result()
    except KeyboardInterrupt:
        loop, end = began.result()
        with suppress(RuntimeError):  # it has ended
            loop.call_soon_threadsafe(end)
        try:
            return done.result()
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


class Archive:
    """The runs of a store; reading works while other processes write."""

    def __init__(self, where: StorePlace) -> None:
        self._where = where

    async def runs(self) -> Sequence[RunInfo]:
        """Return all runs, oldest first."""
        async with open_store(self._where, create=False) as store:
            return await store.runs()

    async def state(self, run: str) -> RunState:
        """Read a run and fold it; raise RunNotFoundError if there is no such run."""
        async with open_store(self._where, create=False) as store:
            return await folded(store, run)

    async def record(self, run: str) -> StoredRun:
        """Read a run and work out where it stands; raise RunNotFoundError if there is none."""
        async with open_store(self._where, create=False) as store:
            return (await self._stored(store, run))[0]

    async def result_of(self, run: str) -> tuple[Standing, ModeResult | None]:
        """Return where a run stands, and its result where it does not look for the best."""
        record = await self.record(run)
        return record.standing, record.result

    async def write_report(self, run: str = "latest", path: Path | None = None) -> Path:
        """Write a run's report as HTML, by default next to the store, and return its path.

        Raises:
            RunNotFoundError: there is no such run.
            StoreError: the file cannot be written.
        """
        async with open_store(self._where, create=False) as store:
            record, state = await self._stored(store, run)
            run_id = record.standing.run_id
            texts = await texts_of(store, run_id, state, folder_of(self._where))
            return await _report(record, texts, path or report_path(self._where, run_id))

    async def _stored(self, store: Store, run: str) -> tuple[StoredRun, RunState]:
        """Replay a run's log, and work out where it stands."""
        run_id = (await store.find(run)).id
        # The log is read whole and fed to the run's own rule: what it says is worked out as it was
        # while the run went on, and no summary is stored that could disagree.
        mode, replay = await recorded_replay(store, run_id, self._where)
        await replay.take_all(store, run_id)
        state, pairs = replay.state, replay.pairs
        standing = build_standing(state, pairs, run_id, replay.objective)
        if state.started.kept_back:
            standing = confirmed(standing, await second_run(store, run_id))
        labels = run_labels(state, self._where, run_id)
        check = await check_run(store, run_id, state, labels, standing.confidence)
        result = mode.result(pairs, standing)
        texts = partial(texts_of, store, run_id, state, folder_of(self._where))
        standing = await with_labels(standing, texts, self._where)
        return StoredRun(standing, tuple(failures_of(state)), check, result), state

    async def compared(
        self,
        run: str = "latest",
        other: str | None = None,
        candidates: tuple[str, str] | None = None,
        confidence: float = 0.95,
    ) -> PairedComparison:
        """Compare two candidates of a run, or one of ``run`` with one of ``other``.

        ``candidates`` are labels or ids; by default what each of two runs says to take.

        Raises:
            RunNotFoundError: there is no such run.
            ConfigError: the candidates cannot be compared.
        """
        from bestarm_agent.engine.results.compare import compare_candidates

        async with open_store(self._where, create=False) as store:
            ids = (await store.find(run)).id, (await store.find(other or run)).id
        is_one = ids[0] == ids[1]  # by different names, too
        if candidates is None:
            if is_one:
                raise ConfigError(
                    f"both are run {ids[0]}; name two of its candidates (--between A B), or "
                    "another run"
                )
            candidates = await self._winner(ids[0]), await self._winner(ids[1])
        one, two = await self.state(ids[0]), None if is_one else await self.state(ids[1])
        return replace(compare_candidates(one, *candidates, confidence, two), runs=ids)

    async def _winner(self, run: str) -> str:
        standing = (await self.record(run)).standing
        if (row := standing.winner or standing.best) is None:
            raise ConfigError(f"run {run} has no best candidate; name two with --between A B")
        return row.candidate.label

    async def outcomes(
        self, run: str = "latest", *, only: PairFilter | None = None
    ) -> AsyncIterator[PairOutcome]:
        """Iterate over the pairs of a run, with their texts, by ``async for``.

        Raises (when iterated):
            RunNotFoundError: there is no such run.
            ConfigError: ``only`` names a candidate or an example that is not there.
        """
        async with self.texts(run) as texts:
            async for pair in texts.outcomes(only):
                yield pair

    @asynccontextmanager
    async def texts(self, run: str) -> AsyncIterator[RunTexts]:
        """Open a run's texts.

        Raises:
            RunNotFoundError: there is no such run.
        """
        async with open_store(self._where, create=False) as store:
            run_id = (await store.find(run)).id
            yield await texts_of(store, run_id, await folded(store, run_id), folder_of(self._where))

    @asynccontextmanager
    async def labelling(
        self,
        run: str = "latest",
        contenders: Sequence[str] = (),
        *,
        top: int = MOST_CONTENDERS,
        raters: int = 1,
    ) -> AsyncIterator[Labelling]:
        """Open the labelling of a run; the first time fixes who takes part.

        Args:
            run: id of the run, its start, or "latest".
            contenders: labels of candidates to take part in any case.
            top: candidates that take part at most.
            raters: people who score each example.

        Raises:
            RunNotFoundError: there is no such run.
            ConfigError: fewer than two can take part, or others were fixed before.
        """
        async with open_store(self._where, create=False) as store:
            run_id = (await store.find(run)).id
            plan = read_plan(self._where, run_id)
            if plan is None:
                record, state = await self._stored(store, run_id)
                if state.started.scored_by == "people":
                    plan = LabelPlan.of_all(state, contenders, raters)
                else:
                    chosen = contenders_of(record.standing, contenders, top)
                    plan = LabelPlan(contenders=chosen, events=state.n_events, raters=raters)
                write_plan(self._where, run_id, plan)
            elif missing := set(contenders) - set(plan.contenders):
                raise ConfigError(
                    f"labelling began with {', '.join(plan.contenders)}, and who takes part is "
                    f"fixed then; leave {', '.join(sorted(missing))} out"
                )
            state = await folded(store, run_id)
            texts = await texts_of(store, run_id, state, folder_of(self._where))
            yield Labelling(texts, self._where, plan)


async def recorded_replay(store: Store, run_id: str, where: StorePlace) -> tuple[Mode, RunRecord]:
    """Return a stored run's mode, and what its log is to be fed to.

    Raises:
        StoreError: the log is empty or damaged.
    """
    outline = fold(await store.outline_of(run_id))
    if not outline.n_events:
        raise StoreError(f"run {run_id} has an empty log; begin a new run")
    events = await store.events_of(run_id) if outline.started.config.get("certify") else ()
    mode = recorded_mode(outline.started, events, folder_of(where))
    return mode, record_of(mode, recorded_history(outline, where))


# Which mode a configuration means, when a study is opened and when a run is read. A section
# decides, the first of these that is there; a mode is imported once it is needed.
#
#     section      mode                   begun by
#     preselect    the log of a router    `preselect run`; no study has this section
#     gate         gate                   `Study.gate`; `Study.open` leaves the section out
#     certify      certification          `Study.open`
#     none         selection              `Study.open`; where people score, a collection
def open_mode(
    study: LoadedStudy, examples: Sequence[Example], catalog: Catalog, independent: Sequence[int]
) -> tuple[Mode, Judge]:
    """Open a certification if the study has a ``certify`` section, else a selection.

    Raises:
        ConfigError: a label or a judge is missing or wrong, or there are too few examples.
    """
    if study.config.certify is None:
        return open_selection(study, examples, catalog)
    from bestarm_agent.certification.mode import open_certification

    return open_certification(study, study.config.certify, examples, catalog, independent)


def open_recorded_mode(
    study: LoadedStudy, examples: Sequence[Example], catalog: Catalog, independent: Sequence[int]
) -> tuple[Mode, Judge]:
    """Open the mode in which a run began, from its study: only a gate's log keeps that section."""
    if study.config.gate is None:
        return open_mode(study, examples, catalog, independent)
    from bestarm_agent.gate.mode import open_gate

    return open_gate(study, examples, catalog, independent)


def recorded_mode(started: Started, events: Sequence[Event], folder: Path) -> Mode:
    """Rebuild the mode of a stored run from its log alone, to read it.

    Args:
        started: the first event.
        events: the whole log; only a certification reads it.
        folder: the store's, from which a rule of the user's is imported.
    """
    if started.config.get("preselect"):
        from bestarm_agent.preselection.mode import ROUTING

        return ROUTING
    if started.config.get("gate"):
        from bestarm_agent.gate.mode import GateMode

        return GateMode.recorded(started.config)
    if started.config.get("certify"):
        from bestarm_agent.certification.mode import Certification
        from bestarm_agent.config.goal_specs import CertifySpec

        spec = CertifySpec.model_validate(started.config["certify"])
        began = takewhile(lambda event: not isinstance(event, Asked), events)
        return Certification.recorded(spec, len(fold(began).candidates), events)
    return recorded_selection(started, folder)


async def _report(record: StoredRun, texts: RunTexts, path: Path) -> Path:
    """Write the report of a run, live or stored."""
    from bestarm_agent.report.html_page import report_of

    page = await report_of(texts, record.standing, record.check, record.result)
    write_page(page, path)
    return path


def write_page(page: str, path: Path) -> None:
    """Write a report for the user alone (mode 0600), as the store is; raise StoreError."""
    with whole_file(path, "report") as stream:
        stream.write(page.encode())


def report_path(store: StorePlace, run_id: str) -> Path:
    """Return the path of a run's report: next to a store that is a file, else in this folder."""
    return folder_of(store) / f"{run_id}.html"
