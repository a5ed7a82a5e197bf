"""How far the leading candidate may be from the best: worked out, worded, and shown everywhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bestarm_agent.cli.result_output import standing_json
from bestarm_agent.engine.results.standing import Status
from bestarm_agent.report.html_page import render_report
from bestarm_agent.report.words import headline, how_sure, verdict_line
from bestarm_agent.selectors.types import Guarantee
from tests.support.commands import invoke
from tests.support.standings import standing_with
from tests.support.studies import write_study

HALF_KNOWN = [[1.0] * 9 + [0.0], [1.0] * 7 + [0.0] * 3, [0.0] * 10]


def test_the_margin_is_the_most_that_any_interval_reaches_above_the_leading_one() -> None:
    standing = standing_with(["a", "b", "c"], HALF_KNOWN)
    best, *others = standing.rows
    assert standing.margin == pytest.approx(max(row.upper for row in others) - best.lower)
    assert standing.margin is not None
    assert 0 < standing.margin < 1


def test_a_leading_one_that_is_the_best_has_no_margin() -> None:
    standing = standing_with(["a", "b"], [[1.0] * 90, [0.0] * 90], n_examples=100)
    assert standing.separated
    assert standing.margin == 0.0


def test_nothing_is_within_nothing_before_any_score() -> None:
    standing = standing_with(["a", "b"], [[], []])
    assert standing.margin == 1.0
    assert how_sure(standing).startswith("best guess: at 95% 1 other cannot be ruled out (")


def test_how_sure_says_the_margin_rounded_up() -> None:
    standing = replace(standing_with(["a", "b", "c"], HALF_KNOWN), margin=0.0301)
    assert how_sure(standing).startswith(
        "best guess: at 95% it is within 0.031 of the best, and 1 other cannot be ruled out ("
    )


def test_good_enough_is_said_where_it_was_asked_for_and_is_shown() -> None:
    standing = replace(standing_with(["a", "b", "c"], HALF_KNOWN), margin=0.0301, within=0.05)
    assert standing.established
    assert not standing.is_best
    assert how_sure(standing).startswith("95% sure that it is within 0.05 of the best; 1 other may")
    assert verdict_line(standing).startswith("good enough: a")
    assert "is within 0.05 of the best (95% sure)." in headline(standing)[1]
    assert standing_json(standing)["within"] == 0.05
    assert not replace(standing, margin=0.06).established


def test_a_tie_that_is_known_in_full() -> None:
    standing = standing_with(["a", "b"], [[1.0, 0.0], [0.0, 1.0]], n_examples=2)
    assert (standing.margin, standing.separated) == (0.0, False)
    assert standing.rows[1].status is Status.OPEN
    assert "certain that none is better, but 1 other may be as good (exact" in how_sure(standing)


def test_a_heuristic_states_no_margin() -> None:
    standing = replace(
        standing_with(["a", "b", "c"], HALF_KNOWN), guarantee=Guarantee.HEURISTIC, margin=None
    )
    assert "within" not in how_sure(standing)
    assert standing_json(standing)["margin"] is None


def test_the_report_shows_the_margin() -> None:
    standing = standing_with(["a", "b", "c"], HALF_KNOWN)
    page = render_report(standing, config={}, failures=[], sessions=[])
    assert "of the best, and 1 other cannot be ruled out" in page


@pytest.mark.slow
def test_the_command_prints_the_margin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_study(tmp_path, n_examples=200, changes={"selector": {"name": "filled-subset"}})
    done = invoke(
        capsys, "select", "-c", path, "--quiet", "--json", "--budget-pulls", "480", folder=tmp_path
    )
    result = json.loads(done.out)
    low = result["best"]["interval"][0]
    rivals = [row for row in result["candidates"][1:] if row["state"] == "open"]
    assert 0 < result["margin"] <= max(row["interval"][1] for row in rivals) - low
    assert f"within 0.{-int(-1000 * result['margin'] // 1):03}" in result["how_sure"]


def test_a_models_opinion_is_labelled_as_one() -> None:
    standing = standing_with(["a", "b", "c"], HALF_KNOWN)
    assert standing.probability is None
    likely = replace(standing, probability=0.834)
    assert how_sure(likely).endswith("; the rule's model, which guarantees nothing, gives it 83%")
    assert standing_json(likely)["probability_of_best"] == 0.834
    assert how_sure(replace(standing, probability=0.9999)).endswith("gives it over 99%")
