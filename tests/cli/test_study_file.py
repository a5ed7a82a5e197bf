"""The study file of a command: as an argument, as an option, or ``study.yaml`` of the folder."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_type_hints

import pytest
import typer

from bestarm_agent.cli.gate import GateOptions
from bestarm_agent.cli.main import app
from bestarm_agent.cli.options import BudgetOptions, Keyed, RunOptions
from bestarm_agent.cli.select_resume import ProposerOptions, RuleOptions
from bestarm_agent.config.settings import flag_of
from bestarm_agent.stats.mcnemar import examples_needed
from tests.support.commands import invoke
from tests.support.studies import write_study

Capsys = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("command", "said"),
    [("plan", "6 candidates x 40"), ("select", "Winner:")],
)
def test_a_study_is_found_by_argument_option_or_default(
    tmp_path: Path, capsys: Capsys, command: str, said: str
) -> None:
    write_study(tmp_path).rename(tmp_path / "study.yaml")
    for named in ((), ("study.yaml",), ("-c", "study.yaml")):
        done = invoke(capsys, command, *named, folder=tmp_path)
        assert done.code == 0, done.err
        assert said in done.out


def test_two_files_and_no_file_are_refused(tmp_path: Path, capsys: Capsys) -> None:
    done = invoke(capsys, "plan", "a.yaml", "-c", "b.yaml", folder=tmp_path)
    assert done.code == 2
    assert "two study files are named, a.yaml and --candidates b.yaml" in done.err
    done = invoke(capsys, "plan", folder=tmp_path)
    assert done.code == 2
    assert "bestarm-agent init" in done.err


def test_plan_says_what_is_kept_back_for_the_winner(tmp_path: Path, capsys: Capsys) -> None:
    path = write_study(tmp_path, n_examples=200, changes={"confirm": {"share": 0.25}})
    done = invoke(capsys, "plan", path, folder=tmp_path)
    assert "Kept back: 50 examples for the winner" in done.out
    found = json.loads(invoke(capsys, "plan", path, "--json", folder=tmp_path).out)["confirm"]
    assert found["examples"] == 50
    assert 0.1 < found["half_width"] < 0.3


def test_plan_says_how_many_examples_a_difference_needs(tmp_path: Path, capsys: Capsys) -> None:
    write_study(tmp_path).rename(tmp_path / "study.yaml")
    done = invoke(capsys, "plan", "--detect", "0.03", folder=tmp_path)
    assert "A difference of 0.03 between two candidates" in done.out
    needed = json.loads(invoke(capsys, "plan", "--detect", "0.3", "--json", folder=tmp_path).out)
    assert list(needed["detect"]) == ["0.4", "0.8", "1"]
    assert needed["detect"]["0.4"] == examples_needed(0.3, 0.4)
    assert 0 < needed["detect_at_all_times"]["0.4"] <= 40
    done = invoke(capsys, "plan", "--detect", "3", folder=tmp_path)
    assert (done.code, "--detect must be between 0 and 1, got 3" in done.err) == (2, True)


def test_a_flag_is_named_as_it_is_written(tmp_path: Path, capsys: Capsys) -> None:
    path = write_study(tmp_path)
    done = invoke(capsys, "select", path, "--confirm", "2", folder=tmp_path)
    assert "--confirm: `confirm.share` must be at most 1, got 2" in done.err


def test_every_option_of_a_study_key_is_named_by_its_flag() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined] # a group
    flags = {flag for command in commands.values() for one in command.params for flag in one.opts}
    keys = {
        mark.key
        for group in (BudgetOptions, RunOptions, RuleOptions, ProposerOptions, GateOptions)
        for hint in get_type_hints(group, include_extras=True).values()
        for mark in getattr(hint, "__metadata__", ())
        if isinstance(mark, Keyed)
    }
    assert len(keys) > 20
    assert {key for key in keys if flag_of(key) not in flags} == set()


@pytest.mark.parametrize(
    ("scorer", "said"),
    [
        ("my_judge:Bref", "judge adapter my_judge:Bref: there is no `Bref`; did you mean `Brief`?"),
        ("no_judge:Brief", "judge adapter no_judge:Brief: there is no Python module `no_judge`"),
    ],
)
def test_a_judge_that_cannot_be_imported_is_named_once_with_its_line(
    tmp_path: Path, capsys: Capsys, scorer: str, said: str
) -> None:
    (tmp_path / "my_judge.py").write_text("Brief = 1\n", encoding="utf-8")
    path = write_study(tmp_path, changes={"scorer": {"name": scorer}})
    done = invoke(capsys, "plan", path, folder=tmp_path)
    assert re.match(rf"error: study.json, line \d+: {re.escape(said)}", " ".join(done.err.split()))
    assert "uninstall" not in done.err
