"""The examples of docs/python.md run as they stand, in a folder made by ``init``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bestarm_agent.config.starter import write_starter
from tests.support.commands import invoke

DOCUMENT = Path(__file__).parents[2] / "docs" / "python.md"
BLOCK = re.compile(r"^```python\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = dict(BLOCK.findall(DOCUMENT.read_text(encoding="utf-8")))


@pytest.fixture
def lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> list[str]:
    """What an example prints."""
    write_starter(tmp_path / "study.yaml")
    monkeypatch.chdir(tmp_path)
    exec(compile(EXAMPLES[name], name, "exec"), {"__name__": "__main__"})
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("name", ["loop.py"])
def test_a_candidate_that_joins_late_wins(lines: list[str]) -> None:
    assert lines[:2] == ["first: quick", "then: careful"]
    assert lines[2].startswith("run 2")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["verdict.py"])
def test_the_verdict_is_read_off(lines: list[str], tmp_path: Path) -> None:
    assert re.fullmatch(r"careful 0\.\d\d \[0\.\d\d, [01]\.\d\d\]", lines[0])
    assert re.fullmatch(r"after \d+ of 72 pairs: (budget|separated|exhausted)", lines[1])
    assert len(list((tmp_path / "runs").glob("*.html"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["again.py"])
def test_a_run_is_stopped_and_goes_on(lines: list[str]) -> None:
    assert re.fullmatch(r"asked so far: \d+", lines[0])
    assert lines[1] == "interrupted"
    assert lines[2] in ("budget", "separated")


def test_a_function_proposes_the_prompt_that_wins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_starter(tmp_path / "study.yaml")
    text = DOCUMENT.read_text(encoding="utf-8")
    for name in ("model.py", "proposer.py"):
        (tmp_path / name).write_text(EXAMPLES[name], encoding="utf-8")
    [study] = re.findall(r"^```yaml\n# prompts.yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "prompts.yaml").write_text(study, encoding="utf-8")
    [line] = re.findall(r"^bestarm-agent (optimize prompts.*)$", text, re.MULTILINE)
    done = invoke(capsys, *line.split(), "--quiet", "--json", folder=tmp_path)
    assert done.code == 0, done.err
    winner = json.loads(done.out)["winner"]
    assert winner["label"] in ("round1-1", "round1-2")
    assert "its name only" in (tmp_path / "best.jinja").read_text(encoding="utf-8")


def test_every_example_is_run() -> None:
    assert set(EXAMPLES) == {"loop.py", "verdict.py", "again.py", "model.py", "proposer.py"}


def test_links_lead_somewhere() -> None:
    for name in re.findall(r"\]\(([^)#]+)", DOCUMENT.read_text(encoding="utf-8")):
        assert (DOCUMENT.parent / name).is_file(), name
