"""How far the leading candidate may be from the best: worked out, worded, and shown everywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bestarm_agent.cli.result_output import standing_json
from bestarm_agent.engine.results.standing import Status
from bestarm_agent.selectors.types import Guarantee
from tests.support.commands import invoke
from tests.support.standings import changed, standing_with
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
    assert standing.decision.said == ("No score yet.",)
    assert not standing.decision.proved


def test_good_enough_is_said_where_it_was_asked_for_and_is_proved() -> None:
    standing = standing_with(["a", "b", "c"], HALF_KNOWN, n_examples=50)
    standing = changed(standing, margin=0.0301, within=0.05, end="within")
    assert standing.decision.proved
    assert "proved to be at most 5 points below the best of these" in standing.decision.said[1]
    assert standing_json(standing)["within"] == 0.05
    assert not changed(standing, margin=0.06).decision.proved


def test_a_tie_that_is_known_in_full() -> None:
    standing = standing_with(["a", "b"], [[1.0, 0.0], [0.0, 1.0]], n_examples=2)
    standing = changed(standing, end="indifferent")
    assert (standing.margin, standing.separated) == (0.0, False)
    assert standing.rows[1].status is Status.EQUAL
    assert "2 examples are too few to choose by; use at least 30" in standing.decision.text
    of_one = changed(standing, n_independent=1, unit="cluster").decision.said
    assert of_one[-2:] == (
        "But 1 cluster is too few to choose by; use at least 30.",
        "Next: add examples of other clusters.",
    )


def test_a_heuristic_proves_nothing() -> None:
    standing = standing_with(["a", "b", "c"], HALF_KNOWN, n_examples=50)
    standing = changed(standing, guarantee=Guarantee.HEURISTIC, margin=None)
    assert "chosen by a model of the scores, which proves nothing" in standing.decision.text
    assert standing_json(standing)["margin"] is None


@pytest.mark.slow
def test_the_command_tells_the_margin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_study(tmp_path, n_examples=200, changes={"selector": {"name": "uniform"}})
    done = invoke(
        capsys,
        "select",
        "-c",
        path,
        "--quiet",
        "--json",
        "--budget-answers",
        "480",
        folder=tmp_path,
    )
    result = json.loads(done.out)
    low = result["rows"][0]["lower"]
    rivals = [row for row in result["rows"][1:] if row["status"] == "undecided"]
    assert 0 < result["margin"] <= max(row["upper"] for row in rivals) - low
