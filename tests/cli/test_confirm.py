"""The winner's mean on the command line: confirmed, or corrected for the choice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands import invoke
from tests.support.studies import write_study

Capsys = pytest.CaptureFixture[str]
CHANGES = {"selector": {"name": "auto"}, "budget": {"pulls": 300}}


@pytest.mark.slow
def test_what_was_kept_back_confirms_the_winner_beside_the_baseline(
    tmp_path: Path, capsys: Capsys
) -> None:
    path = write_study(tmp_path, n_examples=100, changes=CHANGES)
    flags = ("--quiet", "--confirm", "20%", "--baseline", "c2")
    done = invoke(capsys, "select", path, *flags, folder=tmp_path)
    assert "Confirmed: c5: ." in done.out
    assert "on 20 examples kept back; 95% sure for examples like these" in done.out
    assert "Baseline:  c2: ." in done.out
    assert "Its mean" not in done.out
    found = json.loads(invoke(capsys, "show", "latest", "--json", folder=tmp_path).out)
    confirmed = found["winner_mean"]["confirmed"]
    assert confirmed["complete"]
    assert (confirmed["winner"]["label"], confirmed["winner"]["n"]) == ("c5", 20)
    low, high = confirmed["winner"]["interval"]
    assert 0 < low < confirmed["winner"]["mean"] < high < 1
    assert confirmed["baseline"]["label"] == "c2"
    [report] = (tmp_path / "runs").glob("*.html")
    page = report.read_text()
    assert "<strong>Confirmed</strong>: c5" in page
    assert "over all 80 examples that were not kept back" in page


@pytest.mark.slow
def test_without_it_the_joint_interval_stands_beside_a_mean_that_flatters(
    tmp_path: Path, capsys: Capsys
) -> None:
    path = write_study(tmp_path, n_examples=100, changes=CHANGES)
    done = invoke(capsys, "select", path, "--quiet", "--json", folder=tmp_path)
    found = json.loads(done.out)
    assert found["winner_mean"]["biased_upwards"]
    assert found["winner_mean"]["confirmed"] is None
    assert found["winner_mean"]["interval"] == found["winner"]["interval"]
    shown = invoke(capsys, "show", "latest", folder=tmp_path).out
    assert "tends to be too high, as it was chosen for it" in shown
    assert "in spite of the choice among 6" in shown


@pytest.mark.parametrize("n_candidates", [1, 2])
def test_a_mean_that_does_not_flatter_is_not_called_so(
    tmp_path: Path, capsys: Capsys, n_candidates: int
) -> None:
    # One candidate has no rival; of two that saw every example the means are known.
    path = write_study(tmp_path, n_candidates=n_candidates, n_examples=20)
    done = invoke(capsys, "select", path, "--quiet", "--json", folder=tmp_path)
    found = json.loads(done.out)
    assert not found["winner_mean"]["biased_upwards"]
    assert "too high" not in invoke(capsys, "show", "latest", folder=tmp_path).out
