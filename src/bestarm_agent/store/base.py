"""The seam between a run and what survives it: an event log and a reply cache."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from bestarm_agent.domain.events import Event
from bestarm_agent.domain.exchange import Reply


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One line of the list of runs.

    Attributes:
        id: the run's id.
        name: what the user called the study.
        at: when it began, ISO 8601 in UTC.
        n_asked: pairs asked.
        n_told: pairs told.
        stopped: reason of the last stop, or None while running (or after a crash).
    """

    id: str
    name: str
    at: str
    n_asked: int
    n_told: int
    stopped: str | None


class RunLog(Protocol):
    """One run's event log; one process at a time writes it.

    Everything appended is durable in the order of appending: if an event survives a crash, so do
    all before it. What was appended and not flushed may be lost in a crash, the latest first.
    Texts in configurations and sampling parameters whose name ends in "api_key", "token",
    "secret", "password" or "authorization", or in "_KEY", are stored as "[redacted]", but for
    "${VARIABLE}".
    """

    run_id: str

    def append(self, event: Event) -> None:
        """Queue an event for the next group commit; returns at once.

        Raises:
            ValueError: JSON cannot hold it, its ``base`` is an absolute path, or the first event
                is not ``Started`` under the run's name.
            StoreError: an earlier write failed, or the log is closed.
        """
        ...

    async def flush(self) -> None:
        """Wait until everything queued so far is durable.

        Raises:
            StoreError: it could not be written; nothing after it will be.
        """
        ...

    async def events(self) -> Sequence[Event]:
        """All durable events, oldest first."""
        ...

    async def close(self) -> None:
        """Flush, and let others open the run.

        Raises:
            StoreError: something could not be written.
        """
        ...


class RunStore(Protocol):
    """Runs, the reply cache that they share, and named states with versions.

    A run is referred to by its id, its name (the latest run of that name), a unique prefix of its
    id, or "latest". Reading works while other processes write.
    """

    async def create(self, name: str) -> RunLog:
        """Begin a run with a fresh id; it is listed once its ``Started`` event is durable."""
        ...

    async def open(self, run: str) -> RunLog:
        """Open a run for appending.

        Raises:
            RunNotFoundError: no such run, or several; the message lists what there is.
            StoreError: another live process is writing it.
        """
        ...

    async def runs(self) -> Sequence[RunInfo]:
        """All runs, oldest first."""
        ...

    async def find(self, run: str) -> RunInfo:
        """Look a run up, to read it.

        Raises:
            RunNotFoundError: no such run, or several; the message lists what there is.
        """
        ...

    async def events_of(self, run: str, *, since: int = 0) -> Sequence[Event]:
        """A run's durable events from number ``since`` >= 0 on, oldest first.

        Raises:
            RunNotFoundError: no such run, or several; the message lists what there is.
            StoreError: the log is damaged.
        """
        ...

    async def get_reply(self, key: str) -> Reply | None:
        """Look a reply up."""
        ...

    async def put_reply(self, key: str, reply: Reply) -> None:
        """Store a reply; it is durable on return. A second reply under a key is ignored."""
        ...

    def replies(self) -> AsyncIterator[tuple[str, Reply]]:
        """All cached replies."""
        ...

    async def get_state(self, name: str) -> tuple[int, bytes] | None:
        """Look a named state up: its newest version's number and content, or None."""
        ...

    async def put_state(self, name: str, data: bytes, *, after: int) -> int:
        """Store a new version of a named state; it is durable on return.

        Args:
            name: of the state.
            data: its content.
            after: the version that it was made from; 0 for the first.

        Returns:
            The number of the new version, ``after`` + 1.

        Raises:
            StoreError: ``after`` is not the newest version, for another process stored one.
        """
        ...

    async def close(self) -> None:
        """Write what is queued and let go of the store.

        Raises:
            StoreError: something could not be written, now or before.
        """
        ...
