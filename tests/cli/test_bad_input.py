"""Bad input: one paragraph with the way out, the right exit code, nothing half-written."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.__main__ import main as as_module
from tests.support.commands import invoke
from tests.support.studies import write_study

SHIPPED = Path(__file__).parents[2] / "examples" / "arithmetic" / "models"

Capsys = pytest.CaptureFixture[str]
Breakage = Callable[[Path], None]


def study_with(**changes: Any) -> Breakage:  # noqa: ANN401 - whatever a study may wrongly hold
    def write(folder: Path) -> None:
        write_study(folder, changes=changes)

    return write


def file_with(name: str, text: str) -> Breakage:
    def write(folder: Path) -> None:
        write_study(folder)
        (folder / name).write_text(text)

    return write


def without(name: str) -> Breakage:
    def remove(folder: Path) -> None:
        write_study(folder)
        (folder / name).unlink()

    return remove


def empty_target(folder: Path) -> None:
    dataset = {"path": "questions.jsonl", "target": "answer"}
    write_study(folder, changes={"scorer": "exact", "dataset": dataset})
    row = '{"id": "e0", "question": "q", "answer": ""}'
    (folder / "questions.jsonl").write_text(row + "\n")


HF = {"models": ["hf/no-such-folder"], "dataset": "questions.jsonl"}
ROWS = '{"id": "e0", "question": "q0", "answer": "1"}\n'

CASES: list[tuple[str, Breakage, list[str]]] = [
    (
        "dataset on the web",
        study_with(dataset="https://host/rows.jsonl"),
        ["rows.jsonl", "download"],
    ),
    ("malformed", file_with("study.json", '{"name": "x",,}'), ["study.json", "line 1"]),
    ("empty file", file_with("study.json", ""), ["study.json"]),
    ("unknown key", study_with(budgets={"usd": 5}), ["budgets", "budget"]),
    ("budget 0", study_with(budget={"calls": 0}), ["budget.calls", "0"]),
    ("negative dollars", study_with(budget={"usd": -1}), ["budget.usd"]),
    ("missing dataset", without("questions.jsonl"), ["questions.jsonl"]),
    ("empty dataset", file_with("questions.jsonl", ""), ["questions.jsonl", "empty"]),
    ("duplicate ids", file_with("questions.jsonl", ROWS + ROWS), ["e0", "questions.jsonl"]),
    ("missing target", study_with(scorer="exact"), ["target"]),
    ("empty target", empty_target, ["answer", "questions.jsonl"]),
    ("unknown field", study_with(prompts=[{"q": "{{ questoin }}"}]), ["questoin", "question"]),
    ("broken template", study_with(prompts=[{"q": "{{ question"}]), ["prompt `q`"]),
    ("unknown provider", study_with(models=["repaly/c0"]), ["repaly", "replay"]),
    ("unknown model folder", study_with(**HF), ["no-such-folder"]),
    ("unknown scorer", study_with(scorer="exakt"), ["exakt", "exact"]),
    ("unknown selector", study_with(selector="ucb-d"), ["ucb-d", "ucb-e"]),
    ("unknown parameter", study_with(selector={"name": "ucb-e", "params": {"eat": 1}}), ["eta"]),
    ("no budget for a rule", study_with(selector="sysrs"), ["budget"]),
    ("confidence 1.5", study_with(selector={"confidence": 1.5}), ["confidence", "1.5"]),
]


@pytest.mark.parametrize(
    ("breakage", "phrases"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_bad_input_is_refused_before_anything_is_written(
    breakage: Breakage, phrases: list[str], tmp_path: Path, capsys: Capsys
) -> None:
    breakage(tmp_path)
    done = invoke(capsys, "select", "-c", tmp_path / "study.json", "--quiet", folder=tmp_path)
    assert done.code == 2, done.err
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err
    assert all(phrase in done.err for phrase in phrases), done.err
    assert done.out == ""
    assert not (tmp_path / "runs").exists()


def test_a_missing_study_file_says_how_to_start(tmp_path: Path, capsys: Capsys) -> None:
    done = invoke(capsys, "select", "-c", "nowhere.yaml", folder=tmp_path)
    assert done.code == 2
    assert "bestarm-agent init" in done.err


def test_wrong_usage_is_2(capsys: Capsys) -> None:
    assert invoke(capsys, "select").code == 2
    assert invoke(capsys, "elect").code == 2


def test_an_argument_that_a_command_needs_is_asked_for(capsys: Capsys) -> None:
    done = invoke(capsys, "judge", "check")
    assert done.code == 2
    assert "Missing argument 'SOURCE'" in done.err
    assert "UNSET" not in invoke(capsys, "judge", "check", "--help").out


def test_corrupt_weights_are_found_before_the_run(tmp_path: Path, capsys: Capsys) -> None:
    pytest.importorskip("transformers")
    shutil.copytree(SHIPPED / "sum-gpt2-20k", tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    path = write_study(tmp_path, changes={"models": ["hf/model"], "providers": {}})
    done = invoke(capsys, "select", "-c", path, "--quiet", folder=tmp_path)
    assert done.code == 2
    assert "model.safetensors" in done.err
    assert not (tmp_path / "runs").exists()


def test_an_unwritable_output_folder(tmp_path: Path, capsys: Capsys) -> None:
    path = write_study(tmp_path)
    (tmp_path / "runs").write_text("a file where the folder should be")
    done = invoke(capsys, "select", "-c", path, "--quiet", folder=tmp_path)
    assert done.code == 1
    assert "runs" in done.err
    assert "Traceback" not in done.err


def test_a_store_of_a_newer_version_is_left_alone(tmp_path: Path, capsys: Capsys) -> None:
    path = write_study(tmp_path)
    invoke(capsys, "select", "-c", path, "--quiet", "--budget-answers", "3", folder=tmp_path)
    store = tmp_path / "runs" / "runs.sqlite"
    with closing(sqlite3.connect(store)) as connection:
        connection.execute("UPDATE meta SET value = '999'")
        connection.commit()
        before = list(connection.execute("SELECT count(*) FROM events"))
    done = invoke(capsys, "select", "-c", path, "--quiet", folder=tmp_path)
    assert done.code == 1
    assert "newer" in done.err
    with closing(sqlite3.connect(store)) as connection:
        assert list(connection.execute("SELECT count(*) FROM events")) == before


def test_a_run_that_is_not_there(tmp_path: Path, capsys: Capsys) -> None:
    path = write_study(tmp_path)
    invoke(capsys, "select", "-c", path, "--quiet", "--budget-answers", "3", folder=tmp_path)
    done = invoke(capsys, "show", "another", folder=tmp_path)
    assert done.code == 1
    assert "another" in done.err


def test_no_store_says_how_to_name_one(tmp_path: Path, capsys: Capsys) -> None:
    done = invoke(capsys, "list", folder=tmp_path)
    assert done.code == 2
    assert "--store" in done.err


def test_terminal_escapes_in_labels_are_harmless(tmp_path: Path, capsys: Capsys) -> None:
    path = write_study(tmp_path, changes={"name": "plain"})
    done = invoke(capsys, "select", "-c", path, "--quiet", "--budget-answers", "6", folder=tmp_path)
    assert "\x1b" not in done.out


def test_what_a_prompt_or_a_judge_lacks_is_told_with_the_line(
    tmp_path: Path, capsys: Capsys
) -> None:
    study = [
        "models: [replay/c0, replay/c1]",
        'prompts: [{q: "{{ qestion }}"}]',
        "dataset: questions.jsonl",
        "scorer: recorded",
        "providers: {replay: {path: scores.jsonl}}",
    ]
    write_study(tmp_path)
    for change, said in (
        (3, "study.yaml, line 2: prompt `q`: no example has the field `qestion`; did you mean"),
        (
            1,
            "study.yaml, line 3: questions.jsonl, line 1: example `e0` has no reference answer, "
            "which judge `exact` needs",
        ),
    ):
        lines = [line.replace("recorded", "exact") if change == 1 else line for line in study]
        (tmp_path / "study.yaml").write_text("\n".join(lines))
        done = invoke(capsys, "plan", folder=tmp_path)
        assert done.code == 2
        assert said in done.err.replace("\n", " ")


def test_no_head_of_a_table_is_printed_above_an_error(tmp_path: Path, capsys: Capsys) -> None:
    path = write_study(tmp_path, n_candidates=2, n_examples=4)
    assert invoke(capsys, "select", path, "-q", folder=tmp_path).code == 0
    for asked in (["--candidate", "c9"], ["--failed"]):
        done = invoke(capsys, "answers", *asked, folder=tmp_path)
        assert done.out == ""
        assert done.err


def test_certify_takes_the_study_as_a_plain_argument(tmp_path: Path, capsys: Capsys) -> None:
    write_study(tmp_path)
    plain, option = (
        invoke(capsys, "certify", *given, "study.json", "--risk", "0.5", folder=tmp_path)
        for given in ((), ("--candidates",))
    )
    assert (plain.code, plain.err) == (option.code, option.err)
    assert "unexpected" not in plain.err


def test_an_interrupted_import_leaves_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bestarm_agent.cli.main.main", interrupted)
    with pytest.raises(SystemExit) as left:
        as_module()
    assert left.value.code == 130


@pytest.mark.parametrize("key", ["sk-abc123456789abcdef", "3f9a" * 8, "x" * 32, "gsk_abc12345defg"])
def test_a_key_in_place_of_its_variable_is_refused_and_not_repeated(
    tmp_path: Path, capsys: Capsys, key: str
) -> None:
    providers = {"openai": {"key": key, "base_url": "http://127.0.0.1:1/v1"}}
    path = write_study(tmp_path, changes={"models": ["openai/m"], "providers": providers})
    done = invoke(capsys, "select", path, folder=tmp_path)
    assert done.code == 2
    assert "name of an environment variable" in " ".join(done.err.split())
    assert key not in done.err + done.out
    assert not (tmp_path / "runs").exists()


def test_a_dataset_is_no_study(tmp_path: Path, capsys: Capsys) -> None:
    write_study(tmp_path)
    done = invoke(capsys, "select", "questions.jsonl", folder=tmp_path)
    assert done.code == 2
    assert "questions.jsonl is a dataset by its suffix" in done.err
