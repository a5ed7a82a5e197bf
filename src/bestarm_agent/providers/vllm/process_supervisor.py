"""Runs a server for another process, and ends it when that process closes a pipe or dies.

    python process_supervisor.py GRACE PROGRAM [ARGUMENT ...]

The supervisor's stdin is a pipe whose other end the owner holds. When it closes, by the owner or
by the system after the owner's death, the server's whole process group is asked to end, and
killed after GRACE seconds. The supervisor's exit code is the server's.

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
    """Wait until the pipe ``owner`` ends, then end the server within ``grace`` seconds."""
    while os.read(owner, 1024):
        pass
    signal_group(server, signal.SIGTERM)
    try:
        server.wait(grace)
    except subprocess.TimeoutExpired:
        signal_group(server, signal.SIGKILL)


def signal_group(server: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the server and all its children; the group outlives its leader."""
    with suppress(ProcessLookupError, PermissionError):  # PermissionError: all are dead already
        os.killpg(server.pid, number)


def main() -> int:
    """Start the server, wait for its end, and kill the rest of its group."""
    grace, argv = float(sys.argv[1]), sys.argv[2:]
    server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
    watching = (sys.stdin.fileno(), server, grace)
    threading.Thread(target=watch, args=watching, daemon=True).start()
    code = server.wait()
    signal_group(server, signal.SIGKILL)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
