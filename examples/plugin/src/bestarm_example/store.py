"""A store: runs in memory, shared by all who name the same place: ``shared://PLACE``."""

from __future__ import annotations

from typing import ClassVar

from bestarm_agent import StoreError
from bestarm_agent.store import MemoryStore


class SharedMemory(MemoryStore):
    """Runs that live as long as the process, by the name of a place."""

    _places: ClassVar[dict[str, SharedMemory]] = {}

    @classmethod
    async def connect(cls, where: str, /, *, create: bool) -> SharedMemory:
        """Return the store of a place; raises StoreError if it is not there and may not be made."""
        if where not in cls._places and not create:
            raise StoreError(f"there is no store {where} in this process; run a study first")
        return cls._places.setdefault(where, cls())
