"""Stores keep what survives a crash: the event log of every run and the reply cache."""

from typing import TYPE_CHECKING

from bestarm_agent.plugins.public_names import lazy_names

if TYPE_CHECKING:
    from bestarm_agent.store.base import RunInfo, RunLog, RunStore
    from bestarm_agent.store.memory_store import MemoryStore
    from bestarm_agent.store.registry import open_store
    from bestarm_agent.store.sql_store import SqlStore

__all__ = [
    "MemoryStore",
    "RunInfo",
    "RunLog",
    "RunStore",
    "SqlStore",
    "open_store",
]

if not TYPE_CHECKING:  # else type checkers would accept every name
    __getattr__ = lazy_names(
        globals(),
        {
            "store.base": ("RunInfo", "RunLog", "RunStore"),
            "store.memory_store": ("MemoryStore",),
            "store.registry": ("open_store",),
            "store.sql_store": ("SqlStore",),
        },
    )
