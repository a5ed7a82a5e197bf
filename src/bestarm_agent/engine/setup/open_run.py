"""Finding a study, recording it, and rebuilding it from its record."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict

from bestarm_agent._version import __version__
from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.datasets import read_examples
from bestarm_agent.config.fields import dotted
from bestarm_agent.config.functions import source_name
from bestarm_agent.config.load import LoadedStudy, load_study, study_from
from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.events import BudgetSet, Event, Started
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.redaction import secrets_in
from bestarm_agent.engine.clock import Clock, SystemClock
from bestarm_agent.engine.mode import OpenMode
from bestarm_agent.engine.pool import ReadyCandidate, candidates_added
from bestarm_agent.engine.record import examples_added
from bestarm_agent.engine.setup.parts import StudyParts, assemble
from bestarm_agent.errors import ConfigError, StoreError, counted
from bestarm_agent.judges.base import Judge
from bestarm_agent.providers.base import Provider
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.store import StorePlace, folder_of

STORE_FILE = "runs.sqlite"


@dataclass(frozen=True, slots=True)
class Options:
    """Settings for opening a study. Objects take the place of the study's names."""

    # path, URL or open store; None: ``runs.sqlite`` in the study's ``output_dir``
    store: StorePlace | None = None
    catalog_dirs: tuple[Path, ...] = ()  # searched before the packaged catalogue
    use_cache: bool = True  # whether replies bought by earlier runs may be used
    clock: Clock = field(default_factory=SystemClock)
    selector: type[Rule] | None = None  # class of the selection rule
    # by name, besides the catalogue's; a study enters and leaves them
    providers: Mapping[str, Provider] = field(default_factory=dict)
    judge: Judge | None = None  # scores the replies, instead of the study's scorer

    def objects(self) -> dict[tuple[str, str], object]:
        """Return the objects that take the place of names, by group and name.

        Raises:
            ValueError: a provider has another name than its key.
        """
        found: dict[tuple[str, str], object] = {}
        for name, provider in self.providers.items():
            if provider.name != name:
                raise ValueError(
                    f"providers[{name!r}] calls itself {provider.name!r}; use one name for both"
                )
            found["providers", name] = provider
        if self.selector is not None:
            found["selectors", source_name(self.selector)] = self.selector
        if self.judge is not None:
            found["judges", self.judge.name] = self.judge
        return found

    def overrides(self) -> dict[str, Json]:
        """Return what a study says instead, where objects take the place of names."""
        found: dict[str, Json] = {}
        if self.selector is not None:
            found["selector.name"] = source_name(self.selector)
        if self.judge is not None:
            found["scorer"] = {"name": self.judge.name}
        return found


class Objects(TypedDict, total=False):
    """Python objects that ``Study.open`` takes in place of names."""

    selector: type[Rule]
    providers: Mapping[str, Provider]
    judge: Judge
    store: StorePlace


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
    if started is None:
        raise StoreError("the run's log is empty; begin a new run")
    if not isinstance(started.config, Mapping):
        raise StoreError("the run's configuration is not a mapping; the log is damaged")
    folder = Path() if options.store is None else folder_of(options.store)
    loaded = study_from(started.config, folder / started.base)
    with loaded.places.locating("dataset"):
        rows = examples or read_examples(loaded.config.dataset, loaded.base_dir)
    n = len(state.example_ids) // loaded.config.repeats
    began_with = n + started.kept_back
    parts = assemble(loaded, catalog_of(loaded, options), open_mode, examples=rows[:began_with])
    if (more := len(rows) - began_with) > 0:
        said = (
            f"the dataset has grown by {counted(more, 'example')}; the run goes on with the "
            f"{began_with:,} that it began with, since its intervals are about these; begin a new "
            f"run for all (equal requests are taken from the reply cache)"
        )
        parts = replace(parts, notices=(*parts.notices, said))
    shown = parts.examples[: len(parts.examples) // loaded.config.repeats]
    check_unchanged(shown, state.example_digests[:n])
    judge = parts.judge
    if started.judge not in (None, judge.digest):  # scores of two judges never mix
        raise ConfigError(
            f"judge `{judge.name}` is no longer what it was when the run began (digest "
            f"{judge.digest}, was {started.judge}), and scores of two judges do not mix; restore "
            f"its catalogue entry and template, or begin a new run (the candidates' replies are "
            f"taken from the reply cache, so that only judging is paid for again)"
        )
    return parts


def first_events(
    parts: StudyParts,
    entries: Sequence[ReadyCandidate],
    config: Json,
    base: str,
    clock: Clock,
    lesson: str | None = None,
) -> list[Event]:
    """Return the first events of a new run with the prepared candidates ``entries``."""
    started = Started(
        name=parts.config.name,
        at=clock.utc(),
        version=__version__,
        config=config,
        base=base,
        lesson=lesson,
        judge=parts.judge.digest,
        judge_priced=parts.judge_priced,
        kept_back=len(parts.kept_back),
    )
    return [
        started,
        examples_added(parts.examples, parts.slices),
        candidates_added(entries),
        BudgetSet(parts.budget),
    ]


def loaded_study(
    source: str | Path | Mapping[str, Json] | LoadedStudy, overrides: Mapping[str, Json]
) -> LoadedStudy:
    """Read a study from a file, or take what one holds, with paths from the working directory."""
    if isinstance(source, LoadedStudy):
        content = source.source
        if not overrides or not isinstance(content, Mapping):
            return source
        return study_from(content, source.base_dir, overrides)
    if isinstance(source, Mapping):
        return study_from(source, overrides=overrides)
    return load_study(Path(source), overrides)


def catalog_of(loaded: LoadedStudy, options: Options) -> Catalog:
    """Return the catalogue of a study."""
    return Catalog(loaded.base_dir, options.catalog_dirs, options.objects())


def store_of(loaded: LoadedStudy, options: Options) -> StorePlace:
    """Return the store of a study's runs."""
    if options.store is not None:
        return options.store
    return loaded.base_dir / loaded.config.output_dir / STORE_FILE


def relative(base_dir: Path, store: StorePlace) -> str:
    """Return the study's folder relative to the store's: the log holds no absolute path."""
    return Path(os.path.relpath(base_dir, folder_of(store))).as_posix()


def check_new(candidates: Sequence[Candidate], there: Sequence[Candidate]) -> None:
    """Check that candidates differ from those that are there, and from each other.

    Raises:
        ConfigError: two are equal, or have the same label; or one has a parameter that is called
            like a secret, which the log leaves out.
    """
    labels = {candidate.label for candidate in there}
    ids = {candidate.id: candidate.label for candidate in there}
    for candidate in candidates:
        for path in secrets_in(candidate.params):
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
