"""``add``: a candidate joins a stored run from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands import Done, invoke
from tests.support.studies import write_study

Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def run(tmp_path: Path, capsys: Capsys) -> Path:
    """The folder of a run over three of four recorded candidates."""
    path = write_study(tmp_path, n_candidates=4, n_examples=10)
    study = json.loads(path.read_text())
    path.write_text(json.dumps({**study, "models": study["models"][:3]}))
    assert invoke(capsys, "select", path, "--quiet", folder=tmp_path).code == 0
    return tmp_path


def add(capsys: Capsys, folder: Path, *arguments: str) -> Done:
    return invoke(capsys, "add", *arguments, folder=folder)


def test_a_candidate_joins_and_resume_asks_it(run: Path, capsys: Capsys) -> None:
    done = add(capsys, run, "replay/c3", "--label", "late")
    assert (done.code, done.err) == (0, "")
    assert "late joined; `bestarm-agent resume` goes on" in done.out
    resumed = invoke(capsys, "resume", "--quiet", "--json", folder=run)
    rows = {row["label"]: row["n"] for row in json.loads(resumed.out)["candidates"]}
    assert rows == {"c0": 10, "c1": 10, "c2": 10, "late": 10}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("replay/c0",), "is the same as 'c0'"),
        (("replay/c3", "--prompt", "nope"), 'prompt "nope" is unknown'),
        (("replay/c3", "--param", "temperature"), "--param must be NAME=VALUE"),
    ],
)
def test_what_cannot_join_is_refused(
    run: Path, capsys: Capsys, arguments: tuple[str, ...], said: str
) -> None:
    done = add(capsys, run, *arguments)
    assert done.code == 2
    assert said in done.err
