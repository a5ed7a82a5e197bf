"""Files that commands read and write: read-only stores, permissions of reports and exports."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import bestarm_agent
from tests.support.commands import invoke
from tests.support.studies import write_study

Capsys = pytest.CaptureFixture[str]
PACKAGE = Path(bestarm_agent.__file__)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose parents everybody can enter."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Let everybody read a folder and its files, and nobody write them, not even root."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    is_root = os.geteuid() == 0
    if is_root:
        if not all(parent.stat().st_mode & stat.S_IXOTH for parent in PACKAGE.parents):
            pytest.skip("the package lies in a folder that only root may enter")
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)


@pytest.mark.slow
def test_a_store_where_nothing_may_be_written_is_to_be_copied(folder: Path, capsys: Capsys) -> None:
    path = write_study(folder)
    invoke(capsys, "select", "-c", path, "--quiet", "--budget-answers", "50", folder=folder)
    store = folder / "runs" / "runs.sqlite"
    with chdir(folder), read_only(store.parent):
        done = invoke(capsys, "show", "--store", store)
    assert done.code == 1
    assert "make it and its folder writable, or copy it" in done.err


def test_reports_and_exports_are_for_the_user_alone(tmp_path: Path, capsys: Capsys) -> None:
    path = write_study(tmp_path)
    before = os.umask(0o022)
    try:
        invoke(capsys, "select", "-c", path, "--quiet", "--budget-answers", "50", folder=tmp_path)
        for ending in ("csv", "jsonl", "parquet"):
            invoke(capsys, "export", "--out", tmp_path / f"s.{ending}", folder=tmp_path)
        shown = tmp_path / "page.html"
        shown.touch(0o644)
        invoke(capsys, "report", "--out", shown, folder=tmp_path)
    finally:
        os.umask(before)
    made = [*tmp_path.glob("s.*"), shown, *(tmp_path / "runs").rglob("*.html")]
    assert len(made) == 5
    assert {stat.S_IMODE(file.stat().st_mode) for file in made} == {0o600}
    assert stat.S_IMODE((tmp_path / "runs" / "runs.sqlite").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("demo .", "study.yaml is there already, and not the demo's"),
        ("import logs.csv --study .", "study.yaml exists already and is not overwritten"),
        ("report --out study.yaml", "study.yaml does not end like a report"),
        ("report --format md --out study.html", "study.html does not end like a report"),
        ("gate --markdown runs", "runs is a folder; name a file in it"),
        ("gate --junit absent/junit.xml", "there is no folder absent"),
        ("optimize --proposer mine:f --out runs", "runs is a folder"),
        ("plan sheet.yaml", "export it as one of these (a spreadsheet as CSV)"),
    ],
)
def test_what_a_user_has_is_not_replaced_and_files_are_checked_first(
    tmp_path: Path, capsys: Capsys, command: str, said: str
) -> None:
    study = write_study(tmp_path).rename(tmp_path / "study.yaml")
    (tmp_path / "mine.py").write_text("def f(feedback): pass\n")
    (tmp_path / "logs.csv").write_text("candidate,example,score\na,e,1\n")
    (tmp_path / "sheet.xlsx").write_bytes(b"PK")
    sheet = study.read_text().replace("questions.jsonl", "sheet.xlsx")
    (tmp_path / "sheet.yaml").write_text(sheet)
    (tmp_path / "runs").mkdir()
    before = study.read_text()
    done = invoke(capsys, *command.split(), folder=tmp_path)
    assert done.code == 2
    assert said in " ".join(done.err.split())
    assert study.read_text() == before
