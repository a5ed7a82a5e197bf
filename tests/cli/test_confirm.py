"""The winner's mean on examples kept back, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands import invoke
from tests.support.studies import write_study

Capsys = pytest.CaptureFixture[str]
CHANGES = {"selector": {"name": "auto"}, "budget": {"answers": 300}}


@pytest.mark.slow
def test_what_was_kept_back_confirms_the_winner(tmp_path: Path, capsys: Capsys) -> None:
    path = write_study(tmp_path, n_examples=100, changes=CHANGES)
    done = invoke(capsys, "select", path, "--quiet", "--confirm", "20%", folder=tmp_path)
    assert "Confirmed: c5: " in done.out
    assert "on 20 examples kept back; 95 % sure for new ones" in done.out
    found = json.loads(invoke(capsys, "show", "latest", "--json", folder=tmp_path).out)
    confirmed = found["confirmation"]
    assert (confirmed["label"], confirmed["n"]) == ("c5", 20)
    mean = confirmed["mean"]
    assert 0 < mean["lower"] < mean["value"] < mean["upper"] < 1
    [report] = (tmp_path / "runs").glob("*.html")
    page = report.read_text()
    assert "<strong>Confirmed</strong>: c5" in page
    assert "on all 80 examples that were not kept back" in page
