"""The study file of a command: as an argument, as an option, or ``study.yaml`` of the folder."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from importlib import import_module
from inspect import signature
from pathlib import Path

import click
import pytest

from bestarm_agent.cli.given import Given
from bestarm_agent.cli.main import app
from bestarm_agent.cli.options import OPTIONS
from bestarm_agent.config.file_errors import keys_of, model_at
from bestarm_agent.config.study import StudyConfig
from bestarm_agent.stats.new_examples import examples_needed
from tests.support.commands import invoke
from tests.support.studies import write_study

Capsys = pytest.CaptureFixture[str]


@pytest.mark.parametrize(("command", "said"), [("plan", "6 candidates x 40"), ("select", "Take c")])
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
    found = json.loads(invoke(capsys, "plan", path, "--json", folder=tmp_path).out)
    assert found["kept_back"] == 50
    assert 0.1 < found["half_width"] < 0.3


def test_plan_says_how_many_examples_a_difference_needs(tmp_path: Path, capsys: Capsys) -> None:
    write_study(tmp_path).rename(tmp_path / "study.yaml")
    done = invoke(capsys, "plan", "--detect", "0.03", folder=tmp_path)
    assert "40 examples can reveal a difference of about 22 points" in done.out
    assert "The dataset is too small for a difference of 3 points" in done.out
    needed = json.loads(invoke(capsys, "plan", "--detect", "0.3", "--json", folder=tmp_path).out)
    assert list(needed["detect"]) == ["0.4", "0.8", "1"]
    assert needed["detect"]["0.4"] == examples_needed(0.3, 0.4, 0.025)
    done = invoke(capsys, "plan", "--detect", "3", folder=tmp_path)
    assert done.code == 2
    assert "--detect must be between " in done.err
    assert "and 1, got 3" in done.err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--confirm", "2"), "--confirm: `confirm.share` must be at most 1, got 2"),
        (("--seed", "-1"), "--seed: `selector.seed` must be at least 0, got -1"),
        (("--budget-share", "2"), "--budget-share: `budget.share` must be at most 1"),
        (("--budget-answers", "0"), "--budget-answers: `budget.answers` must be at least 1"),
        (("--set", "objective.name=bset"), "--set objective.name: `objective.name` must be "),
    ],
)
def test_a_wrong_value_is_called_what_the_user_calls_it(
    tmp_path: Path, capsys: Capsys, flags: tuple[str, ...], said: str
) -> None:
    done = invoke(capsys, "select", write_study(tmp_path), *flags, folder=tmp_path)
    assert said in done.err


def test_every_key_of_an_option_is_one_of_a_study() -> None:
    keys = [option.key for option in OPTIONS.values() if option.key]
    assert len(keys) == len(set(keys)) > 20
    for key in keys:
        *parents, last = key.split(".")
        model = model_at(StudyConfig, tuple(parents))
        assert model is not None
        assert last in keys_of(model)


def test_a_flag_means_one_thing_and_commands_take_few() -> None:
    assert len(app.commands) <= 22
    assert max(len(command.params) for command in _commands(app)) <= 18
    assert sum(len(command.params) for command in _commands(app)) <= 185
    options = [(name, one) for name, one in OPTIONS.items() if not one.argument]
    meanings = Counter(flag for name, one in options for flag in one.flags(name))
    # a metric of logs is one for `import`, and may be several for `compare`
    assert {flag for flag, n in meanings.items() if n > 1} == {"--format", "--metric", "--store"}


def _commands(group: click.Group) -> Iterator[click.Command]:
    for command in group.commands.values():
        yield from _commands(command) if isinstance(command, click.Group) else [command]


def test_every_command_has_its_function() -> None:
    """A function takes what the options of its command are called."""
    for command in _commands(app):
        assert isinstance(command.callback, partial)
        module, _, name = command.callback.args[0].partition(":")
        function = getattr(import_module(f"bestarm_agent.cli.{module}"), name)
        shared = {field.name for field in fields(Given)}
        own = {one.name for one in command.params} - shared
        own -= {name for name, option in OPTIONS.items() if option.key}
        assert next(iter(signature(function).parameters)) == "given"
        assert signature(function).parameters.keys() - {"given"} == own, command.name


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


def test_a_value_that_is_set_beats_the_named_option(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    named = {"budget.answers": 5, "selector.seed": 1}
    config = Given(study=path, replaced=named, changes=("budget.answers=7",)).load().config
    assert (config.budget.answers, config.selector.seed) == (7, 1)
