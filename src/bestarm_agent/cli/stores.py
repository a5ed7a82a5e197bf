"""The run store and the catalogue folders that a command uses: by flag, variable or search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bestarm_agent.config.environment_settings import Settings
from bestarm_agent.engine.setup.open_run import STORE_FILE
from bestarm_agent.errors import ConfigError

_DEPTH = 4  # levels of folders, this one included, that are searched for a store
_MOST_STORES = 5


def default_catalogs(catalog: Sequence[Path] | None) -> tuple[Path, ...]:
    """Return the catalogue folders, from flags or the environment."""
    return tuple(catalog or Settings().catalog_dirs)


def default_store(store: str | None) -> str | Path:
    """Return the flag, the variable or the only store below this folder, or raise ConfigError."""
    given = store or Settings().store
    if given:
        return given
    found = _store_files()
    if len(found) == 1:
        return found[0]
    raise ConfigError(_several(found) if found else _NO_STORE)


def default_stores(given: Sequence[str] | None) -> Sequence[str | Path]:
    """Return the flags, the variable or all stores below this folder, or raise ConfigError."""
    return given or ([] if Settings().store else _store_files()) or [default_store(None)]


def default_or_new_store(store: str | None) -> str | Path:
    """Return the default store, or a new one in this folder if there is none yet."""
    if store is None and Settings().store is None and not _store_files():
        return Path(STORE_FILE)
    return default_store(store)


def _store_files() -> list[Path]:
    return [path for i in range(_DEPTH) for path in Path().glob("*/" * i + STORE_FILE)]


_NO_STORE = (
    f"no run store ({STORE_FILE}) lies in this folder or up to {_DEPTH - 1} folders below; "
    f"`bestarm-agent select` and `preselect train` make one; name yours with --store PATH"
)


def _several(found: Sequence[Path]) -> str:
    """Ask for one of several stores; the one last written to comes first."""
    latest = sorted(found, key=lambda path: (-path.stat().st_mtime, path))
    more = len(found) - _MOST_STORES
    listed = ", ".join(map(str, latest[:_MOST_STORES])) + (f" and {more} more" if more > 0 else "")
    return (
        f"{len(found)} run stores lie here, the last written to first: {listed}; choose one with "
        f"--store {latest[0]} or BESTARM_STORE, or call from the folder of the study"
    )
