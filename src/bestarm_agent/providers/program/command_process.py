"""Runs a program in a process group of its own, and ends all of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bestarm_agent.domain.redaction import hidden_texts, is_secret_variable, masked
from bestarm_agent.errors import ConfigError

# What a program needs to find itself, its language and its files; keys are not among them.
PASSED_ON = (
    *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"),
    *("VIRTUAL_ENV", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
_TAIL_BYTES = 2000
_CHUNK = 65_536


def environment(passed: Sequence[str], given: Mapping[str, str]) -> dict[str, str]:
    """Return a program's variables: the few that all need, those named, and those given."""
    names = (*PASSED_ON, *passed)
    return {**{name: os.environ[name] for name in names if name in os.environ}, **given}


def find_program(name: str, folder: Path, variables: Mapping[str, str]) -> str:
    """Find a path relative to ``folder``, or a name in ``PATH``; raises ConfigError."""
    if "/" in name:
        path = folder / name
        if path.is_file() and os.access(path, os.X_OK):
            return str(path.absolute())  # it runs in another folder than ours
        reason = "is not executable; run chmod +x" if path.is_file() else "does not exist"
        raise ConfigError(f"the program {name} {reason}; correct the option `argv`")
    found = shutil.which(name, path=variables.get("PATH"))
    if found is None:
        raise ConfigError(f"the program {name} is not in PATH; correct the option `argv`")
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Child:
    """A program that runs in a process group of its own."""

    # the group's leader; its ``wait`` also waits for the pipes, ``exited`` does not
    process: asyncio.subprocess.Process
    exited: asyncio.Event  # set at the leader's end
    transport: asyncio.SubprocessTransport  # owns the pipes
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader

    def kill(self) -> None:
        """Kill it with all its children; the group outlives its leader."""
        with suppress(ProcessLookupError, PermissionError):  # PermissionError: all have ended
            os.killpg(self.process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Kill it with all its children, wait for its end, and close its pipes."""
        self.kill()
        await self.exited.wait()
        self.transport.close()  # also if they were not read to their end


class _Protocol(SubprocessStreamProtocol):
    """Sets an event when the program ends, even if a child still holds its pipes."""

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=limit, loop=loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


async def start(
    argv: Sequence[str], folder: Path, variables: Mapping[str, str], *, max_line: int = _CHUNK
) -> Child:
    """Start a program in a session of its own, with pipes; never through a shell.

    Up to ``max_line`` bytes of output may wait to be read. Raises OSError if it cannot be started.
    """
    loop = asyncio.get_running_loop()
    # as asyncio.create_subprocess_exec does it, but for the transport, which that keeps to itself
    transport, protocol = await loop.subprocess_exec(
        lambda: _Protocol(limit=max_line, loop=loop),
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env=dict(variables),
        start_new_session=True,
    )
    process = asyncio.subprocess.Process(transport, protocol, loop)
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise OSError("the program was started without pipes")
    return Child(process, protocol.exited, transport, process.stdin, process.stdout, process.stderr)


async def run_to_end(child: Child, data: bytes, max_bytes: int) -> tuple[bytes | None, bytes]:
    """Write to a program, and wait for its end; then kill its children, which hold the pipes open.

    Returns its output, None if longer than ``max_bytes``, and the end of its error output.
    """
    tail = bytearray()
    async with asyncio.TaskGroup() as group:
        group.create_task(_feed(child.stdin, data))
        group.create_task(read_tail(child.stderr, tail))
        output = group.create_task(_read(child, max_bytes))
        await child.exited.wait()
        child.kill()
    return output.result(), bytes(tail)


async def _feed(stream: asyncio.StreamWriter, data: bytes) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):  # it may ignore its input
        stream.write(data)
        await stream.drain()
        stream.close()
        await stream.wait_closed()


async def read_tail(stream: asyncio.StreamReader, tail: bytearray) -> None:
    """Read a stream to its end, and keep its last bytes in ``tail``."""
    while chunk := await stream.read(_CHUNK):
        tail += chunk
        del tail[:-_TAIL_BYTES]


async def _read(child: Child, max_bytes: int) -> bytes | None:
    content = bytearray()
    while chunk := await child.stdout.read(_CHUNK):
        content += chunk
        if len(content) > max_bytes:
            child.kill()
            return None
    return bytes(content)


def hidden_from(passed: Sequence[str], given: Mapping[str, str], folder: Path) -> Mapping[str, str]:
    """Map the values of variables passed on, and of secret ones given, to replacements."""
    secrets = [os.environ.get(name, "") for name in passed]
    secrets += [text for name, text in given.items() if is_secret_variable(name)]
    return hidden_texts(secrets, folder)


def shown_tail(tail: bytes, hidden: Mapping[str, str], n_lines: int = 2) -> str:
    """Return the last lines of a program's output without texts that look like secrets."""
    text = masked(tail.decode("utf-8", errors="replace"), hidden)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(line[:300] for line in lines[-n_lines:])
