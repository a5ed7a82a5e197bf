"""Stores keep what survives a crash: the event log of every run and the reply cache."""

from bestarm_agent.store.store import RunInfo, RunLog, Store, open_store

__all__ = ["RunInfo", "RunLog", "Store", "open_store"]
