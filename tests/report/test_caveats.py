"""A verdict says what leaves it open: void pairs, unseen candidates, passed caps, prices."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bestarm_agent.cli.result_output import print_result, standing_json
from bestarm_agent.config.goal_specs import ObjectiveSpec, constraint_of
from bestarm_agent.domain.events import Asked, Told
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.domain.values import Outcome, Score
from bestarm_agent.engine.results.decision import objective_text, passed_caps, proved
from bestarm_agent.engine.results.from_log import cost_breakdown
from bestarm_agent.engine.results.standing import ProblemKind, Standing
from bestarm_agent.report.html_page import render_report
from bestarm_agent.report.markdown import markdown
from bestarm_agent.report.words import budget_line, missing_line, time_used
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem, State, Tell
from bestarm_agent.store.codec import line_of
from tests.support.commands import invoke
from tests.support.standings import changed, standing_of, standing_with, state_of
from tests.support.studies import write_study


def with_voids(n_void: int, n_wrong: int, *, other: float, name: str = "auto") -> Standing:
    """Two candidates on 100 examples, 40 asked of each: one fails on some of its wrong answers."""
    selector = make_selector(name, Problem(2, 100, seed=1, stop_when_separated=False))
    for i in range(2):
        for k in range(40):
            [ask] = selector.ask(allowed=np.arange(2) == i)
            if i == 0 and k < n_void:
                tell = Tell(ask.seq, State.VOID)
            elif i == 0:
                tell = Tell(ask.seq, State.DONE, float(k >= n_void + n_wrong))
            else:
                tell = Tell(ask.seq, State.DONE, float(k < other * 40))
            selector.tell([tell])
    return standing_of(["a", "b"], selector, 100)


def test_voids_that_could_change_the_winner_are_said() -> None:
    standing = with_voids(12, 4, other=0.7)
    assert standing.best is not None
    assert standing.best.candidate.label == "a"
    assert standing.decision.chance is None
    assert "Answers that are missing could change who leads." in standing.decision.said
    assert missing_line(standing) == (
        "range of the mean, had the missing answers scored 0 or 1: a 60 to 90 % (12 missing), "
        "b 70 to 70 % (none missing)"
    )
    assert "probably" not in standing.decision.text


def test_voids_that_cannot_change_the_winner_leave_the_probability() -> None:
    standing = with_voids(1, 2, other=0.2)
    assert standing.decision.chance is not None
    assert missing_line(standing) == ""


def test_an_unseen_candidate_leaves_the_winner_open() -> None:
    standing = standing_with(["a", "b", "c"], [[1.0], [0.0], []], n_examples=10)
    assert standing.decision.chance is None
    assert [one.label for one in standing.decision.unmeasured] == ["c"]


def test_a_single_candidate_is_not_called_the_best() -> None:
    standing = standing_with(["a"], [[1.0, 0.0]], n_examples=10)
    assert standing.decision.chance is None
    assert standing.decision.said[0] == (
        "a is the only candidate, so nothing was compared: 1 of 2 right."
    )


def test_a_passed_cap_is_said_first_with_its_size_and_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    standing = changed(
        standing_with(["a", "b"], [[1.0], [0.0]], n_examples=10),
        spent=Spend(calls=3, usd_nanos=2_000_000_000),
        budget=Budget(usd_nanos=100_000_000, calls=3, seconds=60.0),
        seconds=610.0,
    )
    assert passed_caps(standing) == [
        "$2.00 of $0.10, $1.90 too much: calls cost more than their providers said they could",
        "10:10 of 1:00, 9:10 too long: calls in flight were waited for",
    ]
    print_result(standing, as_json=False)
    first, *_ = (line for line in capsys.readouterr().out.splitlines() if ":" in line)
    assert first.startswith("Cap passed: $2.00 of $0.10, $1.90 too much")
    assert standing.decision.problem is not None
    assert standing.decision.problem.kind is ProblemKind.CAP_PASSED
    page = render_report(standing, config={}, failures=[], sessions=[])
    assert "Cap passed: $2.00 of $0.10" in page
    assert standing_json(standing)["caps_passed"] == passed_caps(standing)
    within = replace(standing, spent=Spend(), seconds=60.2)
    assert passed_caps(within) == []


def test_an_unknown_price_is_never_a_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_study(tmp_path, n_candidates=2, n_examples=10)
    rows = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    for row in rows:
        del row["usd"]
    (tmp_path / "scores.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shown = invoke(capsys, "select", "-c", path, "--quiet")
    assert "cost unknown" in shown.out
    assert "$0" not in shown.out
    planned = invoke(capsys, "plan", "-c", path)
    assert "$0" not in planned.out
    found = json.loads(invoke(capsys, "show", "--json", folder=tmp_path).out)
    assert found["spent"]["usd"] is None
    assert {row["spend"]["usd"] for row in found["rows"]} == {None}
    page = next((tmp_path / "runs").glob("*.html")).read_text(encoding="utf-8")
    assert "$0" not in page
    assert "unknown" in page


def test_a_known_price_of_nothing_stays_a_zero() -> None:
    assert "$0" in budget_line(standing_with(["a", "b"], [[1.0], [0.0]], n_examples=10))


def test_the_time_is_said_once_against_its_cap() -> None:
    standing = standing_with(["a", "b"], [[1.0], [0.0]], budget=Budget(seconds=90.0))
    assert time_used(standing) == "1:15 of 1:30"
    assert "1:15 of 1:30; running" in markdown(standing)
    assert "1:15" not in budget_line(standing)


def test_what_was_chosen_is_said_as_it_was_chosen() -> None:
    assert proved(0.975) == "proved at 97.5 %"
    assert constraint_of("ease", ">= 0.725").text == "ease >= 72.5 %"
    assert objective_text(ObjectiveSpec(at_least=0.725)).endswith("at least 72.5 %")


def test_a_judge_without_a_price_makes_the_cost_unknown() -> None:
    state = state_of(["a"], 5)
    state.started = replace(state.started, judge_priced=False)
    spend, judging = Spend(calls=3), Spend(calls=2)
    told = Told(0, Outcome(Score(1.0), None, spend, judging), 1.0)
    state.take([line_of(event) for event in (Asked(0, 0, 0, "ucb"), told)])
    lines = {line.what: line.priced for line in cost_breakdown(state, Spend(calls=4))}
    assert lines == {
        "p: answered calls of candidates": True,
        "judging": False,
        "answers under way": False,
    }


def halves(right: int, n: int = 40) -> list[float]:
    """Scores in an order of their own, so that two candidates are right on different examples."""
    scores = [1.0] * right + [0.0] * (n - right)
    return [float(x) for x in np.random.default_rng(right).permutation(scores)]


def test_a_leader_leads_so_far_until_the_run_has_ended() -> None:
    open_one = standing_with(["a", "b"], [halves(30), halves(22)], n_examples=2000)
    first, second, *_ = open_one.decision.said
    assert first == "a leads so far: 30 of 40 right."
    assert second == "1 other (b) could still win."
    settled = standing_with(["a", "b"], [[1.0] * 90, [0.0] * 90], n_examples=100)
    first, second, *_, last, _ = changed(settled, end="separated").decision.said
    assert first == "Take a: 90 of 90 right."
    assert second == "More calls on these examples would not change that."
    assert last.endswith("proved to be the best there too, at 95 %.")


def test_an_estimate_without_a_score_leaves_the_winner_open() -> None:
    """Rules that know axes have one of candidates that were never asked."""
    standing = standing_with(["a", "b", "c"], [halves(30), halves(22), []], n_examples=2000)
    rows = [replace(row, estimate=row.estimate or 0.9) for row in standing.rows]
    rows.sort(key=lambda row: -(row.estimate or 0))
    guessed = changed(standing, rows=tuple(rows))
    assert guessed.best is not None
    assert not guessed.best.n
    assert guessed.decision.take != guessed.best.candidate.label, "it has no score"
