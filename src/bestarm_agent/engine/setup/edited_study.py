"""A study that was edited since its run began: what joins, and what must not change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bestarm_agent.config.study.load import LoadedStudy, load_study, study_from
from bestarm_agent.config.yaml.documents import shown_path
from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.events import CandidatesAdded, Event, Started
from bestarm_agent.engine.setup.study_parts import StudyParts
from bestarm_agent.errors import ConfigError, counted

_GRID = ("models", "prompts", "params", "candidates", "exclude", "providers")
_FIXED = ("dataset", "scorer", "repeats")
_KEPT = ("slices", "objective", "confirm")  # what is asked of the run, from its beginning
_FREE = ("endpoints", "key")  # options of providers: which server answers, and for which account
_WAY_OUT = (
    "restore it, and give what you changed a name of its own, so that it joins; or begin a new run "
    "(equal requests are taken from the reply cache)"
)


def file_name(study: LoadedStudy) -> str | None:
    """Return the name of a study's file, if its candidates are all from there."""
    overridden = {key[0] for key in study.places.origins}
    if study.path is None or overridden.intersection((*_GRID, *_FIXED)):
        return None
    return study.path.name


def with_edits(recorded: LoadedStudy, file: str | None) -> LoadedStudy:
    """Return a recorded study with the candidates of its file as it is now.

    It has a ``path`` if the file was edited. A file that is gone changes nothing. Everything but
    candidates stays as recorded.

    Raises:
        ConfigError: the file breaks a rule, or something changed that scores depend on.
    """
    path = recorded.base_dir / file if file is not None else None
    if path is None or not path.is_file():
        return recorded
    before, now = _content(recorded), _content(load_study(path))
    if all(before[key] == now[key] for key in (*_GRID, *_FIXED)):
        return recorded
    for name in (*_changed_keys(before, now), *_changed_models(before, now)):
        raise ConfigError(
            f"{shown_path(path)} was edited: `{name}` is no longer what it was when the run began, "
            f"and scores of both must not mix; {_WAY_OUT}"
        )
    content = {**before, **{key: now[key] for key in _GRID}}
    return replace(study_from(content, recorded.base_dir), path=path)


def kept_notice(recorded: LoadedStudy, started: Started | None) -> tuple[str, ...]:
    """Say which edits of a study's file a run does not follow; nothing if there are none."""
    path = recorded.base_dir / started.file if started is not None and started.file else None
    if path is None or not path.is_file():
        return ()
    study = load_study(path)
    before, now, given = _content(recorded), _content(study), study.config.model_fields_set
    keys = [key for key in _KEPT if key in given and now[key] != before[key]]
    if not keys:
        return ()
    names = ", ".join(f"`{key}`" for key in keys)
    return (
        f"{shown_path(path)} was edited: {names} {'stays' if len(keys) == 1 else 'stay'} as "
        f"{'it was' if len(keys) == 1 else 'they were'} when the run began; begin a new run for "
        f"what is there now (equal requests are taken from the reply cache)",
    )


def joining(parts: StudyParts, events: Sequence[Event]) -> list[Candidate]:
    """Return the candidates that edits add to a run, in the order of the study.

    Those of an edited study file, or else those of prompt files that are new.

    Raises:
        ConfigError: a candidate, or the file of a prompt, that the run began with has changed.
    """
    added = [event.candidates for event in events if isinstance(event, CandidatesAdded)]
    there = {candidate.id for some in added for candidate in some}
    new = [candidate for candidate in parts.candidates if candidate.id not in there]
    if parts.study.path is not None:
        _check_candidates(parts, added[0])
        return new
    _check_prompts(parts, added[0])
    if parts.config.gate is not None:
        return []  # it has the challengers that it was given
    known = {candidate.prompt.name for some in added for candidate in some}
    return [candidate for candidate in new if candidate.prompt.name not in known]


def joined_notice(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """Say which candidates joined; nothing if none did."""
    if not candidates:
        return ()
    labels = ", ".join(candidate.label for candidate in candidates)
    return (f"the study was edited: {counted(len(candidates), 'candidate')} joined: {labels}",)


def _check_candidates(parts: StudyParts, first: Sequence[Candidate]) -> None:
    now = {candidate.id for candidate in parts.candidates}
    gone = [candidate.label for candidate in first if candidate.id not in now]
    if gone:
        more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
        are, they = ("are", "they were") if more else ("is", "it was")
        raise ConfigError(
            f"the study file was edited: candidate {gone[0]!r}{more} of the run {are} no longer in "
            f"it as {they} (model, prompt text and parameters); {_WAY_OUT}"
        )


def _check_prompts(parts: StudyParts, first: Sequence[Candidate]) -> None:
    """Check the prompts that lie in files of their own, or in the catalogue."""
    labels = {candidate.label for candidate in parts.candidates}
    for candidate in first:
        if parts.config.gate is not None and candidate.label not in labels:
            continue  # the baseline came from another run, with a prompt of its own
        now = parts.prompts.get(candidate.prompt.name)
        if now is not None and now.as_json() != candidate.prompt.as_json():
            raise ConfigError(
                f"prompt `{now.name}` was edited since the run began, and scores of both texts "
                f"must not mix; {_WAY_OUT}"
            )


def _content(study: LoadedStudy) -> Mapping[str, Json]:
    return _mapping(study.record())


def _changed_keys(before: Mapping[str, Json], now: Mapping[str, Json]) -> list[str]:
    changed = [key for key in _FIXED if before[key] != now[key]]
    old, new = _mapping(before["providers"]), _mapping(now["providers"])
    moved = [name for name in old if _decisive(new.get(name)) != _decisive(old[name])]
    return changed + [f"providers.{name}" for name in moved]


def _changed_models(before: Mapping[str, Json], now: Mapping[str, Json]) -> list[str]:
    """List the models whose options changed: these are no part of a candidate."""
    old, new = (_options_by_model(content["models"]) for content in (before, now))
    return [f"options of {name}" for name in old if name in new and new[name] != old[name]]


def _options_by_model(models: Json) -> dict[str, Mapping[str, Json]]:
    entries = [_mapping(entry) for entry in models] if isinstance(models, list | tuple) else []
    return {str(entry["model"]): _decisive(entry["options"]) for entry in entries}


def _decisive(options: Json) -> Mapping[str, Json]:
    """Return the options of a provider without those that change no reply."""
    return {key: value for key, value in _mapping(options).items() if key not in _FREE}


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}
