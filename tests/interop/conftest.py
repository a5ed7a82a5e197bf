from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands import invoke
from tests.support.studies import write_study


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with a run whose first candidate failed on one example."""
    write_study(tmp_path, n_candidates=2)
    rows = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    rows = [{**row, "text": "so be it", "input_tokens": 5, "output_tokens": 2} for row in rows]
    rows[1] = {"candidate": "c0", "example": "e1", "error": "internal"}
    (tmp_path / "scores.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert invoke(capsys, "select", "study.json", "--quiet", folder=tmp_path).code == 0
    return tmp_path
