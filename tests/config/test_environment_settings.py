from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bestarm_agent.config.environment_settings import Settings, resolve
from bestarm_agent.config.study.load import environment
from bestarm_agent.errors import ConfigError

Write = Callable[..., Path]

STUDY = 'models: [hf/a]\nprompts: [p: "{{ q }}"]\ndataset: d.jsonl\nscorer: exact\n'


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("BESTARM_") or name == "NO_COLOR":
            monkeypatch.delenv(name)


def test_defaults_come_last(write: Write) -> None:
    config = resolve(write(STUDY)).config
    assert (config.selector.seed, config.output_dir) == (0, "runs")


def test_the_file_beats_the_defaults(write: Write) -> None:
    config = resolve(write(STUDY + "selector: {seed: 1}\noutput_dir: file\n")).config
    assert (config.selector.seed, config.output_dir) == (1, "file")


def test_dotenv_beats_the_file(write: Write) -> None:
    write("BESTARM_SEED=2\nOPENAI_API_KEY=x\n", ".env")
    config = resolve(write(STUDY + "selector: {seed: 1}\noutput_dir: file\n")).config
    assert (config.selector.seed, config.output_dir) == (2, "file")


def test_the_environment_beats_dotenv(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("BESTARM_SEED=2\nBESTARM_OUTPUT_DIR=dotenv\n", ".env")
    monkeypatch.setenv("BESTARM_SEED", "3")
    config = resolve(write(STUDY + "selector: {seed: 1}\n")).config
    assert (config.selector.seed, config.output_dir) == (3, "dotenv")


def test_flags_beat_the_environment(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BESTARM_SEED", "3")
    monkeypatch.setenv("BESTARM_OUTPUT_DIR", "environment")
    flags = {"selector.seed": 4, "output_dir": None}
    config = resolve(write(STUDY + "selector: {seed: 1}\n"), flags).config
    assert (config.selector.seed, config.output_dir) == (4, "environment")


def test_a_wrong_value_is_called_what_the_user_calls_it(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value, flag in (
        ("selector.seed", -1, "--seed: `selector.seed` must be at least 0, got -1"),
        ("budget.share", 2.0, "--budget-share: `budget.share` must be at most 1"),
        ("objective.name", "bset", "--objective: `objective.name` must be "),
        ("limits.in_flight", 0, "--in-flight: `limits.in_flight` must be at least 1"),
    ):
        with pytest.raises(ConfigError, match=flag):
            resolve(write(STUDY), {key: value})
    monkeypatch.setenv("BESTARM_OUTPUT_DIR", "${NO_SUCH_FOLDER}")
    with pytest.raises(ConfigError, match=r"^BESTARM_OUTPUT_DIR: `output_dir` needs the"):
        resolve(write(STUDY))


def test_every_value_of_a_study_that_can_be_set_is_set(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {
        "SELECTOR": "uniform",
        "CONFIDENCE": "0.8",
        "IN_FLIGHT": "7",
        "BUDGET_USD": "$5",
        "BUDGET_SHARE": "10%",
        "BUDGET_PULLS": "1",
        "BUDGET_CALLS": "2",
        "BUDGET_TOKENS": "3",
        "BUDGET_MINUTES": "1.5",
    }
    for name, value in values.items():
        monkeypatch.setenv(f"BESTARM_{name}", value)
    config = resolve(write(STUDY)).config
    assert (config.selector.name, config.selector.confidence) == ("uniform", 0.8)
    assert config.limits.in_flight == 7
    assert config.budget.model_dump(exclude_none=True) == {
        "usd": 5,
        "share": 0.1,
        "pulls": 1,
        "calls": 2,
        "tokens": 3,
        "minutes": 1.5,
    }


def test_settings_of_the_machine(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("", ".env")
    monkeypatch.setenv("BESTARM_CATALOG_DIRS", f"one{os.pathsep}two")
    monkeypatch.setenv("BESTARM_STORE", "runs.sqlite")
    monkeypatch.setenv("BESTARM_DISPLAY", "")
    settings = Settings()
    assert settings.catalog_dirs == (Path("one"), Path("two"))
    assert settings.store == "runs.sqlite"
    assert settings.display == "auto"
    assert Settings(store="other").store == "other"


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("NO_COLOR", "1", True),
        ("NO_COLOR", "whatever", True),
        ("NO_COLOR", "", False),
        ("BESTARM_NO_COLOR", "true", True),
        ("BESTARM_NO_COLOR", "false", False),
    ],
)
def test_no_color_follows_the_convention(
    write: Write, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, expected: bool
) -> None:
    write("", ".env")
    monkeypatch.setenv(variable, value)
    assert Settings().no_color is expected


def test_wrong_variables_are_named(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("", ".env")
    monkeypatch.setenv("BESTARM_DISPLAY", "fancy")
    monkeypatch.setenv("BESTARM_SEED", "x")
    monkeypatch.setenv("BESTARM_BUDGET_USD", "much")
    with pytest.raises(ConfigError) as caught:
        Settings()
    assert str(caught.value) == (
        "BESTARM_DISPLAY must be 'auto', 'full', 'plain' or 'none', got \"fancy\"; "
        'BESTARM_SEED must be a whole number, got "x"; '
        'BESTARM_BUDGET_USD must be an amount of dollars such as 5 or "$5", got "much"'
    )


def test_the_process_beats_dotenv(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("ONE=file\nTWO=file\nBARE\n", ".env")
    monkeypatch.setenv("TWO", "process")
    found = environment()
    assert (found["ONE"], found["TWO"]) == ("file", "process")
    assert "BARE" not in found
