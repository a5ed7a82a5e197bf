"""Snapshots of runs in a database: one row for each part of a run, checked against its log."""

from __future__ import annotations

from hashlib import sha256

from sqlalchemy import delete, insert, inspect, select

from bestarm_agent.store.base import Snapshot
from bestarm_agent.store.database import Database, explaining, writing
from bestarm_agent.store.tables import events, runs, snapshots

_columns = snapshots.c
_FOUND = (
    select(
        _columns.n_events,
        runs.c.n_events - _columns.n_events,
        _columns.payload,
        _columns.digest,
        events.c.payload,
    )
    .join(runs, runs.c.id == _columns.run_id)
    .join(events, (events.c.run_id == _columns.run_id) & (events.c.n == _columns.n_events - 1))
)


def digest_of(payload: str) -> str:
    """Return the digest of an event, by which a snapshot knows the log that it belongs to."""
    return sha256(payload.encode()).hexdigest()


def read_snapshot(database: Database, run_id: str, part: str) -> Snapshot | None:
    """Return a part's snapshot; None if there is none, or the log is another."""
    query = _FOUND.where(_columns.run_id == run_id, _columns.part == part)
    with explaining(database.where), database.engine.connect() as connection:
        if not inspect(connection).has_table(snapshots.name):  # an older store, to be read only
            return None
        row = connection.execute(query).first()
    if row is None:
        return None
    n_events, n_later, payload, digest, last_event = row
    return Snapshot(n_events, n_later, payload) if digest == digest_of(last_event) else None


def write_snapshot(
    database: Database, run_id: str, part: str, n_events: int, payload: bytes
) -> None:
    """Keep what a run's first ``n_events`` >= 1 events, all durable, amount to."""
    last = select(events.c.payload).where(events.c.run_id == run_id, events.c.n == n_events - 1)
    old = delete(snapshots).where(_columns.run_id == run_id, _columns.part == part)
    row = {"run_id": run_id, "part": part, "n_events": n_events, "payload": payload}
    with explaining(database.where), writing(database.engine) as connection, connection.begin():
        digest = digest_of(connection.scalars(last).one())
        connection.execute(old)
        connection.execute(insert(snapshots).values({**row, "digest": digest}))
