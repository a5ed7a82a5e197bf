"""Counts the files of the package that a piece of work enters, and the functions that it calls."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import bestarm_agent

_PACKAGE = f"{Path(bestarm_agent.__file__).parent}/"


@contextmanager
def entered_files() -> Iterator[set[str]]:
    """Collect the files of the package of which code runs in the block, in its threads too.

    Importing a module counts as well: do the same work once before, to count the work alone.
    Called on an event loop, whose pool of threads is made anew: a thread begun before notes
    nothing, and whether a free one is found is a race.

    Yields:
        Paths relative to the package; filled while the block runs.
    """
    found: set[str] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(_PACKAGE):
            found.add(name.removeprefix(_PACKAGE))

    gc.disable()  # what it would finish here was left by earlier tests
    before, before_in_threads = sys.getprofile(), threading.getprofile()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)
        threading.setprofile(before_in_threads)
        gc.enable()


def python_calls(work: Callable[[], object]) -> int:
    """Count the calls of Python functions during some work."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
