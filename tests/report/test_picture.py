"""Pictures of a run: drawn in every state, with names that would be markup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bestarm_agent.errors import ConfigError
from bestarm_agent.report.picture import draw_standing
from tests.support.commands import invoke
from tests.support.standings import standing_with
from tests.support.studies import run_all, store_of, write_study

Capsys = pytest.CaptureFixture[str]
LABELS = ["costs $5 and $6", "<b>&\x1b[31m", "broken", *[f"c{i}" for i in range(20)]]


def texts_of(path: Path) -> str:
    return " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text(encoding="utf-8")))


def test_verdict_ranking_and_states_are_drawn(tmp_path: Path) -> None:
    scores = [[1.0] * 20, [1.0] * 9, [0.0], *[[0.0] * 20] * 20]
    standing = standing_with(LABELS, scores, broken={"broken": "HTTP 404"}, name="a $x$ name")
    draw_standing(standing, tmp_path / "run.svg")
    drawn = texts_of(tmp_path / "run.svg")
    for text in ("a $x$ name", "costs $5 and $6", "&lt;b&gt;&amp;\ufffd[31m", "20/20", "○ open"):
        assert text in drawn
    assert "– beaten" in drawn
    assert "... and 11 more" in drawn
    assert "Effect of model" in drawn


def test_nothing_was_scored_yet(tmp_path: Path) -> None:
    draw_standing(standing_with(["a", "b"], [[], []]), tmp_path / "run.svg")
    assert "No score yet" in texts_of(tmp_path / "run.svg")


def test_report_writes_a_picture(tmp_path: Path, capsys: Capsys) -> None:
    path = write_study(tmp_path, n_candidates=3, n_examples=10)
    run_all(path)
    done = invoke(capsys, "report", "--format", "png", "--store", store_of(path))
    written = Path(done.out.strip())
    assert (done.code, written.suffix) == (0, ".png")
    assert written.read_bytes().startswith(b"\x89PNG")


def test_a_format_that_cannot_be_drawn_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"written as .svg, .png, .pdf"):
        draw_standing(standing_with(["a"], [[1.0]]), tmp_path / "run.gif")
