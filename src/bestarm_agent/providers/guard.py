"""Runs a server for another process, and ends it when that process wants or dies.

    python guard.py GRACE PROGRAM [ARGUMENT ...]

The guard's stdin is a pipe whose other end the owner holds. When it closes, whether because the
owner closed it or because the system did after the owner's death, the server's whole process group
is asked to end, and killed after GRACE seconds. The guard's exit code is the server's.

This file is run by its path and imports nothing but the standard library.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress


def watch(owner: int, server: subprocess.Popen[bytes], grace: float) -> None:
    """Wait until the owner is gone, then end the server.

    Args:
        owner: file descriptor that ends with the owner.
        server: the server, leader of its process group.
        grace: seconds between asking and killing.
    """
    while os.read(owner, 1024):
        pass
    signal_group(server, signal.SIGTERM)
    try:
        server.wait(grace)
    except subprocess.TimeoutExpired:
        signal_group(server, signal.SIGKILL)


def signal_group(server: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the server and all that it started; the group outlives its leader."""
    with suppress(ProcessLookupError, PermissionError):  # PermissionError: all are dead already
        os.killpg(server.pid, number)


def main() -> int:
    """Start the server, wait for its end, and leave nothing of its group behind."""
    grace, argv = float(sys.argv[1]), sys.argv[2:]
    server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
    watching = (sys.stdin.fileno(), server, grace)
    threading.Thread(target=watch, args=watching, daemon=True).start()
    code = server.wait()
    signal_group(server, signal.SIGKILL)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
