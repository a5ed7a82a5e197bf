"""A study file that is edited between a run and its resumption."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.config.study.load import load_study, study_from
from bestarm_agent.engine.setup.edited_study import file_name, kept_notice, with_edits
from bestarm_agent.testing.store_runs import started
from tests.support.commands import Done, invoke
from tests.support.studies import write_study

Capsys = pytest.CaptureFixture[str]


def begun(folder: Path, capsys: Capsys, *flags: str) -> Path:
    """Begin a run of three of the four recorded candidates."""
    path = write_study(folder, n_candidates=4, n_examples=10)
    edit(path, models=[f"replay/c{i}" for i in range(3)])
    done = invoke(capsys, "select", path, "--quiet", "--budget-pulls", "12", *flags, folder=folder)
    assert done.code == 0, done.err
    return path


def edit(path: Path, **changes: Any) -> None:  # noqa: ANN401
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def resume(folder: Path, capsys: Capsys, *flags: str) -> Done:
    return invoke(capsys, "resume", "--quiet", "--json", *flags, folder=folder)


def labels(done: Done) -> set[str]:
    return {row["label"] for row in json.loads(done.out)["candidates"]}


@pytest.mark.slow
def test_new_models_and_prompts_join_once(tmp_path: Path, capsys: Capsys) -> None:
    path = begun(tmp_path, capsys)
    edit(
        path,
        models=[f"replay/c{i}" for i in range(4)],
        prompts=[{"q": "{{ question }}"}, {"r": "Now: {{ question }}"}],
    )
    done = resume(tmp_path, capsys, "--budget-pulls", "20")
    assert labels(done) == {"c0", "c1", "c2", "c0/r", "c1/r", "c2/r", "c3/q", "c3/r"}
    assert "5 candidates joined: c0/r, " in done.err
    assert json.loads(done.out)["asked"] == 32
    again = resume(tmp_path, capsys, "--budget-pulls", "10")
    assert (len(labels(again)), "joined" in again.err) == (8, False)
    assert json.loads(again.out)["asked"] == 42


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {"prompts": [{"q": "Please: {{ question }}"}]},
            "'c0' and 2 more of the run are no longer in it as they were",
        ),
        ({"models": ["replay/c0", "replay/c1"]}, "'c2' of the run is no longer in it as it was "),
        (
            {"scorer": "exact", "dataset": {"path": "questions.jsonl", "target": "question"}},
            "dataset",
        ),
        (
            {"providers": {"replay": {"path": "scores.jsonl", "latency_seconds": 1}}},
            "providers.replay",
        ),
        (
            {
                "models": [
                    {"model": "replay/c0", "options": {"latency_seconds": 1}},
                    "replay/c1",
                    "replay/c2",
                ]
            },
            "options of replay/c0",
        ),
    ],
)
def test_what_scores_depend_on_must_not_change(
    tmp_path: Path, capsys: Capsys, changes: dict[str, Any], named: str
) -> None:
    edit(begun(tmp_path, capsys), **changes)
    done = resume(tmp_path, capsys, "--budget-pulls", "5")
    assert done.code == 2
    assert named in " ".join(done.err.split())
    assert "begin a new run" in done.err


def test_other_servers_and_keys_are_taken_over(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    openai = {"base_url": "http://127.0.0.1:1/v1", "key": "ONE"}
    edit(path, providers={**json.loads(path.read_text())["providers"], "openai": openai})
    recorded = study_from(json.loads(path.read_text()), tmp_path)
    edit(path, providers={**recorded.config.providers, "openai": {**openai, "key": "OTHER"}})
    assert with_edits(recorded, path.name).config.providers["openai"]["key"] == "OTHER"


def test_settings_of_the_question_stay_and_are_named(tmp_path: Path, capsys: Capsys) -> None:
    path = begun(tmp_path, capsys)
    edit(
        path,
        slices={"by": ["question"]},
        objective={"name": "cheapest-within-epsilon"},
        limits={"in_flight": 2},
    )
    done = resume(tmp_path, capsys, "--budget-pulls", "5")
    assert done.code == 0
    assert "study.json was edited: `slices`, `objective` stay as they were" in done.err
    assert "begin a new run" in done.err


def test_a_setting_of_the_question_that_the_file_repeats_or_drops_is_no_edit(
    tmp_path: Path,
) -> None:
    path = write_study(tmp_path, changes={"objective": {"name": "cheapest-within-epsilon"}})
    recorded = study_from(json.loads(path.read_text()), tmp_path)
    began = replace(started(), file=path.name)
    assert kept_notice(recorded, began) == ()
    write_study(tmp_path)
    assert kept_notice(recorded, began) == ()


@pytest.mark.parametrize(
    ("overrides", "is_named"),
    [({}, True), ({"selector.seed": 1}, True), ({"models": ["replay/c0"]}, False)],
)
def test_a_file_whose_candidates_were_replaced_is_not_looked_at_again(
    tmp_path: Path, overrides: dict[str, Any], is_named: bool
) -> None:
    path = write_study(tmp_path)
    assert file_name(load_study(path, overrides)) == (path.name if is_named else None)


def test_flags_and_settings_are_no_edits(tmp_path: Path, capsys: Capsys) -> None:
    path = begun(tmp_path, capsys, "--selector", "uniform", "--seed", "4")
    edit(path, limits={"in_flight": 2}, budget={"pulls": 3})
    done = resume(tmp_path, capsys, "--budget-share", "30%")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["asked"] == 12 + 9
    path.unlink()
    assert resume(tmp_path, capsys, "--budget-pulls", "1").code == 0, "a file that is gone is fine"


def test_a_share_is_checked(tmp_path: Path, capsys: Capsys) -> None:
    begun(tmp_path, capsys)
    done = resume(tmp_path, capsys, "--budget-share", "200%")
    assert done.code == 2
    assert "--budget-share" in done.err


@pytest.mark.slow
def test_prompt_files_join_and_must_not_change(tmp_path: Path, capsys: Capsys) -> None:
    path = write_study(tmp_path, n_candidates=2, n_examples=10)
    folder = tmp_path / "prompts"
    folder.mkdir()
    (folder / "ask.txt").write_text("{{ question }}")
    edit(path, prompts=[{"file": "prompts/*.txt"}])
    assert invoke(capsys, "select", path, "-q", "--budget-pulls", "6", folder=tmp_path).code == 0
    (folder / "beg.txt").write_text("Please: {{ question }}")
    done = resume(tmp_path, capsys, "--budget-pulls", "6")
    assert labels(done) == {"c0", "c1", "c0/beg", "c1/beg"}
    assert "the study was edited: 2 candidates joined: c0/beg, c1/beg" in done.err
    assert resume(tmp_path, capsys, "--budget-pulls", "1").err == "", "they join once"
    (folder / "ask.txt").write_text("Now: {{ question }}")
    refused = resume(tmp_path, capsys, "--budget-pulls", "1")
    assert refused.code == 2
    assert "prompt `ask` was edited since the run began" in " ".join(refused.err.split())
    (folder / "ask.txt").write_text("{{ question }}\n")
    assert resume(tmp_path, capsys, "--budget-pulls", "1").code == 0


def test_a_longer_dataset_changes_nothing_and_a_shorter_one_is_refused(
    tmp_path: Path, capsys: Capsys
) -> None:
    begun(tmp_path, capsys)
    with (tmp_path / "questions.jsonl").open("a") as file:
        file.write(json.dumps({"id": "e10", "question": "q10"}) + "\n")
    done = resume(tmp_path, capsys, "--budget-pulls", "1")
    assert done.code in (0, 3)
    assert "the dataset has grown by 1 example; the run goes on with the 10" in done.err
    rows = (tmp_path / "questions.jsonl").read_text().splitlines()
    (tmp_path / "questions.jsonl").write_text("\n".join(rows[:9]))
    done = resume(tmp_path, capsys, "--budget-pulls", "1")
    assert done.code == 2
    assert "9 examples where there were 10, 0 of them different" in " ".join(done.err.split())
