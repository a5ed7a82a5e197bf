"""The command line in processes of its own, and looking after processes that others started."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

OUTPUT = "output.txt"
_fork = multiprocessing.get_context("forkserver")  # its processes begin with all modules loaded
_PRELOADED = """
anthropic bestarm_agent.cli.main bestarm_agent.cli.progress bestarm_agent.cli.run
bestarm_agent.config.settings bestarm_agent.judges.text bestarm_agent.providers.replay
bestarm_agent.report.html_page bestarm_agent.store.database bestarm_agent.study jinja2 openai
"""
_fork.set_forkserver_preload(_PRELOADED.split())
_STEP_SECONDS = 0.03


def dies(pid: int) -> bool:
    """Return whether a process ends, or is a zombie that nobody has buried, within seconds.

    Killing is no more than asking the system for it, and nothing tells when it is done.
    """
    return becomes_true(lambda: not exists(pid) or is_in_state(pid, "Z"))


def is_in_state(pid: int, state: str) -> bool:
    """Return whether Linux gives a process this state: T if it is stopped, Z if it is a zombie."""
    try:
        return f"\nState:\t{state}" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def exists(pid: int) -> bool:
    """Return whether there is such a process, be it a zombie."""
    return Path(f"/proc/{pid}").exists()


@contextmanager
def speaking(
    function: Callable[..., None], *arguments: object
) -> Iterator[tuple[BaseProcess, Connection[Any, Any]]]:
    """Run a function of a module in a process of its own; kill it at the end.

    Its last argument is a pipe, whose other end is given.
    """
    heard, said = _fork.Pipe(duplex=False)
    process = _fork.Process(target=function, args=(*arguments, said))
    process.start()
    said.close()
    with heard:
        yield process, heard
        process.kill()
        process.join()


def start_command(
    folder: Path,
    arguments: Sequence[str | Path],
    environ: Mapping[str, str],
    before: Callable[[], None],
) -> BaseProcess:
    """Start the command line in a folder, where it writes its output to a file.

    Args:
        folder: of the process.
        arguments: of the command.
        environ: more variables.
        before: done first in the process; a function of a module.
    """
    process = _fork.Process(target=_command, args=(folder, arguments, environ, before))
    process.start()
    return process


def _command(
    folder: Path,
    arguments: Sequence[str | Path],
    environ: Mapping[str, str],
    before: Callable[[], None],
) -> None:
    from bestarm_agent.cli.main import main

    os.chdir(folder)
    os.environ.update(environ)
    with Path(OUTPUT).open("ab") as output:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(output.fileno(), stream.fileno())
    before()
    sys.argv[1:] = map(str, arguments)
    main()


def kill_once(process: BaseProcess, reached: Callable[[], bool]) -> None:
    """Kill a process as soon as its work has ``reached`` a point, if it has not ended before."""
    while process.is_alive() and not reached():
        threading.Event().wait(_STEP_SECONDS)
    process.kill()
    process.join()


def becomes_true(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Return whether a condition that other processes bring about holds within seconds."""
    for _ in range(int(seconds / _STEP_SECONDS)):
        if condition():
            return True
        threading.Event().wait(_STEP_SECONDS)
    return False
