"""Open run stores by path, by URL, or by a plug-in that a URL's scheme names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

from bestarm_agent.errors import StoreError
from bestarm_agent.plugins.registry import Registry
from bestarm_agent.store.base import RunLog, RunStore

C = TypeVar("C", RunStore, RunLog)


class StoreClass(Protocol):
    """A kind of store: a class with this class method."""

    async def connect(self, where: str, /, *, create: bool) -> RunStore:
        """Open the store at a URL, or make an empty one if ``create``.

        Raises:
            ConfigError: the URL is not understood.
            StoreError: it cannot be opened; or there is none and it is not to be made.
        """


StorePlace: TypeAlias = str | Path | RunStore
"""A path or URL of a store, or an open store, which its owner closes."""

_SQL = "bestarm_agent.store.sql_store:SqlStore"
STORES: Final = Registry[StoreClass](
    "store",
    "stores",
    {"postgres": _SQL, "postgresql": _SQL, "postgresql+psycopg": _SQL, "sqlite": _SQL},
    lambda found: hasattr(found, "connect"),
    "a class with the class method `connect`",
)


@asynccontextmanager
async def open_store(where: StorePlace, *, create: bool = True) -> AsyncIterator[RunStore]:
    """Open a store, and close it at the end if it was not open before.

    Args:
        where: path of an SQLite file; a URL, whose scheme is "postgresql" or the name of a plug-in;
            or an open store.
        create: whether to make an empty store if there is none.

    Raises:
        ConfigError: the URL is not understood, or there is no such plug-in.
        StoreError: it cannot be opened, or closing it failed to write something.
    """
    if not isinstance(where, str | Path):
        yield where
        return
    scheme, separator, _ = str(where).partition("://")
    kind = STORES.load(scheme if separator and isinstance(where, str) else "sqlite")
    store = await kind.connect(str(where), create=create)
    async with closing(store):
        yield store


@asynccontextmanager
async def closing(resource: C) -> AsyncIterator[C]:
    """Close a store or log at the end; note on an earlier error what could not be written."""
    try:
        yield resource
    except BaseException as error:
        try:
            await resource.close()
        except StoreError as failure:
            if failure is not error:
                error.add_note(str(failure))
        raise
    await resource.close()


def folder_of(where: StorePlace) -> Path:
    """Return the folder of a store that is a file; the working directory for any other."""
    if isinstance(where, Path):
        return where.parent
    return Path(where).parent if isinstance(where, str) and "://" not in where else Path()
