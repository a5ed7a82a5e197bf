"""Odd files, terminals and disks: one clear error, or right; a traceback nowhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from bestarm_agent.config.load import load_study
from tests.support.commands import Done, invoke
from tests.support.studies import write_study

Capsys = pytest.CaptureFixture[str]
MAIN = "from bestarm_agent.cli.main import main; main()"
CONFIG = "providers: [openai:gpt-4o-mini]\nprompts: ['{{q}}']\ntests: [{vars: {q: Hi}}]\n"


def refused(done: Done, *messages: str) -> None:
    assert done.code == 2, done.err
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err
    for message in messages:
        assert message in done.told


@pytest.mark.parametrize("command", [("plan", "study.json"), ("list",), ("select", "study.json")])
def test_a_file_of_variables_that_is_not_utf8(
    tmp_path: Path, capsys: Capsys, command: tuple[str, ...]
) -> None:
    write_study(tmp_path)
    (tmp_path / ".env").write_bytes("A=1\nNAME=Jos\xe9\n".encode("latin-1"))
    refused(invoke(capsys, *command, folder=tmp_path), ".env, line 2: not UTF-8; save it as UTF-8")


@pytest.mark.parametrize("name", [".env", "study.json", "questions.jsonl", "scores.jsonl"])
@pytest.mark.parametrize("kind", ["a pipe", "a device"])
def test_a_pipe_or_device_is_no_file(tmp_path: Path, capsys: Capsys, name: str, kind: str) -> None:
    write_study(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    if kind == "a pipe":
        os.mkfifo(tmp_path / name)  # which nobody writes to: reading it would wait for ever
    else:
        (tmp_path / name).symlink_to("/dev/zero")
    refused(invoke(capsys, "plan", "study.json", folder=tmp_path), f"is {kind}, and not a file")


def test_a_folder_or_nothing_in_place_of_variables_is_none(tmp_path: Path, capsys: Capsys) -> None:
    write_study(tmp_path)
    (tmp_path / ".env").mkdir()  # somebody's virtual environment
    assert invoke(capsys, "plan", "study.json", folder=tmp_path).code == 0
    (tmp_path / ".env").rmdir()
    (tmp_path / ".env").symlink_to(os.devnull)
    assert invoke(capsys, "plan", "study.json", folder=tmp_path).code == 0


def test_variables_of_the_file_are_read_in_one_way(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_study(tmp_path, changes={"output_dir": "${OWN_DIR}"})
    (tmp_path / ".env").write_text("\ufeffOWN_DIR=own\nBESTARM_STORE=own.sqlite\n")
    monkeypatch.delenv("BESTARM_STORE", raising=False)
    done = invoke(capsys, "select", "study.json", "-q", "--budget-answers", "8", folder=tmp_path)
    assert done.code in (0, 3), done.err
    assert (tmp_path / "own.sqlite").exists()
    monkeypatch.setenv("BESTARM_STORE", "")  # an empty one says nothing
    assert "recorded" in invoke(capsys, "list", folder=tmp_path).out


def test_a_study_from_a_config_goes_into_a_folder_that_is_not_there(
    tmp_path: Path, capsys: Capsys
) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    done = invoke(capsys, "init", "a/b/study.yaml", "--from", "config.yaml", folder=tmp_path)
    assert done.code == 0, done.err
    assert load_study(tmp_path / "a" / "b" / "study.yaml").config.models
    (tmp_path / "file").write_text("")
    done = invoke(capsys, "init", "file/study.yaml", "--from", "config.yaml", folder=tmp_path)
    refused(done, "exists already")


@pytest.mark.parametrize("place", ["file/demo", "file", "/proc/demo"])
def test_a_demo_that_cannot_be_written(tmp_path: Path, capsys: Capsys, place: str) -> None:
    (tmp_path / "file").write_text("")
    refused(invoke(capsys, "demo", place, folder=tmp_path), "the demo cannot be written into")


def test_a_folder_in_place_of_a_file_of_the_demo(tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "d" / "study.yaml").mkdir(parents=True)
    refused(invoke(capsys, "demo", "d", folder=tmp_path), "is there already")


def of_odd_letters(folder: Path) -> Path:
    models = [{"model": "replay/c0", "label": "größe-日本"}, "replay/c1"]
    return write_study(folder, n_candidates=2, n_examples=8, changes={"models": models})


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_terminals_that_do_not_know_all_letters(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    path = of_odd_letters(tmp_path)
    for command in (("plan",), ("select",), ("select", "--json", "-q")):
        streams = [TextIOWrapper(BytesIO(), encoding) for _ in range(2)]
        with monkeypatch.context() as patch:
            for name, stream in zip(("stdout", "stderr"), streams, strict=True):
                patch.setattr(sys, name, stream)
            done = invoke(capsys, command[0], path.name, *command[1:], folder=tmp_path)
        out, err = (stream.detach().getvalue() for stream in streams)
        assert done.code in (0, 3), err
        assert b"Traceback" not in err
    found = json.loads(out.decode(encoding))
    assert "größe-日本" in json.dumps(found, ensure_ascii=False)


def test_a_process_in_a_locale_that_does_not_know_all_letters(tmp_path: Path) -> None:
    path = of_odd_letters(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "select", path.name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 3), done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("command", [("plan", "study.json"), ("plan", "study.json", "--json")])
def test_a_full_disk_is_one_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    write_study(tmp_path)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", MAIN, *command],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 1
    assert "error: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_an_export_to_a_full_disk(tmp_path: Path, capsys: Capsys) -> None:
    write_study(tmp_path)
    invoke(capsys, "select", "study.json", "-q", "--budget-answers", "8", folder=tmp_path)
    done = invoke(capsys, "export", "--out", "/dev/full", "--format", "csv", folder=tmp_path)
    assert done.code == 1
    assert "cannot be written: No space left on device" in done.told
    assert Path("/dev/full").is_char_device()  # and nothing took its place


def broken(error: Exception) -> Callable[..., None]:
    def fail(*_values: object, **_named: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KeyError("scores"), "KeyError: 'scores'"),
        (RecursionError("too deep"), "RecursionError: too deep"),
        (UnicodeEncodeError("ascii", "ä", 0, 1, "no"), "UnicodeEncodeError"),
        (ValueError("two\nlines"), "ValueError: two lines"),
    ],
)
def test_what_nobody_foresaw_is_one_line(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    monkeypatch.setattr("bestarm_agent.cli.start.plan", broken(error))
    done = invoke(capsys, "plan", folder=tmp_path)
    assert done.code == 1
    assert message in done.told
    assert "test_edges.py, line " in done.told
    assert done.told.endswith(
        "please report it at https://github.com/bestarm-agent/bestarm-agent/issues"
    )
    assert done.err.count("\n") == 1
    monkeypatch.setenv("BESTARM_LOG_LEVEL", "debug")
    assert "Traceback" in invoke(capsys, "plan", folder=tmp_path).err


def test_an_error_of_the_system_names_the_file(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = PermissionError(13, "Permission denied", "/there")
    monkeypatch.setattr("bestarm_agent.cli.start.plan", broken(error))
    done = invoke(capsys, "plan", folder=tmp_path)
    assert (done.code, done.told) == (1, "error: /there: Permission denied")


@pytest.mark.parametrize("cap", ["usd", "answers", "calls", "tokens", "minutes", "share"])
def test_a_cap_is_not_left_empty(tmp_path: Path, capsys: Capsys, cap: str) -> None:
    write_study(tmp_path)
    for value in ("", " "):
        done = invoke(
            capsys, "plan", "study.json", "--set", f"budget.{cap}={value}", folder=tmp_path
        )
        refused(done, f"--set budget.{cap}= has no value")
    text = (
        "models: [replay/c0, replay/c1]\nprompts: [{q: '{{ question }}'}]\nscorer: recorded\n"
        "dataset: questions.jsonl\nproviders: {replay: {path: scores.jsonl}}\n"
        f"budget:\n  {cap}:\n"
    )
    (tmp_path / "own.yaml").write_text(text)
    refused(
        invoke(capsys, "plan", "own.yaml", folder=tmp_path),
        f"own.yaml, line 7: `budget.{cap}` is empty, and a cap is a number",
    )
    (tmp_path / "own.yaml").write_text(text + "    5%\n" if cap == "share" else text + "    5\n")
    assert "is empty" not in invoke(capsys, "plan", "own.yaml", folder=tmp_path).err


def test_an_option_for_a_cap_is_not_left_empty(tmp_path: Path, capsys: Capsys) -> None:
    write_study(tmp_path)
    done = invoke(capsys, "plan", "study.json", "--set", "budget=", folder=tmp_path)
    refused(done, "--set budget= has no value")
    done = invoke(capsys, "select", "study.json", "--budget-usd", "", folder=tmp_path)
    refused(done, "--budget-usd")
