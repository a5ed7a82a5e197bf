"""Stored runs, to be read: their standing, report and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bestarm_agent.assembly import build_selector
from bestarm_agent.certifying.driver import CertifyingSelector
from bestarm_agent.certifying.recorded import recorded_driver
from bestarm_agent.checking import JudgeCheck
from bestarm_agent.config.certifying import CertifySpec
from bestarm_agent.config.objective import ObjectiveSpec
from bestarm_agent.config.running import SelectorSpec
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.events import Event
from bestarm_agent.errors import StoreError
from bestarm_agent.gold import check_run, stored_labels
from bestarm_agent.history import recall
from bestarm_agent.journal import initial_size, replay
from bestarm_agent.objectives import aim_of
from bestarm_agent.picture import Moment, picture
from bestarm_agent.report.page import (
    FailureLine,
)
from bestarm_agent.reporting import failures_of, report_of
from bestarm_agent.routing.recorded import ROUTED, Routed
from bestarm_agent.selectors.base import Selector
from bestarm_agent.standing import Standing
from bestarm_agent.stats.foresight import Lesson
from bestarm_agent.store.base import RunInfo
from bestarm_agent.store.fold import RunState, fold
from bestarm_agent.store.sql import SqlStore


@dataclass(frozen=True, slots=True)
class Record:
    """A stored run.

    Attributes:
        state: its folded log.
        standing: where it stands.
        check: how its judge fares on the study's gold scores, or None.
        certifying: of a certification, the driver, which knows the certificate.
    """

    state: RunState
    standing: Standing
    check: JudgeCheck | None = None
    certifying: CertifyingSelector | None = None

    @property
    def failures(self) -> list[FailureLine]:
        """What went wrong, by candidate and kind, most frequent first."""
        return failures_of(self.state)

    def write_report(self, path: Path) -> None:
        """Write the HTML report.

        Raises:
            StoreError: the file cannot be written.
        """
        page = report_of(self.state, self.standing, self.check, self.certifying)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(page, encoding="utf-8")
        except OSError as error:
            raise StoreError(
                f"the report {path} cannot be written ({error.strerror}); give another file"
            ) from error


class Archive:
    """The runs of a store; reading works while other processes write.

    Args:
        where: path or URL of the store.
    """

    def __init__(self, where: str | Path) -> None:
        self._where = where

    async def runs(self) -> Sequence[RunInfo]:
        """All runs, oldest first."""
        async with await SqlStore.connect(self._where, create=False) as store:
            return await store.runs()

    async def state(self, run: str) -> RunState:
        """Read a run and fold it.

        Raises:
            RunNotFoundError: there is no such run.
        """
        async with await SqlStore.connect(self._where, create=False) as store:
            return fold(await store.events_of(run))

    async def record(self, run: str) -> Record:
        """Read a run and work out where it stands.

        Raises:
            RunNotFoundError: there is no such run.
        """
        async with await SqlStore.connect(self._where, create=False) as store:
            run_id = (await store.find(run)).id
            events = await store.events_of(run_id)
            state = fold(events)
            lesson = recorded_lesson(state, self._where)
            selector = recorded_selector(state, events, run_id, lesson)
            standing = _picture(state, selector, events, run_id)
            labels = stored_labels(state, self._where)
            check = await check_run(store, state, labels, standing.confidence) if labels else None
        driver = selector if isinstance(selector, CertifyingSelector) else None
        return Record(state, standing, check, driver)

    def report_path(self, run_id: str) -> Path:
        """Where a run's report belongs."""
        return report_path(self._where, run_id)


def report_path(store: str | Path, run_id: str) -> Path:
    """Where a run's report belongs: next to a store that is a file, else in this folder."""
    folder = Path() if "://" in str(store) else Path(store).parent
    return folder / f"{run_id}.html"


def kept_lessons(store: str | Path) -> Path:
    """Folder of what runs of a store learned from history."""
    return report_path(store, "history").with_suffix("")


def recorded_lesson(state: RunState, store: str | Path) -> Lesson | None:
    """What a stored run learned from history before it began.

    Raises:
        ConfigError: it is no longer where it was kept.
    """
    name = state.started.lesson if state.started is not None else None
    return None if name is None else recall(name, kept_lessons(store))


def recorded_selector(
    state: RunState, events: Sequence[Event], run_id: str, lesson: Lesson | None = None
) -> Selector:
    """Rebuild a stored run's selector from its log alone."""
    if state.started is None:
        raise StoreError(f"run {run_id} has an empty log; begin a new run")
    config = state.started.config
    chosen = _selector_spec(config)
    size = initial_size(events)
    if (section := _section(config, "certify")) not in (None, {}):
        spec = CertifySpec.model_validate(section)
        selector: Selector = recorded_driver(spec, size.problem(per_dollar=False), events)
    elif _section(config, ROUTED) not in (None, {}):
        selector = Routed(size.problem(per_dollar=False))
    else:
        problem = size.problem(per_dollar=chosen.per == "dollar")
        selector = build_selector(chosen, problem, lesson, _objective_spec(config))
    replay(events, selector)
    return selector


def _picture(state: RunState, selector: Selector, events: Sequence[Event], run_id: str) -> Standing:
    config = state.started.config if state.started is not None else {}
    return picture(
        state,
        selector,
        run_id=run_id,
        budget=state.budget,
        spent=state.spend,
        moment=Moment(in_flight=0, waits=(), seconds=state.seconds + state.elapsed, broken={}),
        aim=aim_of(_objective_spec(config), _selector_spec(config), selector, events),
    )


def _selector_spec(config: Json) -> SelectorSpec:
    """The recorded selection rule; no variable or file of the study is needed to read a run."""
    return SelectorSpec.model_validate(_section(config, "selector"))


def _objective_spec(config: Json) -> ObjectiveSpec:
    return ObjectiveSpec.model_validate(_section(config, "objective"))


def _section(config: Json, key: str) -> Json:
    if not isinstance(config, Mapping):
        raise StoreError("the run's configuration is not a mapping; the log is damaged")
    return config.get(key, {})
