"""The demo: a whole selection from recorded answers, which ends with an established winner."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.commands import invoke


@pytest.mark.slow
def test_the_demo_establishes_the_winner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = invoke(capsys, "demo", "--quiet", folder=tmp_path)
    assert done.code == 0
    assert re.search(r"Take sum-llama-113k/plain/t=0", done.out)
    assert "On new examples like these: " in done.out
    spent = re.search(r"Spent: ([\d,]+) of 30,000 answers", done.out)
    assert spent
    assert int(spent[1].replace(",", "")) < 6000
    assert "bestarm-agent init" in done.out
    assert list((tmp_path / "bestarm-demo").glob("*.html"))

    study = tmp_path / "bestarm-demo" / "study.yaml"
    few = ("select", "--candidates", study, "--budget-answers", "60", "--quiet")
    assert invoke(capsys, *few).code == 0
    assert invoke(capsys, *few, "--confidence", "0.95").code == 3, "so few calls do not show it"
