"""Stores keep what survives a crash: the event log of every run and the reply cache."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bestarm_agent.store.store import RunInfo, RunLog, Store, open_store

__all__ = [
    "RunInfo",
    "RunLog",
    "Store",
    "open_store",
]

if not TYPE_CHECKING:  # else type checkers would accept every name

    def __getattr__(name: str) -> object:
        """Import the module, and SQLAlchemy behind it, when a name is first used (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from bestarm_agent.store import store

        return getattr(store, name)
