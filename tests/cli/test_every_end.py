"""``select --json``: whatever ends a run, what is printed is JSON, with the right exit code."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.engine.loop import End, RunLoop
from tests.support.commands import invoke
from tests.support.studies import write_lines, write_study

Capsys = pytest.CaptureFixture[str]
CODES = {0, 3, 4, 130}
RAISED = (End.ERROR, End.INTERRUPTED)


def ending(monkeypatch: pytest.MonkeyPatch, end: End) -> None:
    """Let runs end so, once they are through."""
    run = RunLoop._run_tasks

    async def ended(self: RunLoop) -> End:
        await run(self)
        if end is End.ERROR:
            raise ZeroDivisionError("by a rule, say")
        if end is End.INTERRUPTED:
            raise asyncio.CancelledError
        return end

    monkeypatch.setattr(RunLoop, "_run_tasks", ended)


def failing(folder: Path) -> Path:
    """A study none of whose calls is answered: nothing has a score."""
    path = write_study(folder, n_candidates=3, n_examples=12)
    rows = [
        {"candidate": f"c{i}", "example": f"e{j}", "error": "internal"}
        for i in range(3)
        for j in range(12)
    ]
    write_lines(folder / "scores.jsonl", rows)
    return path


@pytest.mark.parametrize("scored", [True, False])
@pytest.mark.parametrize("end", [end for end in End if end not in RAISED])
def test_every_end_is_told_as_json(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch, end: End, scored: bool
) -> None:
    path = write_study(tmp_path, n_candidates=3, n_examples=12) if scored else failing(tmp_path)
    ending(monkeypatch, end)
    done = invoke(capsys, "select", path, "--json", "--quiet", folder=tmp_path)
    assert done.code in CODES, done.err
    found: dict[str, Any] = json.loads(done.out)
    assert found["end"] == (end.value if scored else End.FAILURES.value)
    assert (done.code == 4) == (found["end"] == "failures")
    shown = invoke(capsys, "show", "--json", folder=tmp_path)
    assert json.loads(shown.out)["end"] == found["end"]


@pytest.mark.parametrize("scored", [True, False])
@pytest.mark.parametrize("end", RAISED)
def test_what_breaks_a_run_off_prints_no_half_of_a_result(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch, end: End, scored: bool
) -> None:
    path = write_study(tmp_path, n_candidates=3, n_examples=12) if scored else failing(tmp_path)
    ending(monkeypatch, end)
    done = invoke(capsys, "select", path, "--json", "--quiet", folder=tmp_path)
    assert done.code == (1 if end is End.ERROR else 130), done.err
    assert done.out == "" or json.loads(done.out)
    assert "Traceback" not in done.err
    assert ("please report it" in done.told) == (end is End.ERROR)
    shown = invoke(capsys, "show", "--json", folder=tmp_path)
    assert json.loads(shown.out)["end"] == end.value
    resume = f"aborted; `bestarm-agent resume {json.loads(shown.out)['run_id']}` continues this run"
    assert (resume in done.told) == (end is End.INTERRUPTED)


def test_the_first_ctrl_c_says_what_it_waits_for(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_study(tmp_path, n_candidates=3, n_examples=12)
    run = RunLoop._run_tasks

    async def pressed(self: RunLoop) -> End:
        os.kill(os.getpid(), signal.SIGINT)
        return await run(self)

    monkeypatch.setattr(RunLoop, "_run_tasks", pressed)
    done = invoke(capsys, "select", path, "--quiet", folder=tmp_path)
    assert (done.code, done.told) == (
        130,
        "stopping once calls under way are done; Ctrl-C again aborts",
    )
    assert "Next: go on: `bestarm-agent resume " in done.out


def test_a_command_without_a_run_ends_by_ctrl_c_with_its_code(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bestarm_agent.cli.start.plan", pressed)
    done = invoke(capsys, "plan", write_study(tmp_path), folder=tmp_path)
    assert (done.code, done.told, done.out) == (130, "stopped", "")
