"""Reads of a store, in threads, so that the event loop never waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, TypeAlias

from sqlalchemy import Executable, select

from bestarm_agent.domain.events import Event
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.errors import StoreError
from bestarm_agent.store import tables
from bestarm_agent.store.base import RunInfo
from bestarm_agent.store.codec import OF_PAIRS, load_event, load_reply
from bestarm_agent.store.database import Database, explaining
from bestarm_agent.store.run_listing import Progress

_Rows: TypeAlias = Sequence[tuple[Any, ...]]

_PAGE = 500  # replies read at a time
_EVENTS_PAGE = 1000

_runs = tables.runs.c
_events = tables.events.c
_replies = tables.replies.c
_PROGRESS = select(
    _runs.id, _runs.name, _runs.at, _runs.n_events, _runs.n_asked, _runs.n_told, _runs.stopped
).order_by(_runs.ordinal)


class Reader:
    """Queries that work while the store is written."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def runs(self) -> list[RunInfo]:
        """Return all runs, oldest first."""
        return [Progress(*row).info() for row in await self._rows(_PROGRESS)]

    async def progress(self, run_id: str) -> Progress:
        """Return the counts of a run that is known to exist."""
        [row] = await self._rows(_PROGRESS.where(_runs.id == run_id))
        return Progress(*row)

    async def events(self, run_id: str, since: int) -> list[Event]:
        """Return a run's events from number ``since`` on; raises StoreError on a damaged log."""
        return [event async for page in self.pages(run_id, since) for event in page]

    async def pages(self, run_id: str, since: int) -> AsyncIterator[list[Event]]:
        """Iterate over the same events, some at a time."""
        while page := await asyncio.to_thread(self._page, run_id, since):
            yield page
            since += len(page)

    async def outline(self, run_id: str) -> list[Event]:
        """Return a run's events that are not about a pair."""
        query = select(_events.payload).where(
            _events.run_id == run_id, _events.kind.not_in(OF_PAIRS)
        )
        rows = await self._rows(query.order_by(_events.n))
        return [load_event(payload) for (payload,) in rows]

    def _page(self, run_id: str, since: int) -> list[Event]:
        query = (
            select(_events.n, _events.payload)
            .where(_events.run_id == run_id, _events.n >= since)
            .order_by(_events.n)
            .limit(_EVENTS_PAGE)
        )
        where = self._database.where
        with explaining(where), self._database.engine.connect() as connection:
            return _decoded(connection.execute(query), since, f"run {run_id} in {where}")

    async def replies(self) -> AsyncIterator[tuple[str, Reply]]:
        """Iterate over all replies, by key."""
        last = ""
        query = select(_replies.key, _replies.payload).order_by(_replies.key).limit(_PAGE)
        while page := await self._rows(query.where(_replies.key > last)):
            for key, payload in page:
                yield key, load_reply(payload)
            last = page[-1][0]

    async def _rows(self, query: Executable) -> _Rows:
        return await asyncio.to_thread(self._fetch, query)

    def _fetch(self, query: Executable) -> _Rows:
        with explaining(self._database.where), self._database.engine.connect() as connection:
            return connection.execute(query).all()


def _decoded(rows: Iterable[Sequence[Any]], since: int, where: str) -> list[Event]:
    events: list[Event] = []
    for expected, (n, payload) in enumerate(rows, start=since):
        if n != expected:
            raise StoreError(
                f"event {expected} of {where} is missing; restore the store from a copy"
            )
        try:
            events.append(load_event(payload))
        except StoreError as error:
            raise type(error)(f"event {n} of {where}: {error}") from error
    return events
