"""Looking after processes that others started."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

_PATIENCE_SECONDS = 60.0
_STEP_SECONDS = 0.03


def dies(pid: int) -> bool:
    """Return whether a process ends, or is a zombie that nobody has buried, within seconds.

    Killing is no more than asking the system for it, and nothing tells when it is done.
    """
    for _ in range(int(_PATIENCE_SECONDS / _STEP_SECONDS)):
        try:
            if "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        threading.Event().wait(_STEP_SECONDS)
    return False


def exists(pid: int) -> bool:
    """Return whether there is such a process, be it a zombie."""
    return Path(f"/proc/{pid}").exists()


def kill_once(process: subprocess.Popen[bytes], reached: Callable[[], bool]) -> None:
    """Kill a process as soon as its work has ``reached`` a point, if it has not ended before."""
    while process.poll() is None and not reached():
        threading.Event().wait(_STEP_SECONDS)
    process.kill()
    process.communicate()


def becomes_true(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Return whether a condition that other processes bring about holds within seconds."""
    for _ in range(int(seconds / _STEP_SECONDS)):
        if condition():
            return True
        threading.Event().wait(_STEP_SECONDS)
    return False
