"""Runs a command in this process, as the shell would."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import chdir, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from bestarm_agent.cli.main import main


@dataclass(frozen=True, slots=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever it wrote
        """What was written to standard output, read as JSON."""
        return json.loads(self.out)

    @property
    def told(self) -> str:
        """What was written to standard error, in one line."""
        return " ".join(self.err.split())


def invoke(
    capsys: pytest.CaptureFixture[str], *arguments: str | Path, folder: Path | None = None
) -> Done:
    """Run ``bestarm-agent`` with some arguments, in a folder."""
    before = sys.argv
    sys.argv = ["bestarm-agent", *map(str, arguments)]
    try:
        with nullcontext() if folder is None else chdir(folder):
            main()
        code = 0
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 0 if exit_.code is None else 1
    finally:
        sys.argv = before
    captured = capsys.readouterr()
    return Done(code, captured.out, captured.err)


Command: TypeAlias = Callable[..., Done]


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run ``bestarm-agent`` with some arguments, in the folder of the test."""
    return lambda *arguments: invoke(capsys, *arguments, folder=tmp_path)
