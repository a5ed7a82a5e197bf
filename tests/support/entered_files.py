"""Counts the files of the package that a piece of work enters, as a measure of how wide it is."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import bestarm_agent

_PACKAGE = f"{Path(bestarm_agent.__file__).parent}/"


@contextmanager
def entered_files() -> Iterator[set[str]]:
    """Collect the files of the package of which code runs in the block, in threads begun there too.

    Importing a module counts as well: do the same work once before, to count the work alone.

    Yields:
        Paths relative to the package; filled while the block runs.
    """
    found: set[str] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(_PACKAGE):
            found.add(name.removeprefix(_PACKAGE))

    before, before_in_threads = sys.getprofile(), threading.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)
        threading.setprofile(before_in_threads)
