"""Tasks, an environment and agents for trials of the real Harbor without containers."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, ClassVar

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.models.agent.context import AgentContext

from bestarm_agent.stats.keyed_random import KeyedRandom

ENVIRONMENT = f"{__name__}:Folder"
AGENT = f"{__name__}:Planted"
# ROOT is the environment's folder, and empty in a container
TEST = 'mkdir -p "$ROOT/logs/verifier"; cd "$ROOT/app"\ncat answer > "$ROOT/logs/verifier/{file}"\n'
INSTRUCTION = "Task {number}: write 1 into the file `answer`."


def write_tasks(folder: Path, count: int, file: str = "reward.txt", answer: str = "1") -> Path:
    """Write tasks that are solved by 1 in a file; their oracle writes ``answer``."""
    for number in range(count):
        task = folder / f"task-{number:02}"
        for name, text in {
            "task.toml": 'version = "1.0"\n[agent]\ntimeout_sec = 60.0\n',
            "instruction.md": INSTRUCTION.format(number=number),
            "environment/Dockerfile": "FROM alpine:3\nWORKDIR /app\nRUN echo 0 > answer\n",
            "tests/test.sh": f"#!/bin/sh\n{TEST.format(file=file)}",
            "solution/solve.sh": f"#!/bin/sh\necho '{answer}' > \"$ROOT/app/answer\"\n",
        }.items():
            path = task / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return folder


class Folder(BaseEnvironment):  # type: ignore[misc] # of the extra, which may be missing
    """Runs commands in a temporary folder of this machine."""

    started: ClassVar[int] = 0

    def __init__(self, *args: Any, broken: int = 0, **kwargs: Any) -> None:  # noqa: ANN401
        self._broken = broken  # the first so many do not start
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        """Name the environment."""
        return "folder"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """Return that nothing is promised."""
        return EnvironmentCapabilities()

    def _validate_definition(self) -> None:
        """Accept every definition."""

    async def start(self, force_build: bool) -> None:
        """Make the folder."""
        Folder.started += 1
        if Folder.started <= self._broken:
            raise RuntimeError("no machine is free")
        self._root = Path(mkdtemp(prefix="stand-in-"))
        for name in ("app", "logs/agent", "logs/verifier", "logs/artifacts", "tests", "solution"):
            (self._root / name).mkdir(parents=True)
        (self._root / "app" / "answer").write_text("0\n")

    async def stop(self, delete: bool) -> None:
        """Remove it."""
        if hasattr(self, "_root"):
            shutil.rmtree(self._root, ignore_errors=True)

    def _inside(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file into it."""
        self._inside(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, self._inside(target_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy a folder into it."""
        shutil.copytree(source_dir, self._inside(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out of it."""
        shutil.copy(self._inside(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy a folder out of it."""
        shutil.copytree(self._inside(source_dir), target_dir, dirs_exist_ok=True)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command, with the paths of a container as those of the folder."""
        here = re.sub(r"(?<![\w.$/}])/(?=(app|logs|tests|solution)\b)", f"{self._root}/", command)
        process = await asyncio.create_subprocess_shell(
            here,
            cwd=self._inside(cwd or "/app"),
            env={**os.environ, **(self._merge_env(dict(env or {})) or {}), "ROOT": str(self._root)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), timeout_sec)
        return ExecResult(
            stdout=out.decode(), stderr=err.decode(), return_code=process.returncode or 0
        )


class Planted(BaseAgent):  # type: ignore[misc] # of the extra, which may be missing
    """Solves a task with the chance ``quality``; the same tasks each time."""

    def __init__(
        self,
        *args: Any,  # noqa: ANN401
        quality: float = 1.0,
        usd: float | None = None,
        seconds: float = 0.0,
        error: str | None = None,  # name of what it raises, having written its answer
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(*args, **kwargs)
        self._quality, self._usd, self._seconds, self._error = quality, usd, seconds, error

    @staticmethod
    def name() -> str:
        """Name the agent."""
        return "planted"

    def version(self) -> str:
        """Return its version."""
        return "1"

    async def setup(self, environment: BaseEnvironment) -> None:
        """Do nothing: it runs here."""

    async def run(
        self, instruction: str, environment: BaseEnvironment, context: AgentContext
    ) -> None:
        """Write an answer, and tell what it took."""
        key = re.search(r"Task (\d+)", instruction)
        draw = KeyedRandom(7, "harbor").at(int(key[1]) if key else 0).random()
        context.cost_usd = self._usd
        context.n_input_tokens, context.n_cache_tokens, context.n_output_tokens = 100, 40, 10
        await environment.exec(f"echo {int(draw < self._quality)} > /app/answer")
        await asyncio.sleep(self._seconds)
        if self._error:
            raise type(self._error, (Exception,), {})("it went wrong")
