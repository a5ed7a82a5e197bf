"""How a study is found, recorded, and found again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bestarm_agent._version import __version__
from bestarm_agent.archive import kept_lessons
from bestarm_agent.assembly import Parts, assemble
from bestarm_agent.catalog import Catalog
from bestarm_agent.config.base import dotted
from bestarm_agent.config.loading import LoadedStudy, load_study, study_from
from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.events import BudgetSet, Event, Started
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.redaction import secrets_in
from bestarm_agent.errors import ConfigError, StoreError
from bestarm_agent.history import is_score_file, keep, load_history
from bestarm_agent.journal import candidates_added, examples_added
from bestarm_agent.judges.base import Judge
from bestarm_agent.roster import Entry
from bestarm_agent.routing.recorded import ROUTED
from bestarm_agent.schedule.clock import Clock, SystemClock
from bestarm_agent.stats.foresight import Lesson
from bestarm_agent.store.base import RunStore
from bestarm_agent.store.fold import RunState, fold

STORE_FILE = "runs.sqlite"


@dataclass(frozen=True, slots=True)
class Options:
    """How a study is opened.

    Attributes:
        store: path or URL of the run store; None: ``runs.sqlite`` in the study's ``output_dir``.
        catalog_dirs: folders searched for catalogue entries before the packaged ones.
        use_cache: whether replies bought by earlier runs may be used.
        clock: tells the time.
    """

    store: str | Path | None = None
    catalog_dirs: tuple[Path, ...] = ()
    use_cache: bool = True
    clock: Clock = field(default_factory=SystemClock)


def recorded_parts(
    state: RunState, options: Options, *, examples: Sequence[Example] | None = None
) -> Parts:
    """Rebuild the parts of a stored run, and check that its dataset is what it was.

    Raises:
        ConfigError: the dataset, the judge, a prompt, a provider or a variable is not what it was.
    """
    if state.started is None:
        raise StoreError("the run's log is empty; begin a new run")
    if isinstance(state.started.config, Mapping) and ROUTED in state.started.config:
        raise ConfigError(
            f"{state.name} holds what `preselect run` did, and a router's prompts are not resumed; "
            f"run that command again (the replies that it bought are taken from the reply cache)"
        )
    loaded = _recorded(state.started, options)
    parts = assemble(loaded, catalog_of(loaded, options), examples=examples)
    _check_examples(parts.examples, state)
    _check_judge(parts.judge, state.started)
    return parts


def first_events(
    parts: Parts, entries: Sequence[Entry], base: str, clock: Clock, lesson: str | None = None
) -> list[Event]:
    """What the log of a new run begins with; ``entries`` are its candidates, made ready."""
    started = Started(
        name=parts.config.name,
        at=clock.utc(),
        version=__version__,
        config=parts.study.record(),
        base=base,
        lesson=lesson,
        judge=parts.judge.digest,
    )
    return [
        started,
        examples_added(parts.examples),
        candidates_added(entries),
        BudgetSet(parts.budget),
    ]


@dataclass(frozen=True, slots=True)
class Learned:
    """What a new run goes by from history.

    Attributes:
        lesson: what the selection rule is given, or None.
        name: what it is kept under, next to the store.
        notices: how far it helps, for people.
    """

    lesson: Lesson | None = None
    name: str | None = None
    notices: tuple[str, ...] = ()


async def learn_from_history(parts: Parts, store: RunStore, where: str | Path) -> Learned:
    """Learn from the earlier runs and score files that a study names, and keep it for the run.

    Raises:
        ConfigError: a file is not there, or nothing in them is of use.
        RunNotFoundError: there is no such run.
    """
    notices = []

    async def read_run(run: str) -> RunState:
        state = fold(await store.events_of(run))
        if state.started is not None and state.started.judge not in (None, parts.judge.digest):
            notices.append(
                f"history run {run} was scored by another judge (digest {state.started.judge}, "
                f"now {parts.judge.digest}): what it teaches may not hold for this one"
            )
        return state

    sources = parts.config.selector.history
    if not sources:
        return Learned()
    folder = kept_lessons(where)
    base = parts.study.base_dir
    history = await load_history(
        [str(base / source) if is_score_file(source) else source for source in sources],
        parts.examples,
        read_run=read_run,
        cache=folder,
    )
    return Learned(history.lesson, keep(history.lesson, folder), (history.describe(), *notices))


def loaded_study(
    source: str | Path | Mapping[str, Json] | LoadedStudy, overrides: Mapping[str, Json]
) -> LoadedStudy:
    """Read a study from a file, or take what one holds, with paths from the working directory."""
    if isinstance(source, LoadedStudy):
        return source
    if isinstance(source, Mapping):
        return study_from(source, overrides=overrides)
    return load_study(Path(source), overrides)


def _recorded(started: Started, options: Options) -> LoadedStudy:
    folder = Path()
    if isinstance(options.store, Path) or "://" not in str(options.store):
        folder = Path(str(options.store)).parent
    if not isinstance(started.config, Mapping):
        raise StoreError("the run's configuration is not a mapping; the log is damaged")
    return study_from(started.config, folder / started.base)


def catalog_of(loaded: LoadedStudy, options: Options) -> Catalog:
    """The catalogue folders that a study sees."""
    return Catalog(loaded.base_dir, options.catalog_dirs)


def store_of(loaded: LoadedStudy, options: Options) -> str | Path:
    """Where a study's runs are stored."""
    if options.store is not None:
        return options.store
    return loaded.base_dir / loaded.config.output_dir / STORE_FILE


def relative(base_dir: Path, store: str | Path) -> str:
    """The study's folder as seen from the store's, so that no machine path is recorded."""
    if isinstance(store, str) and "://" in store:
        return Path(os.path.relpath(base_dir)).as_posix()
    return Path(os.path.relpath(base_dir, Path(store).parent)).as_posix()


def check_new(candidates: Sequence[Candidate], there: Sequence[Candidate]) -> None:
    """Check that candidates differ from those that are there, and from each other.

    Raises:
        ConfigError: two are equal, or have the same label; or one has a parameter that is called
            like a secret, which the log leaves out.
    """
    labels = {candidate.label for candidate in there}
    ids = {candidate.id: candidate.label for candidate in there}
    for candidate in candidates:
        for path, _ in secrets_in(candidate.params):
            raise ConfigError(
                f"candidate {candidate.label!r} has the parameter `{dotted(path)}`, which is "
                f"called like a secret and would not be kept in the log; hand it to the provider "
                f"by an option, as ${{NAME_OF_THE_VARIABLE}}"
            )
        if candidate.id in ids:
            raise ConfigError(
                f"candidate {candidate.label!r} is the same as {ids[candidate.id]!r}: model, "
                f"prompt and parameters are equal; change one of them"
            )
        if candidate.label in labels:
            raise ConfigError(
                f"there is a candidate {candidate.label!r} already; give another label"
            )
        ids[candidate.id] = candidate.label
        labels.add(candidate.label)


def _check_judge(judge: Judge, started: Started) -> None:
    """Scores of two judges never mix in one estimate."""
    if started.judge not in (None, judge.digest):
        raise ConfigError(
            f"judge `{judge.name}` is no longer what it was when the run began (digest "
            f"{judge.digest}, was {started.judge}), and scores of two judges do not mix; restore "
            f"its catalogue entry and template, or begin a new run (the candidates' replies are "
            f"taken from the reply cache, so that only judging is paid for again)"
        )


def _check_examples(examples: Sequence[Example], state: RunState) -> None:
    now = [example.digest for example in examples]
    if now == state.example_digests:
        return
    changed = sum(a != b for a, b in zip(now, state.example_digests, strict=False))
    raise ConfigError(
        f"the dataset has changed since the run began: {len(now)} examples where there were "
        f"{len(state.example_digests)}, {changed} of them different; restore it, or begin a new "
        f"run (equal requests are taken from the reply cache)"
    )
