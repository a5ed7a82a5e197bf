"""Tutorial, retired model, model per step: they run as they stand, on the tutorial's server."""

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

from bestarm_agent.engine.setup import plan
from tests.docs.pages import ROOT, blocks, files, page
from tests.support.commands import invoke

TUTORIAL, RETIRED = page("start/tutorial"), page("retired-model")
FILES = ROOT / "examples" / "tutorial"
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/v1")
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A copy of the tutorial's files, with its server running at another port."""
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    for name in ("pipeline.py", "pipeline.yaml"):
        (tmp_path / name).write_text(files(page("local-models"))[name])
    command = [sys.executable, "server.py", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = ADDRESS.search(server.stdout.readline())
        assert address is not None
        for study in tmp_path.glob("*.yaml"):
            study.write_text(ADDRESS.sub(address[0], study.read_text(encoding="utf-8")))
        yield tmp_path
        server.terminate()


def run(line: str, folder: Path, capsys: Capture) -> str:
    done = invoke(capsys, *line.split()[1:], folder=folder)
    assert done.code == 0, (line, done.err)
    assert done.out
    return done.out


def commands(text: str) -> list[str]:
    lines = "".join(blocks(text, "bash")).splitlines()
    return [line for line in lines if line.startswith("bestarm-agent")]


@pytest.mark.timeout(600)  # half a minute of CPU time, which other programs may share
@pytest.mark.slow
def test_the_tutorial_runs(folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_WORLDS", 1)  # `plan` simulates three, two of which show nothing new
    winners = []
    for line in commands(TUTORIAL):
        winners += re.findall(r"^Take ([\w/-]+)", run(line, folder, capsys), re.M)
    assert winners[:2] == re.findall(r"^Take ([\w/-]+)", TUTORIAL, re.M)
    assert winners[:2] == ["medium/one-word", "large/one-word"]
    assert winners[2:] == ["medium/one-word"] * 2, "nearly as good, and good enough, for a fifth"


@pytest.mark.slow
def test_the_successors_of_a_retired_model_pass(folder: Path, capsys: Capture) -> None:
    said = "".join(run(line, folder, capsys) for line in commands(RETIRED))
    for name in ("cheap", "named"):
        assert re.search(rf"^{name} +PASS ", said, re.M)
        assert re.search(rf"^{name} +PASS ", RETIRED, re.M)
    failed = ("gate", "retired.yaml", "--set", "scorer=exact", "--quiet")
    done = invoke(capsys, *failed, folder=folder)
    assert done.code == 5, "the page says so: the named one words its answers differently"
    assert re.search(r"^named +FAIL ", done.out, re.M)


@pytest.mark.slow
def test_a_model_for_each_step(folder: Path, capsys: Capture) -> None:
    out = run("bestarm-agent select pipeline.yaml --quiet", folder, capsys)
    [winner] = re.findall(r"^Take ([\w=/]+)", out, re.MULTILINE)
    assert winner == "planner=large/solver=medium"
    assert f"`{winner}`" in page("local-models")


def test_the_studies_are_those_of_the_pages() -> None:
    study, scorer = blocks(TUTORIAL, "yaml")
    text = (FILES / "study.yaml").read_text(encoding="utf-8")
    assert study == text
    judged = yaml.safe_load((FILES / "judged.yaml").read_text(encoding="utf-8"))
    assert judged == {**yaml.safe_load(text), "name": "tickets-judged", **yaml.safe_load(scorer)}
    assert blocks(RETIRED, "yaml") == [(FILES / "retired.yaml").read_text(encoding="utf-8")]


def test_the_rows_that_the_page_quotes_are_in_the_files() -> None:
    quoted = [json.loads(row) for row in re.findall(r"`(\{\"\w+\".*?\})`", TUTORIAL)]
    rows = (FILES / "tickets.jsonl").read_text() + (FILES / "labels.jsonl").read_text()
    assert len(quoted) == 2
    assert [row for row in quoted if json.dumps(row) not in rows] == []
