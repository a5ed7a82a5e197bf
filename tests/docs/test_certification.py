"""What docs/certification.md shows works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bestarm_agent.cli.main import app

TEXT = (Path(__file__).parents[2] / "docs" / "certification.md").read_text(encoding="utf-8")


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    [example] = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    exec(compile(example, "certification.md", "exec"), {})
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith("22 [")
    assert last.startswith("1 ")


def test_every_flag_exists() -> None:
    command = app.commands["certify"]
    known = {option for parameter in command.params for option in parameter.opts}
    named = set(re.findall(r"(--[a-z][a-z-]+)", TEXT))
    assert named <= known
    assert {"--candidates", "--judge", "--labels", "--set"} <= named
