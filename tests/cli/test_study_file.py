"""The study file of a command: as an argument, as an option, or ``study.yaml`` of the folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import invoke
from tests.support.studies import write_study

Capsys = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("command", "said"),
    [("validate", "study.yaml is valid"), ("plan", "6 candidates x 40"), ("select", "Winner:")],
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
    done = invoke(capsys, "validate", "a.yaml", "-c", "b.yaml", folder=tmp_path)
    assert done.code == 2
    assert "two study files are named, a.yaml and --candidates b.yaml" in done.err
    done = invoke(capsys, "plan", folder=tmp_path)
    assert done.code == 2
    assert "bestarm-agent init" in done.err
