"""The list of a store's runs: ids, names and counts, known without reading the logs."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bestarm_agent.domain.events import Asked, Event, Resumed, Started, Stopped, Told
from bestarm_agent.errors import RunNotFoundError
from bestarm_agent.store.base import RunInfo

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # without i, l, o, u: easy to read out
CONFIRMS = ".confirm"  # ends the name of a run that confirms the winner of another
_LISTED = 8


def utc_now() -> datetime:
    """Return the time in UTC."""
    return datetime.now(UTC)


def new_run_id(now: datetime) -> str:
    """Make a unique id that sorts by time (in UTC): "20261121-093015-k3f9"."""
    suffix = "".join(secrets.choice(_ALPHABET) for _ in range(4))
    return f"{now:%Y%m%d-%H%M%S}-{suffix}"


@dataclass(slots=True)
class Progress:
    """A ``RunInfo`` that is updated event by event, with the number of events."""

    id: str
    name: str
    at: str = ""
    n_events: int = 0
    n_asked: int = 0
    n_told: int = 0
    stopped: str | None = None

    def note(self, event: Event) -> None:
        """Count the next event; raise ValueError unless the first, and no other, is ``Started``."""
        if self.n_events == 0 or isinstance(event, Started):
            self._begin(event)
        elif isinstance(event, Asked):
            self.n_asked += 1
        elif isinstance(event, Told):
            self.n_told += 1
        elif isinstance(event, Stopped):
            self.stopped = event.reason
        elif isinstance(event, Resumed):
            self.stopped = None
        self.n_events += 1

    def info(self) -> RunInfo:
        """Return the line that callers see."""
        return RunInfo(self.id, self.name, self.at, self.n_asked, self.n_told, self.stopped)

    def counts(self) -> dict[str, object]:
        """Return the columns that events change, with the id as ``run``."""
        return {
            "run": self.id,
            "n_events": self.n_events,
            "n_asked": self.n_asked,
            "n_told": self.n_told,
            "stopped": self.stopped,
        }

    def _begin(self, event: Event) -> None:
        if self.n_events > 0 or not isinstance(event, Started):
            raise ValueError(
                f"a run's first event, and no other, is Started; event {self.n_events} of run "
                f"{self.id} would be {type(event).__name__}"
            )
        if event.name != self.name:
            raise ValueError(
                f"run {self.id} was created as {self.name!r}, Started says {event.name!r}"
            )
        self.at = event.at


def resolve(run: str, runs: Sequence[RunInfo]) -> RunInfo:
    """Find a run among ``runs`` (oldest first) by "latest", id, name (latest run) or unique prefix.

    Raises:
        RunNotFoundError: no such run, or several; the message lists the runs that exist.
    """
    if not runs:
        raise RunNotFoundError(
            f"there is no run {run!r}: the store is empty; begin one with `bestarm-agent select`"
        )
    if run == "latest":
        return next((one for one in reversed(runs) if not one.name.endswith(CONFIRMS)), runs[-1])
    exact = [info for info in runs if info.id == run] or [i for i in runs if i.name == run]
    if exact:
        return exact[-1]
    matches = [info for info in runs if info.id.startswith(run)] if run else []
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise RunNotFoundError(f"{run!r} could be any of {_listing(matches)}; write more of the id")
    raise RunNotFoundError(f'there is no run {run!r}; there is {_listing(runs)}, or "latest"')


def _listing(runs: Sequence[RunInfo]) -> str:
    shown = ", ".join(f"{info.id} ({info.name})" for info in runs[: -_LISTED - 1 : -1])
    hidden = len(runs) - _LISTED
    return f"{shown} and {hidden} older" if hidden > 0 else shown
