"""The variables that set what commands print: log level, progress, colours."""

from __future__ import annotations

import logging
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import Done, invoke
from tests.support.studies import write_study

Capsys = pytest.CaptureFixture[str]
MAIN = "from bestarm_agent.cli.main import main; main()"


@pytest.fixture(autouse=True)
def logger_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    log = logging.getLogger("bestarm_agent")
    before = log.level, log.propagate, list(log.handlers)
    monkeypatch.setenv("NO_COLOR", "")
    yield
    log.level, log.propagate, log.handlers[:] = before


def select(capsys: Capsys, folder: Path, *flags: str) -> Done:
    return invoke(capsys, "select", "-c", write_study(folder), *flags, folder=folder)


@pytest.mark.parametrize(
    ("level", "begun", "asked"),
    [("debug", True, True), ("info", True, False), ("warning", False, False)],
)
def test_the_log_level_decides_what_is_logged(
    tmp_path: Path,
    capsys: Capsys,
    monkeypatch: pytest.MonkeyPatch,
    level: str,
    begun: bool,
    asked: bool,
) -> None:
    monkeypatch.setenv("BESTARM_LOG_LEVEL", level)
    done = select(capsys, tmp_path, "--quiet", "--budget-answers", "10")
    assert done.code == 0
    assert (f"INFO bestarm_agent.store.store: run {'20'}" in done.err) is begun
    assert (": started {" in done.err) is begun
    assert (": asked {" in done.err) is asked


@pytest.mark.parametrize(
    ("variable", "flags", "shown"),
    [("plain", (), True), ("none", (), False), ("plain", ("--quiet",), False)],
)
def test_progress_is_shown_as_the_variable_says_unless_a_flag_does(
    tmp_path: Path,
    capsys: Capsys,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    flags: tuple[str, ...],
    shown: bool,
) -> None:
    monkeypatch.setenv("BESTARM_DISPLAY", variable)
    done = select(capsys, tmp_path, "--budget-answers", "10", *flags)
    assert done.code == 0
    assert (" s | " in done.err) is shown


def test_a_wrong_value_is_one_clear_error(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BESTARM_DISPLAY", "loud")
    done = select(capsys, tmp_path)
    assert done.code == 2
    assert "BESTARM_DISPLAY" in done.err


@pytest.mark.slow
@pytest.mark.parametrize(("no_color", "coloured"), [("1", False), ("", True)])
def test_no_color_prints_without_colours_on_a_terminal(
    tmp_path: Path, no_color: str, coloured: bool
) -> None:
    path = write_study(tmp_path)
    written = on_a_terminal(
        ["select", "-c", str(path), "--budget-answers", "10"],
        {"BESTARM_DISPLAY": "full", "BESTARM_NO_COLOR": no_color, "TERM": "xterm-256color"},
        tmp_path,
    )
    assert ("\x1b[32m" in written or "\x1b[1;32m" in written) is coloured


def on_a_terminal(arguments: list[str], variables: dict[str, str], folder: Path) -> str:
    """Run a command on a pseudo-terminal and return all that it wrote there."""
    ours, theirs = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | variables
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *arguments],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment,
    )  # fmt: skip
    os.close(theirs)
    written = bytearray()
    try:
        while chunk := os.read(ours, 65536):
            written += chunk
    except OSError:  # Linux reports the end of a terminal as an error
        process.wait()
    finally:
        os.close(ours)
    assert process.wait() == 0, written.decode()
    return written.decode()
