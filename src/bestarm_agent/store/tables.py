"""The tables of a store, and how older layouts become the present one."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import (
    Column,
    Connection,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    func,
    insert,
    inspect,
    select,
    update,
)

from bestarm_agent.errors import StoreError, StoreVersionError

tables = MetaData()

meta = Table(
    "meta",
    tables,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
runs = Table(
    "runs",
    tables,
    Column("ordinal", Integer, primary_key=True, autoincrement=True),  # in order of beginning
    Column("id", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("at", Text, nullable=False),
    # what the list of runs shows; written with the events it sums up, in one transaction
    Column("n_events", Integer, nullable=False),
    Column("n_asked", Integer, nullable=False),
    Column("n_told", Integer, nullable=False),
    Column("stopped", Text),
)
events = Table(
    "events",
    tables,
    Column("run_id", Text, primary_key=True),
    Column("n", Integer, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("seq", Integer),  # of Asked and Told
    Column("payload", Text, nullable=False),
    sqlite_with_rowid=False,
)
replies = Table(
    "replies",
    tables,
    Column("key", Text, primary_key=True),
    Column("payload", Text, nullable=False),
)
states = Table(
    "states",
    tables,
    Column("name", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("payload", LargeBinary, nullable=False),
)
snapshots = Table(
    "snapshots",
    tables,
    Column("run_id", Text, primary_key=True),
    Column("part", Text, primary_key=True),
    Column("n_events", Integer, nullable=False),  # that it sums up
    Column("digest", Text, nullable=False),  # of the last of them
    Column("payload", LargeBinary, nullable=False),
)

_VERSION_KEY = "bestarm-agent schema version"
_LOCK_KEY = 0x62657374_61726D00  # "bestarm": one process migrates a PostgreSQL store at a time


def _create_tables(connection: Connection) -> None:
    """Create version 1: four tables as above. Freeze a copy here when a version changes one."""
    tables.create_all(connection, tables=[meta, runs, events, replies], checkfirst=False)
    connection.execute(insert(meta).values(key=_VERSION_KEY, value="0"))


def _create_states(connection: Connection) -> None:
    """Add what routers have learnt: version 2."""
    states.create(connection)


def _create_snapshots(connection: Connection) -> None:
    """Add snapshots: version 3. Its events leave out what follows from their other fields."""
    snapshots.create(connection)


Migration = Callable[[Connection], None]

# Steps from version i to version i + 1, at index i; version 0 is an empty database.
MIGRATIONS: tuple[Migration, ...] = (_create_tables, _create_states, _create_snapshots)


def migrate(connection: Connection, where: str) -> None:
    """Bring a store to the present version, within a transaction that no other writer shares.

    Raises:
        StoreVersionError: a newer version of the package wrote it; nothing is changed.
        StoreError: it holds another program's tables; nothing is changed.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK_KEY)))
    found = version(connection, where)
    check_version(found, where)
    for step in MIGRATIONS[found:]:
        step(connection)
    if found < len(MIGRATIONS):
        present = {"value": str(len(MIGRATIONS))}
        connection.execute(update(meta).where(meta.c.key == _VERSION_KEY).values(present))


def check_version(found: int, where: str) -> None:
    """Check that this package knows a schema version; raises StoreVersionError."""
    if found > len(MIGRATIONS):
        raise StoreVersionError(
            f"{where} has schema version {found}, this version of bestarm-agent knows "
            f"{len(MIGRATIONS)} at most; a newer version wrote it: pip install --upgrade "
            f"bestarm-agent, or give another `output_dir`"
        )


def version(connection: Connection, where: str) -> int:
    """Return the schema version, 0 for an empty database; raise StoreError for foreign tables."""
    present = set(inspect(connection).get_table_names())
    is_shared = connection.dialect.name == "postgresql"  # others may have tables there too
    if not (present & set(tables.tables) if is_shared else present):
        return 0
    found = None
    if {column.name for column in meta.columns} <= _columns(connection, present):
        found = connection.scalar(select(meta.c.value).where(meta.c.key == _VERSION_KEY))
    if found is None:
        raise StoreError(
            f"{where} holds tables of another program ({', '.join(sorted(present)[:4])}); "
            f"give bestarm-agent a store of its own"
        )
    return int(found)


def _columns(connection: Connection, present: set[str]) -> set[str]:
    if meta.name not in present:
        return set()
    return {column["name"] for column in inspect(connection).get_columns(meta.name)}
