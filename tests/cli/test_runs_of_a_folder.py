"""Commands that are given no run find that of the folder they stand in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Done, invoke
from tests.support.studies import write_study

Capsys = pytest.CaptureFixture[str]


def begin(folder: Path, capsys: Capsys, name: str = "study", **changes: Any) -> str:  # noqa: ANN401
    """Begin a run of ``NAME.yaml`` in a folder; return its id."""
    written = write_study(folder, n_candidates=2, n_examples=5)
    study = {**json.loads(written.read_text()), **changes}
    del study["name"]
    written.unlink()
    (folder / f"{name}.yaml").write_text(json.dumps(study))  # JSON is YAML
    done = invoke(
        capsys, "select", f"{name}.yaml", "-q", "--json", "--budget-answers", "4", folder=folder
    )
    assert done.code == 0, done.err
    return str(json.loads(done.out)["run_id"])


def shown(done: Done) -> str:
    assert done.code == 0, done.err
    return str(json.loads(done.out)["run_id"])


@pytest.mark.slow
def test_a_shared_store_gives_each_folder_its_own_run(tmp_path: Path, capsys: Capsys) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    first = begin(one, capsys, "study", output_dir="../runs")
    (two / "empty").mkdir(parents=True)
    second = begin(two, capsys, "other", output_dir="../runs")
    assert shown(invoke(capsys, "show", "--json", folder=one)) == first
    assert shown(invoke(capsys, "show", "latest", "--json", folder=one)) == second
    resumed = invoke(capsys, "resume", "-q", "--json", "--budget-answers", "1", folder=one)
    assert shown(resumed) == first
    for command in ("report", "answers", "export"):
        done = invoke(capsys, command, folder=one)
        assert done.code == 0, done.err
    assert first in invoke(capsys, "report", folder=one).out


def test_the_newest_run_of_all_studies_of_the_folder_counts(tmp_path: Path, capsys: Capsys) -> None:
    begin(tmp_path, capsys)
    judged = begin(tmp_path, capsys, "judged")
    (tmp_path / "notes.yaml").write_text("name: [broken")
    assert shown(invoke(capsys, "show", "--json", folder=tmp_path)) == judged


def test_the_study_names_one_of_several_stores(tmp_path: Path, capsys: Capsys) -> None:
    mine = begin(tmp_path, capsys, output_dir="mine")
    begin(tmp_path / "sub", capsys)
    assert shown(invoke(capsys, "show", "--json", folder=tmp_path)) == mine
    assert shown(invoke(capsys, "show", mine[:-1], "--json", folder=tmp_path)) == mine


def test_a_folder_without_a_run_is_told_the_way(tmp_path: Path, capsys: Capsys) -> None:
    begin(tmp_path / "theirs", capsys, "theirs", output_dir="../runs")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "study.yaml").write_text("{output_dir: ../runs, models: [nonsense]}")
    done = invoke(capsys, "show", folder=mine)
    assert done.code == 1
    assert "no run of study.yaml or another study of this folder" in done.err
    assert "`latest` means the newest of 1 there" in done.err
    (mine / "study.yaml").write_text("name: [broken")
    for command in ("show", "report", "answers"):
        done = invoke(capsys, command, "--store", "../runs/runs.sqlite", folder=mine)
        assert (done.code, "note: study.yaml, line 1" in done.err) == (0, True)
    by_name = invoke(capsys, "show", "latest", "--store", "../runs/runs.sqlite", folder=mine)
    assert by_name.code == 0
