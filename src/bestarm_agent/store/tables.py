"""The tables of a store, and the version of their layout."""

from __future__ import annotations

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
_VERSION_KEY = "bestarm-agent schema version"
_LOCK_KEY = 0x62657374_61726D00  # "bestarm": one process creates the tables of a PostgreSQL store


SCHEMA = 4
"""Version of the layout above; a store of another one is refused."""


def prepare(connection: Connection, where: str) -> None:
    """Create the tables of an empty store, within a transaction that no other writer shares.

    Raises:
        StoreVersionError: a version of the package with another layout wrote it.
        StoreError: it holds another program's tables.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK_KEY)))
    if check_layout(connection, where):
        return
    tables.create_all(connection, checkfirst=False)
    connection.execute(insert(meta).values(key=_VERSION_KEY, value=str(SCHEMA)))


def check_layout(connection: Connection, where: str) -> bool:
    """Return whether the tables are there; raises as ``prepare`` does."""
    present = set(inspect(connection).get_table_names())
    is_shared = connection.dialect.name == "postgresql"  # others may have tables there too
    if not (present & set(tables.tables) if is_shared else present):
        return False
    found = None
    if {column.name for column in meta.columns} <= _columns(connection, present):
        found = connection.scalar(select(meta.c.value).where(meta.c.key == _VERSION_KEY))
    if found is None:
        raise StoreError(
            f"{where} holds tables of another program ({', '.join(sorted(present)[:4])}); "
            f"give bestarm-agent a store of its own"
        )
    if found != str(SCHEMA):
        older = found.isdecimal() and int(found) < SCHEMA
        way_out = (
            "" if older else "a newer version wrote it: pip install --upgrade bestarm-agent, or "
        )
        raise StoreVersionError(
            f"{where} has schema version {found}, this version of bestarm-agent knows {SCHEMA} "
            f"alone; {way_out}give another `output_dir`"
        )
    return True


def _columns(connection: Connection, present: set[str]) -> set[str]:
    if meta.name not in present:
        return set()
    return {column["name"] for column in inspect(connection).get_columns(meta.name)}
