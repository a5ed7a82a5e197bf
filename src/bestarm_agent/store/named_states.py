"""Named states in a database, such as what a router has learnt: one row per version."""

from __future__ import annotations

from sqlalchemy import delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from bestarm_agent.errors import StoreError
from bestarm_agent.store.database import Database, explaining, writing
from bestarm_agent.store.tables import states

KEPT_VERSIONS = 10  # of a state, the newest included, to go back to by hand

_columns = states.c


def read_state(database: Database, name: str) -> tuple[int, bytes] | None:
    """Return the newest version of a state, or None."""
    query = (
        select(_columns.version, _columns.payload)
        .where(_columns.name == name)
        .order_by(_columns.version.desc())
        .limit(1)
    )
    with explaining(database.where), database.engine.connect() as connection:
        row = connection.execute(query).first()
    return None if row is None else (int(row.version), bytes(row.payload))


def write_state(database: Database, name: str, data: bytes, after: int) -> int:
    """Store the version after ``after``, drop old ones; raise StoreError if it is there already."""
    version = after + 1
    row = {"name": name, "version": version, "payload": data}
    old = delete(states).where(_columns.name == name, _columns.version <= version - KEPT_VERSIONS)
    newest = select(func.max(_columns.version)).where(_columns.name == name)
    with explaining(database.where), writing(database.engine) as connection, connection.begin():
        present = connection.scalar(newest) or 0
        if present != after:
            raise overtaken(name, after, present)
        try:
            connection.execute(insert(states).values(row))
        except IntegrityError as error:  # PostgreSQL lets two writers get this far
            raise overtaken(name, after, version) from error
        connection.execute(old)
    return version


def overtaken(name: str, after: int, present: int) -> StoreError:
    """Return the error of a writer that did not start from the newest version."""
    return StoreError(
        f"the state {name!r} is at version {present}, not at {after} from which this one was "
        f"learnt: another process stored it meanwhile; open it again and repeat what was learnt"
    )
