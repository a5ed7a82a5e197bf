"""Runs a server for another process, and ends it when that process closes a pipe or dies.

    python process_supervisor.py GRACE PROGRAM [ARGUMENT ...]

The supervisor's stdin is a pipe whose other end the owner holds. When it closes, by the owner or
by the system after the owner's death, the process group of supervisor and server is asked to end,
and killed after GRACE seconds. The supervisor's exit code is the server's. Where the supervisor is
killed, the system kills the server (Linux), and the owner kills what is left of the group.

This file is run by its path and imports nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def watch(owner: int, server: subprocess.Popen[bytes], grace: float) -> None:
    """Wait until the pipe ``owner`` ends, then end the group within ``grace`` seconds."""
    # The owner writes nothing: the read returns when the other end of the pipe is closed, which the
    # system does for a process that has died in whatever way.
    while os.read(owner, 1024):
        pass
    os.killpg(0, signal.SIGTERM)
    try:
        server.wait(grace)
    finally:
        os.killpg(0, signal.SIGKILL)


def die_with_parent() -> None:
    """Let the system kill this process when its parent dies; do nothing where it cannot."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> int:
    """Start the server, wait for its end, and ask the rest of its group to end."""
    grace, argv = float(sys.argv[1]), sys.argv[2:]
    # a handler, unlike SIG_IGN, is not inherited by the server
    signal.signal(signal.SIGTERM, lambda *_: None)
    # The server must not inherit our input: it would hold the pipe, and might read from it.
    server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
    watching = (sys.stdin.fileno(), server, grace)
    threading.Thread(target=watch, args=watching, daemon=True).start()
    code = server.wait()
    os.killpg(0, signal.SIGTERM)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
