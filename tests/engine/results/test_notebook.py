"""Results in notebooks and as Markdown: short, complete, with everything escaped."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bestarm_agent.cli.result_output import standing_json
from bestarm_agent.errors import ConfigError
from bestarm_agent.report.markdown import markdown
from tests.support.commands import invoke
from tests.support.standings import standing_with
from tests.support.studies import run_all, write_study

HOSTILE = "<img src=x onerror=alert(1)>|*b*"


def test_a_standing_shows_its_ranking_escaped() -> None:
    standing = standing_with([HOSTILE, "b"], [[1.0, 1.0, 0.0], [0.0]])
    shown = standing._repr_html_()
    assert "<img" not in shown
    assert "&lt;img" in shown
    assert "<td>2 of 3</td>" in shown
    assert len(repr(standing)) < 200
    assert repr(standing).startswith("<Standing of run 20260101-000000-abcd: best '<img")


def test_a_standing_becomes_a_frame_where_pandas_is(monkeypatch: pytest.MonkeyPatch) -> None:
    standing = standing_with(["a", "b"], [[1.0], []])
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match="pip install pandas"):
        standing.to_frame()
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    first, second = standing.to_frame()
    assert (first["candidate"], first["n"], first["state"]) == ("a", 1, "best")
    assert second["estimate"] is None


def test_markdown_names_the_winner_and_escapes_the_rest() -> None:
    text = markdown(standing_with([HOSTILE, "b"], [[1.0, 1.0], [0.0]], name=HOSTILE))
    plain = "\\<img src=x onerror=alert\\(1\\)\\>\\|\\*b\\*"
    assert f"**{plain}** leads; 1 other is still possible." in text
    assert f"| {plain} | 2/2 |" in text


@pytest.mark.slow
def test_the_command_writes_other_formats_next_to_the_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    standing = run_all(write_study(tmp_path, n_candidates=3, n_examples=10))
    written = Path(invoke(capsys, "report", "--format", "json", folder=tmp_path).out.strip())
    found = json.loads((tmp_path / written).read_text())
    assert found["effects"] == json.loads(json.dumps(standing_json(standing)["effects"]))
    written = Path(invoke(capsys, "report", "--format", "md", folder=tmp_path).out.strip())
    assert (tmp_path / written).read_text().startswith("## recorded\n")
