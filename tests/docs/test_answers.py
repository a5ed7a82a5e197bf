"""What docs/answers.md shows runs as it stands, in a folder made by ``init``."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from bestarm_agent.config.starter import write_starter
from bestarm_agent.engine.results.pairs import PairOutcome
from tests.support.commands import invoke

DOCUMENT = Path(__file__).parents[2] / "docs" / "answers.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_the_example_and_the_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_starter(tmp_path / "study.yaml")
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks("python")[0], "answers.py", "exec"), {"__name__": "__main__"})
    assert "What is the capital of" in capsys.readouterr().out
    for line in blocks("bash")[0].splitlines():
        done = invoke(capsys, *line.partition("#")[0].split()[1:], folder=tmp_path)
        assert done.code == 0, done.err
        assert done.out


def test_every_field_is_named() -> None:
    assert [field.name for field in fields(PairOutcome) if f"`{field.name}`" not in TEXT] == []
