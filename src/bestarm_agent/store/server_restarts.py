"""Waiting for a database server that restarts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import DBAPIError

from bestarm_agent.errors import StoreError

PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.25

_T = TypeVar("_T")


def patiently(work: Callable[[], _T], renew: Callable[[], None]) -> _T:
    """Do some work; while the server is away, wait, renew what was lost and do it again.

    A DBAPIError of another kind, or the last error if the server stays away, is raised.

    Args:
        work: may be done twice, if the server went away before it answered.
        renew: makes new connections and locks; raises while the server is away (DBAPIError) or
            still keeps the locks of the lost connection (StoreError).
    """
    lost: Exception | None = None
    for _ in range(1 + int(PATIENCE_SECONDS / _PAUSE_SECONDS)):
        try:
            if lost is not None:
                time.sleep(_PAUSE_SECONDS)
                renew()
        except StoreError as error:
            lost = error
            continue
        except DBAPIError as error:
            lost = _as_lost(error)
            continue
        try:
            return work()
        except DBAPIError as error:
            lost = _as_lost(error)
    assert lost is not None
    raise lost


def _as_lost(error: DBAPIError) -> DBAPIError:
    """Return an error that says that the server is away; raise any other."""
    state = getattr(error.orig, "sqlstate", "")  # errors of SQLite have none
    # no state: the connection broke; class 08: connection errors; 57P: shutting down, starting up
    if state is None or state.startswith(("08", "57P")):
        return error
    raise error
