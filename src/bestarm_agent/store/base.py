"""Interfaces of a store: the event logs of runs, the reply cache and named states."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from bestarm_agent.domain.events import Event
from bestarm_agent.domain.request_reply import Reply


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One line of the list of runs."""

    id: str
    name: str  # of the study
    at: str  # when it began, ISO 8601 in UTC
    n_asked: int
    n_told: int
    stopped: str | None  # reason of the last stop; None while running, or after a crash


class RunLog(Protocol):
    """One run's event log, written by one process at a time.

    Events become durable in the order of appending, at the latest when flushed: if one survives a
    crash, so do all before it.
    Texts in configurations and sampling parameters whose name ends in "api_key", "token",
    "secret", "password" or "authorization", or in "_KEY", are stored as "[redacted]", except for
    "${VARIABLE}".
    """

    run_id: str

    def append(self, event: Event) -> None:
        """Queue an event for the next group commit and return at once.

        Raises:
            ValueError: JSON cannot hold it, its ``base`` is an absolute path, or the first event
                is not ``Started`` under the run's name.
            StoreError: an earlier write failed, or the log is closed.
        """

    async def flush(self) -> None:
        """Wait until everything queued so far is durable.

        Raises:
            StoreError: it could not be written; nothing after it will be.
        """

    async def events(self) -> Sequence[Event]:
        """Return all durable events, oldest first."""

    async def close(self) -> None:
        """Flush, and let others open the run; raise StoreError if something was not written."""


class RunStore(Protocol):
    """Runs, the reply cache that they share, and named states with versions.

    A run is referred to by its id, its name (the latest run of that name), a unique prefix of its
    id, or "latest". Reading works while other processes write.
    """

    async def create(self, name: str) -> RunLog:
        """Begin a run with a fresh id; it is listed once its ``Started`` event is durable."""

    async def open(self, run: str) -> RunLog:
        """Open a run for appending.

        Raises:
            RunNotFoundError: no such run, or several; the message lists the runs that exist.
            StoreError: another live process is writing it.
        """

    async def runs(self) -> Sequence[RunInfo]:
        """Return all runs, oldest first."""

    async def find(self, run: str) -> RunInfo:
        """Find a run, to read it; raises RunNotFoundError as ``open`` does."""

    async def events_of(self, run: str, *, since: int = 0) -> Sequence[Event]:
        """Return a run's durable events from number ``since`` >= 0 on, oldest first.

        Raises:
            RunNotFoundError: as ``open`` does.
            StoreError: the log is damaged.
        """

    def pages_of(self, run: str, *, since: int = 0) -> AsyncIterator[Sequence[Event]]:
        """Iterate over the same events, some at a time; raises as ``events_of`` does."""

    async def outline_of(self, run: str) -> Sequence[Event]:
        """Return the events that are not about a pair, oldest first; raises as ``events_of``."""

    async def get_reply(self, key: str) -> Reply | None:
        """Return the stored reply, or None."""

    async def put_reply(self, key: str, reply: Reply) -> None:
        """Store a reply durably, even if the caller is cancelled; a second one is ignored."""

    def replies(self) -> AsyncIterator[tuple[str, Reply]]:
        """Iterate over all stored replies."""

    async def claim_reply(self, key: str) -> bool:
        """Claim the right to buy the reply of a key; return at once, False if it is held.

        A claim keeps every other holder out, in this process and in others, until it is released,
        the store is closed or the process ends, however it ends. It says nothing about whether the
        reply is stored: look again after a successful claim.
        """

    async def release_reply(self, key: str) -> None:
        """Give a claim back, if it is held."""

    async def get_state(self, name: str) -> tuple[int, bytes] | None:
        """Return the number and the content of a named state's newest version, or None."""

    async def put_state(self, name: str, data: bytes, *, after: int) -> int:
        """Store a new version of a named state durably and return its number, ``after`` + 1.

        Args:
            name: of the state.
            data: its content.
            after: the version that it was made from; 0 for the first.

        Raises:
            StoreError: ``after`` is not the newest version: another process stored one.
        """

    async def close(self) -> None:
        """Write what is queued and close; raise StoreError if something was not written."""
