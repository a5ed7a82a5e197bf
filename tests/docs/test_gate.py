"""What docs/gate.md shows works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.studies import write_study

DOCUMENT = Path(__file__).parents[2] / "docs" / "gate.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_example_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = {"models": [{"model": "replay/c0", "label": "current"}, "replay/c5"]}
    write_study(tmp_path, n_examples=200, changes=labels).rename(tmp_path / "study.yaml")
    monkeypatch.chdir(tmp_path)
    [example] = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    exec(compile(example, "gate.md", "exec"), {})
    said = capsys.readouterr().out
    assert re.search(r"^c5 passed 0\.\d+ \[-0\.0\d+, 0\.\d+\]$", said, re.MULTILINE), said


def test_links_lead_somewhere() -> None:
    for name in re.findall(r"\]\(([^)#]+)", TEXT):
        assert (DOCUMENT.parent / name).is_file(), name
