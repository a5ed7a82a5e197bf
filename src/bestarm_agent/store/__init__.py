"""Stores keep what survives a crash: the event log of every run and the reply cache."""

from typing import TYPE_CHECKING

from bestarm_agent.plugins.public_names import lazy_names

if TYPE_CHECKING:
    from bestarm_agent.store.store import RunInfo, RunLog, Store, open_store

__all__ = [
    "RunInfo",
    "RunLog",
    "Store",
    "open_store",
]

if not TYPE_CHECKING:  # else type checkers would accept every name
    __getattr__ = lazy_names(
        globals(), {"store.store": ("RunInfo", "RunLog", "Store", "open_store")}
    )
