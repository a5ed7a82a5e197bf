from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bestarm_agent.config.load import environment, load_study
from bestarm_agent.config.settings import Settings
from bestarm_agent.errors import ConfigError

Write = Callable[..., Path]

STUDY = 'models: [hf/a]\nprompts: [p: "{{ q }}"]\ndataset: d.jsonl\nscorer: exact\n'


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("BESTARM_") or name == "NO_COLOR":
            monkeypatch.delenv(name)


def test_defaults_come_last(write: Write) -> None:
    config = load_study(write(STUDY)).config
    assert (config.selector.seed, config.output_dir) == (0, "runs")


def test_the_file_beats_the_defaults(write: Write) -> None:
    config = load_study(write(STUDY + "selector: {seed: 1}\noutput_dir: file\n")).config
    assert (config.selector.seed, config.output_dir) == (1, "file")


def test_flags_beat_the_file_and_variables_say_nothing_of_a_study(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BESTARM_SEED", "3")
    text = STUDY + "selector: {seed: 1}\noutput_dir: file\n"
    config = load_study(write(text), {"selector.seed": 4}).config
    assert (config.selector.seed, config.output_dir) == (4, "file")
    assert load_study(write(text)).config.selector.seed == 1


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
    monkeypatch.setenv("BESTARM_LOG_LEVEL", "loud")
    with pytest.raises(ConfigError) as caught:
        Settings()
    assert str(caught.value) == (
        "BESTARM_LOG_LEVEL must be 'debug', 'info', 'warning' or 'error', got \"loud\"; "
        "BESTARM_DISPLAY must be 'auto', 'full', 'plain' or 'none', got \"fancy\""
    )


def test_a_line_that_is_no_variable_is_told_once_and_with_its_file(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    write('ONE=1\nFOO BAR\nexport BESTARM_STORE="a.sqlite"\nKEY="abc\n', ".env")
    assert (environment()["ONE"], Settings().store) == ("1", "a.sqlite")
    assert [record.getMessage() for record in caplog.records] == [
        f".env, line {line}: not NAME=value, or a quote without its end; passed over"
        for line in (2, 4)
    ]


def test_the_process_beats_dotenv(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("ONE=file\nTWO=file\nBARE\n", ".env")
    monkeypatch.setenv("TWO", "process")
    found = environment()
    assert (found["ONE"], found["TWO"]) == ("file", "process")
    assert "BARE" not in found
