"""The run and the run store that a command uses: by flag or by search."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shlex import quote

import click

from bestarm_agent.cli.given import STUDY_FILE
from bestarm_agent.config.files import shown_path
from bestarm_agent.config.load import study_place
from bestarm_agent.config.settings import Settings
from bestarm_agent.domain.text import safe_lines
from bestarm_agent.engine.results.standing import Decision, Standing
from bestarm_agent.engine.setup.options import STORE_FILE
from bestarm_agent.errors import ConfigError, RunNotFoundError
from bestarm_agent.preselection.mode import SUFFIX
from bestarm_agent.store.store import StorePlace, folder_of
from bestarm_agent.study import Archive

_LATEST = "latest"
_DEPTH = 4  # levels of folders, this one included, that are searched for a store
_MOST_STORES = 5


def find_run(run: str | None, store: str | None) -> tuple[str | Path, str]:
    """Return the store and the run that a command means.

    If ``run`` is None and ``study.yaml`` lies in this folder, that is the newest run of a study of
    this folder: a store may be shared with others. Elsewhere it is the newest run of the store.

    Raises:
        ConfigError: there is no store, or which of several is meant is not clear.
        RunNotFoundError: the studies of this folder have no run in the store.
    """
    if run is not None or not Path(STUDY_FILE).is_file():
        return default_store(store), run or _LATEST
    where = default_store(store)
    try:
        names = _study_names()
    except ConfigError as error:  # a run can be looked at while its study is being edited
        click.echo(f"note: {safe_lines(str(error))}; the newest run of the store follows", err=True)
        return where, _LATEST
    runs = asyncio.run(Archive(where).runs())
    # runs that asked for something stand behind those that never began, the newest one last
    began = sorted(runs, key=lambda info: info.n_asked > 0)
    # what `preselect run` did for a study is a log of its own
    ids = [info.id for info in began if info.name.removesuffix(SUFFIX) in names]
    if not ids:
        others = f", and `{_LATEST}` means the newest of {len(runs)} there" if runs else ""
        raise RunNotFoundError(
            f"no run of {STUDY_FILE} or another study of this folder is in the store; "
            f"`bestarm-agent select` begins one{others}"
        )
    return where, ids[-1]


def runnable(standing: Standing, where: StorePlace) -> Standing:
    """Return it with commands that run from this folder: they say where study and store lie."""
    place, study = store_option(where), standing.study or ""
    here = quote(shown_path(Path(os.path.abspath(folder_of(where) / study))))

    def reach(decision: Decision | None) -> Decision | None:
        if decision is None or decision.next is None or decision.next.command is None:
            return decision
        old = decision.next.command
        new = old.replace(f" {quote(Path(study).name)}", f" {here}", 1) + place
        said = tuple(line.replace(f"`{old}`", f"`{new}`") for line in decision.said)
        return replace(decision, next=replace(decision.next, command=new), said=said)

    by_people = reach(standing.decision_by_people)
    return replace(standing, _decision=reach(standing.decision), decision_by_people=by_people)


def store_option(where: StorePlace) -> str:
    """Return what a command says to find a store from this folder; empty where it does by itself.

    Also empty for the address of a server, which may hold a password.
    """
    usual: str | Path | None = None
    with suppress(ConfigError):
        usual = default_store(None)
    is_found = usual is not None and Path(usual).resolve() == Path(str(where)).resolve()
    return "" if is_found or "://" in str(where) else f" --store {quote(str(where))}"


def _study_names() -> set[str]:
    """Return the names of the studies of this folder; raise ConfigError for ``study.yaml`` only."""
    names = {study_place(Path(STUDY_FILE))[0]}
    for path in (*Path().glob("*.yaml"), *Path().glob("*.yml")):
        with suppress(ConfigError):
            names.add(study_place(path)[0])
    return names


def default_store(store: str | None) -> str | Path:
    """Return the flag, the variable, the store of ``study.yaml`` here or the only one below.

    Raises:
        ConfigError: there is none, or several.
    """
    # What is said comes before what is found: the option, the variable, the study of this folder;
    # then a search, whose result must be the only one, since a command should not guess.
    given = store or Settings().store or _store_of_study()
    if given:
        return given
    files = _store_files()
    if len(files) == 1:
        return files[0]
    raise ConfigError(_several(files) if files else _NO_STORE)


def default_stores(given: Sequence[str] | None) -> Sequence[str | Path]:
    """Return the flags, the variable or all stores below this folder, or raise ConfigError."""
    return given or ([] if Settings().store else _store_files()) or [default_store(None)]


def default_or_new_store(store: str | None) -> str | Path:
    """Return the default store, or a new one in this folder if there is none yet."""
    if store is None and Settings().store is None and not _store_files():
        return Path(STORE_FILE)
    return default_store(store)


def _store_of_study() -> Path | None:
    """Return the store of ``study.yaml`` in this folder; None where there is none, or no study."""
    if not Path(STUDY_FILE).is_file():
        return None
    with suppress(ConfigError):  # a run can be looked at while its study is being edited
        path = study_place(Path(STUDY_FILE))[1] / STORE_FILE
        return path if path.is_file() else None
    return None


def _store_files() -> list[Path]:
    # one pattern for each depth ("runs.sqlite", "*/runs.sqlite", ...): "**" would walk through
    # everything below, such as environments and data sets
    return [path for i in range(_DEPTH) for path in Path().glob("*/" * i + STORE_FILE)]


_NO_STORE = (
    f"no run store ({STORE_FILE}) lies in this folder or up to {_DEPTH - 1} folders below; "
    f"`bestarm-agent select` and `preselect train` make one; name yours with --store PATH"
)


def _several(files: Sequence[Path]) -> str:
    """Ask for one of several stores; the one last written to comes first."""
    latest = sorted(files, key=lambda path: (-path.stat().st_mtime, path))
    rest = len(files) - _MOST_STORES
    listed = ", ".join(map(str, latest[:_MOST_STORES])) + (f" and {rest} more" if rest > 0 else "")
    return (
        f"{len(files)} run stores lie here, the last written to first: {listed}; choose one with "
        f"--store {latest[0]} or BESTARM_STORE, or call from the folder of the study"
    )
