"""Stored runs, to be read: their standing, report and scores."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bestarm_agent.certification.mode import Certification
from bestarm_agent.config.study.certify import CertifySpec
from bestarm_agent.config.study.gate import GateSpec
from bestarm_agent.config.study.objective import ObjectiveSpec
from bestarm_agent.config.study.run_options import LimitsSpec, SelectorSpec, StopSpec
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.events import Event, Started
from bestarm_agent.engine.confirm import with_confirmation
from bestarm_agent.engine.mode import Mode, ModeResult
from bestarm_agent.engine.results.build_standing import recorded_standing
from bestarm_agent.engine.results.failures import FailureLine, failures_of
from bestarm_agent.engine.results.judge_agreement import JudgeCheck, check_run, run_labels
from bestarm_agent.engine.results.objectives import track_objective
from bestarm_agent.engine.results.pair_filter import PairFilter
from bestarm_agent.engine.results.pair_outcomes import Outcomes, RunTexts, texts_of
from bestarm_agent.engine.results.paired_comparison import PairedComparison, compare_candidates
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.run.replay import RunReplay, initial_size
from bestarm_agent.engine.setup.history import recorded_history
from bestarm_agent.engine.setup.selection import Selection, find_rule
from bestarm_agent.errors import ConfigError, StoreError
from bestarm_agent.gate.mode import Gate
from bestarm_agent.preselection.mode import Preselection, is_routed
from bestarm_agent.report.gather import report_of
from bestarm_agent.store.export import whole_file
from bestarm_agent.store.run_state import RunState, fold, folded
from bestarm_agent.store.store import RunInfo, Store, StorePlace, folder_of, open_store


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A stored run."""

    standing: Standing  # where it stands
    failures: tuple[FailureLine, ...] = ()  # by candidate and kind, most frequent first
    check: JudgeCheck | None = None  # how its judge fares on the study's gold scores, or None
    result: ModeResult | None = None  # of a certification, its certificate

    def _repr_html_(self) -> str:
        """Show the ranking in a notebook."""
        return self.standing._repr_html_()

    def __repr__(self) -> str:
        return f"<StoredRun: {self.standing!r}>"


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
            run_id = (await store.find(run)).id
            return (await self._replayed(store, run_id, follows=False))[0]

    async def write_report(self, run: str = "latest", path: Path | None = None) -> Path:
        """Write a run's report as HTML, by default next to the store, and return its path.

        Raises:
            RunNotFoundError: there is no such run.
            StoreError: the file cannot be written.
        """
        async with open_store(self._where, create=False) as store:
            run_id = (await store.find(run)).id
            found, replay = await self._replayed(store, run_id)
            trajectory = replay.trajectory.until_now(replay.pairs)
            texts = await texts_of(store, replay.state, folder_of(self._where))
            page = await report_of(texts, trajectory, found.standing, found.check, found.result)
        target = path or report_path(self._where, run_id)
        write_page(page, target)
        return target

    async def _replayed(
        self, store: Store, run_id: str, *, follows: bool = True
    ) -> tuple[StoredRun, RunReplay]:
        mode, replay = await recorded_replay(store, run_id, self._where, follows=follows)
        await replay.take_all(store.texts_of(run_id))
        state, pairs = replay.state, replay.pairs
        standing = recorded_standing(state, pairs, run_id, replay.objective)
        standing = await with_confirmation(store, standing, state.started)
        check = await self._check(store, state, run_id, standing)
        result = mode.result(pairs, standing)
        return StoredRun(standing, tuple(failures_of(state)), check, result), replay

    async def _check(
        self, store: Store, state: RunState, run_id: str, standing: Standing
    ) -> JudgeCheck | None:
        labels = () if state.started is None else run_labels(state.started, self._where, run_id)
        return await check_run(store, state, labels, standing.confidence) if labels else None

    async def compared(
        self,
        run: str = "latest",
        other: str | None = None,
        candidates: tuple[str, str] | None = None,
        confidence: float = 0.95,
    ) -> PairedComparison:
        """Compare two candidates of a run, or one of ``run`` with one of ``other``.

        ``candidates`` are labels or ids; by default the best of each run.

        Raises:
            RunNotFoundError: there is no such run.
            ConfigError: the candidates cannot be compared.
        """
        one = await self.state(run)
        two = one if other is None else await self.state(other)
        if candidates is None:
            candidates = await self._best(run), await self._best(other or run)
        return compare_candidates(one, *candidates, confidence, None if other is None else two)

    async def _best(self, run: str) -> str:
        best = (await self.record(run)).standing.best
        if best is None:
            raise ConfigError(f"run {run} has no best candidate; name two with --candidates A B")
        return best.candidate.label

    def outcomes(self, run: str = "latest", *, only: PairFilter | None = None) -> Outcomes:
        """Return the pairs of a run with their texts; nothing is read before they are iterated.

        Raises (when iterated):
            RunNotFoundError: there is no such run.
            ConfigError: ``only`` names a candidate or an example that is not there.
        """
        return Outcomes(lambda: self.texts(run), only)

    @asynccontextmanager
    async def texts(self, run: str) -> AsyncIterator[RunTexts]:
        """Open a run's texts.

        Raises:
            RunNotFoundError: there is no such run.
        """
        async with open_store(self._where, create=False) as store:
            yield await texts_of(store, await folded(store, run), folder_of(self._where))


async def recorded_replay(
    store: Store, run_id: str, where: StorePlace, *, follows: bool = True
) -> tuple[Mode, RunReplay]:
    """Return a stored run's mode, and what its log is to be fed to.

    ``follows``: whether that keeps the trajectory, which reports draw.

    Raises:
        StoreError: the log is empty or damaged.
    """
    outline = fold(await store.outline_of(run_id))
    if outline.started is None:
        raise StoreError(f"run {run_id} has an empty log; begin a new run")
    config = outline.started.config
    events = await store.events_of(run_id) if _section(config, "certify") else ()
    mode = recorded_mode(outline.started, events, folder_of(where))
    history = recorded_history(outline, where)
    measures = _section(config, "measures")
    names = sorted(measures) if isinstance(measures, Mapping) else []
    limits = LimitsSpec.model_validate(_section(config, "limits"))
    track = partial(
        track_objective,
        _objective_spec(config),
        _selector_spec(config),
        names,
        limits.timeout_seconds,
    )
    return mode, RunReplay(partial(mode.pairs, history=history), track, follows=follows)


def recorded_mode(started: Started, events: Sequence[Event], folder: Path) -> Mode:
    """Rebuild the mode of a run, a certification from its events; import a rule of the user's."""
    config = started.config
    if is_routed(config):
        return Preselection()
    if section := _section(config, "gate"):
        return Gate(GateSpec.model_validate(section), _selector_spec(config).seed)
    if section := _section(config, "certify"):
        size = initial_size(events)
        spec = CertifySpec.model_validate(section)
        return Certification.recorded(spec, size.n_candidates, events)
    chosen = _selector_spec(config)
    rule = find_rule(chosen.name, folder / started.base)
    stop = StopSpec.model_validate(_section(config, "stop"))
    return Selection(chosen, _objective_spec(config), rule=rule, stop=stop)


def _selector_spec(config: Json) -> SelectorSpec:
    return SelectorSpec.model_validate(_section(config, "selector"))


def _objective_spec(config: Json) -> ObjectiveSpec:
    return ObjectiveSpec.model_validate(_section(config, "objective"))


def _section(config: Json, key: str) -> Json:
    if not isinstance(config, Mapping):
        raise StoreError("the run's configuration is not a mapping; the log is damaged")
    return config.get(key, {})


def write_page(page: str, path: Path) -> None:
    """Write a report for the user alone (mode 0600), as the store is; raise StoreError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as stream:
            stream.write(page.encode())
    except OSError as error:
        raise StoreError(
            f"the report {path} cannot be written ({error.strerror}); give another file"
        ) from error


def report_path(store: StorePlace, run_id: str) -> Path:
    """Return the path of a run's report: next to a store that is a file, else in this folder."""
    return folder_of(store) / f"{run_id}.html"
