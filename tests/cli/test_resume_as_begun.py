"""``resume`` goes on with a run as it began, whatever was edited since."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Done, invoke
from tests.support.studies import write_study

Capsys = pytest.CaptureFixture[str]


def begun(folder: Path, capsys: Capsys, *flags: str) -> Path:
    """Begin a run of three of the four recorded candidates."""
    path = write_study(folder, n_candidates=4, n_examples=10)
    edit(path, models=[f"replay/c{i}" for i in range(3)])
    done = invoke(
        capsys, "select", path, "--quiet", "--budget-answers", "12", *flags, folder=folder
    )
    assert done.code == 0, done.err
    return path


def edit(path: Path, **changes: Any) -> None:  # noqa: ANN401
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def resume(folder: Path, capsys: Capsys, *flags: str) -> Done:
    return invoke(capsys, "resume", "--quiet", "--json", *flags, folder=folder)


def test_edits_change_nothing(tmp_path: Path, capsys: Capsys) -> None:
    path = begun(tmp_path, capsys, "--selector", "uniform", "--seed", "4")
    edit(
        path,
        models=["replay/c3"],
        prompts=[{"r": "Now: {{ question }}"}],
        limits={"in_flight": 2},
        budget={"answers": 3},
    )
    done = resume(tmp_path, capsys, "--budget-share", "30%")
    assert done.code == 0
    assert done.told.startswith(
        f"notice: {path.name} was edited since the run began, which goes on"
    )
    assert done.err.count("\n") == 1
    shown = json.loads(done.out)
    assert shown["asked"] == 12 + 9
    assert {row["candidate"]["label"] for row in shown["rows"]} == {"c0", "c1", "c2"}
    path.unlink()
    assert resume(tmp_path, capsys, "--budget-answers", "1").code == 0, (
        "a file that is gone is fine"
    )


def test_a_share_is_checked(tmp_path: Path, capsys: Capsys) -> None:
    begun(tmp_path, capsys)
    done = resume(tmp_path, capsys, "--budget-share", "200%")
    assert done.code == 2
    assert "--budget-share" in done.err


def test_a_longer_dataset_changes_nothing_and_a_shorter_one_is_refused(
    tmp_path: Path, capsys: Capsys
) -> None:
    begun(tmp_path, capsys)
    with (tmp_path / "questions.jsonl").open("a") as file:
        file.write(json.dumps({"id": "e10", "question": "q10"}) + "\n")
    done = resume(tmp_path, capsys, "--budget-answers", "1")
    assert done.code in (0, 3)
    assert "the dataset has grown by 1 example; the run goes on with the 10" in done.err
    rows = (tmp_path / "questions.jsonl").read_text().splitlines()
    (tmp_path / "questions.jsonl").write_text("\n".join(rows[:9]))
    done = resume(tmp_path, capsys, "--budget-answers", "1")
    assert done.code == 2
    assert "9 examples where there were 10, 0 of them different" in " ".join(done.err.split())


def test_an_amount_without_a_cap_to_raise_is_said_to_change_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_study(tmp_path, n_candidates=3, n_examples=10, usd=[0.001] * 3)
    cut = ("--budget-answers", "12")
    assert invoke(capsys, "select", path, "-q", *cut, folder=tmp_path).code == 0
    done = invoke(capsys, "resume", "-q", "--budget-usd", "1", folder=tmp_path)
    assert "--budget-usd changes nothing: the study has no such cap" in done.err
    more = invoke(capsys, "resume", "-q", "--budget-answers", "6", folder=tmp_path)
    assert "changes nothing" not in more.err
