"""Runs programs in process groups of their own, and ends all of a group."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from bestarm_agent.domain.redaction import hidden_texts, is_secret_variable, masked
from bestarm_agent.errors import ConfigError

# Environment variables that every program gets: where it finds its files, and its language. None
# holds a key.
PASSED_ON = (
    *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"),
    *("VIRTUAL_ENV", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
_TAIL_BYTES = 8000
_CHUNK = 65_536
_LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


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
    program = shutil.which(name, path=variables.get("PATH"))
    if program is None:
        raise ConfigError(f"the program {name} is not in PATH; correct the option `argv`")
    return program


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


class _Protocol(SubprocessStreamProtocol):
    """Sets an event when the program ends, even if a child still holds its pipes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=_CHUNK, loop=loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class ChildProcess:
    """A program that was started in a session of its own, never through a shell."""

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        protocol: _Protocol,
        hidden: Mapping[str, str],
        log: Path | None,
    ) -> None:
        self._transport = transport  # owns the pipes
        self._protocol = protocol
        self._hidden = hidden
        self._log = log
        self._process = asyncio.subprocess.Process(transport, protocol, asyncio.get_running_loop())
        self._tail = bytearray()  # of its error output, without a log

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        folder: Path,  # where it runs
        variables: Mapping[str, str],  # its whole environment
        hidden: Mapping[str, str],  # texts to hide in messages, with their replacements
        log: Path | None = None,  # file for all its output; None: pipes, for ``run_to_end``
    ) -> ChildProcess:
        """Start a program; raises OSError or ValueError if it cannot be started."""
        loop = asyncio.get_running_loop()
        output = asyncio.subprocess.PIPE if log is None else os.open(log, _LOG_FLAGS, 0o644)
        # as asyncio.create_subprocess_exec does it, which keeps the transport to itself
        start = loop.subprocess_exec(
            lambda: _Protocol(loop),
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=dict(variables),
            start_new_session=True,
        )
        starting = asyncio.ensure_future(start)
        try:
            return cls(*await asyncio.shield(starting), hidden, log)
        except asyncio.CancelledError:
            # Not every event loop ends a program whose start is cancelled.
            with suppress(OSError, ValueError):
                await cls(*await starting, hidden, log).end()
            raise
        finally:
            if log is not None:
                os.close(output)

    @property
    def exit_code(self) -> int | None:
        """Its exit code, or -n if signal n ended it; None while it runs."""
        return self._process.returncode

    def kill(self) -> None:
        """Kill it with all its children; the group outlives its leader."""
        with suppress(ProcessLookupError, PermissionError):  # PermissionError: all have ended
            os.killpg(self._process.pid, signal.SIGKILL)

    async def wait(self) -> None:
        """Wait for its end; its children may go on."""
        await self._protocol.exited.wait()

    async def end(self) -> None:
        """Kill it with all its children, wait for its end, and close its pipes."""
        self.kill()
        await self.wait()
        self._transport.close()  # also if they were not read to their end

    def close_input(self) -> None:
        """Close its standard input, which may tell it to end."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def run_to_end(self, data: bytes, max_bytes: int) -> bytes | None:
        """Write ``data`` to it, wait for its end, and kill its children, which hold the pipes open.

        Returns its output; None if it was longer than ``max_bytes``.
        """
        # All three at once: a program that writes before it has read all its input would block on a
        # full pipe, and we on the other. Its end is waited for apart from the pipes, which a child
        # that it leaves behind holds open; killing the group then closes them, and the reading
        # tasks end.
        async with asyncio.TaskGroup() as group:
            group.create_task(self._feed(data))
            group.create_task(self._keep_tail())
            output = group.create_task(self._read_output(max_bytes))
            await self.wait()
            self.kill()
        return output.result()

    def tail(self, n_lines: int = 2) -> str:
        """Return the last lines of its log or error output; free of secrets."""
        tail = bytes(self._tail)
        if self._log is not None:
            with suppress(OSError), self._log.open("rb") as log:
                log.seek(max(0, self._log.stat().st_size - _TAIL_BYTES))
                tail = log.read()
        return shown_tail(tail, self._hidden, n_lines)

    async def _feed(self, data: bytes) -> None:
        stream = self._process.stdin
        assert stream is not None
        with suppress(BrokenPipeError, ConnectionResetError):  # it may ignore its input
            stream.write(data)
            await stream.drain()
            stream.close()
            await stream.wait_closed()

    async def _keep_tail(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(_CHUNK):
            self._tail += chunk
            # Read to the end although only the tail is kept: a full pipe would stop the program.
            del self._tail[:-_TAIL_BYTES]

    async def _read_output(self, max_bytes: int) -> bytes | None:
        assert self._process.stdout is not None
        content = bytearray()
        while chunk := await self._process.stdout.read(_CHUNK):
            content += chunk
            # The rest of the pipe needs no reading: with the group killed, nobody waits to write to
            # it.
            if len(content) > max_bytes:
                self.kill()
                return None
        return bytes(content)
