"""What the README shows works as it stands there."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
import yaml

from bestarm_agent.cli.main import app
from bestarm_agent.config.load import study_from

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.slow
def test_the_prompt_engineering_loop_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    shutil.copytree(ROOT / "examples" / "arithmetic", tmp_path / "examples" / "arithmetic")
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks("python")[0], "README.md", "exec"), {"__name__": "__main__"})
    before, arrow, after = capsys.readouterr().out.split()
    assert arrow == "->"
    assert before.startswith("sum-")
    assert after.startswith(("sum-", "terse"))


def test_the_selectors_alone_run(capsys: pytest.CaptureFixture[str]) -> None:
    def evaluate(candidate: int, example: int) -> float:
        return float(candidate > example % 3)

    exec(compile(blocks("python")[1], "README.md", "exec"), {"evaluate": evaluate})
    assert "Verdict(best=" in capsys.readouterr().out


def test_the_study_is_a_valid_one() -> None:
    [text] = blocks("yaml")
    assert study_from(yaml.safe_load(text)).config.name == "my-study"


def test_every_command_that_is_shown_exists() -> None:
    shown = set(re.findall(r"^bestarm-agent (\w+)", "\n".join(blocks("bash")), flags=re.MULTILINE))
    assert shown <= app.commands.keys()


def test_files_that_are_linked_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    assert [link for link in links if not os.path.exists(ROOT / link)] == []
