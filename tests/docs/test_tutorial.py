"""The tutorial runs as it stands, and its server, studies and winners are those of the page."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.commands import Done, invoke

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "start" / "tutorial.md").read_text(encoding="utf-8")
FILES = ROOT / "examples" / "tutorial"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/v1")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A copy of the tutorial's files, with its server running at another port."""
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    command = [sys.executable, "server.py", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = ADDRESS.search(server.stdout.readline())
        assert address is not None
        for study in tmp_path.glob("*.yaml"):
            study.write_text(ADDRESS.sub(address[0], study.read_text(encoding="utf-8")))
        yield tmp_path
        server.terminate()


def run(line: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Done:
    done = invoke(capsys, *line.split()[1:], folder=folder)
    assert done.code == 0, (line, done.err)
    assert done.out
    return done


@pytest.mark.slow
def test_the_tutorial_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    winners = []
    lines = [
        line for kind, text in BLOCK.findall(PAGE) if kind == "bash" for line in text.split("\n")
    ]
    for line in lines:
        if line.startswith("bestarm-agent"):
            winners += re.findall(r"^Winner: +([\w/-]+)", run(line, folder, capsys).out, re.M)
    assert winners[:2] == re.findall(r"^Winner: +([\w/-]+)", PAGE, re.M)
    assert winners[:2] == ["medium/one-word", "large/one-word"]
    assert winners[2:] == ["medium/one-word"], "nearly as good, at a fifth of the price"


def test_the_studies_are_those_of_the_page() -> None:
    study, scorer = [text for kind, text in BLOCK.findall(PAGE) if kind == "yaml"]
    text = (FILES / "study.yaml").read_text(encoding="utf-8")
    assert study == text
    judged = yaml.safe_load((FILES / "judged.yaml").read_text(encoding="utf-8"))
    assert judged == {**yaml.safe_load(text), "name": "tickets-judged", **yaml.safe_load(scorer)}


def test_the_rows_that_the_page_quotes_are_in_the_files() -> None:
    quoted = [json.loads(row) for row in re.findall(r"`(\{\"\w+\".*?\})`", PAGE)]
    rows = (FILES / "tickets.jsonl").read_text() + (FILES / "labels.jsonl").read_text()
    assert len(quoted) == 2
    assert [row for row in quoted if json.dumps(row) not in rows] == []
