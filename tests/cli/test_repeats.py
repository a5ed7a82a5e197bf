"""Studies with repeats: what is told before and after, and which commands take part."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean, variance
from typing import Any

import pytest

from bestarm_agent.config.study.load import study_from
from bestarm_agent.domain.events import Told
from bestarm_agent.domain.outcome import Scored
from bestarm_agent.errors import ConfigError
from bestarm_agent.stats.keyed_random import KeyedRandom
from tests.support.commands import invoke
from tests.support.studies import events_of, run_all, write_study

N = 30
CONTENT: dict[str, Any] = {
    "models": ["replay/a"],
    "prompts": [{"q": "?"}],
    "dataset": "d",
    "scorer": "exact",
}
Capsys = pytest.CaptureFixture[str]


def drawn_study(folder: Path, n_draws: int = 3, **changes: Any) -> Path:  # noqa: ANN401
    """A study over recorded draws: candidate i is right on a draw with chance .3 + .1 i."""
    path = write_study(folder, n_candidates=4, n_examples=N, changes={"repeats": 3, **changes})
    rng = KeyedRandom(1, "draws").at(0)
    rows = [
        {
            "candidate": f"c{i}",
            "example": f"e{j}",
            "attempt": draw + 1,
            "score": float(rng.random() < 0.3 + 0.1 * i),
        }
        for i in range(4)
        for j in range(N)
        for draw in range(n_draws)
    ]
    (folder / "scores.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return path


def recorded(path: Path) -> dict[tuple[str, str], list[float]]:
    """The scores of each pair's draws, as they were recorded."""
    found: dict[tuple[str, str], list[float]] = {}
    for line in (path.parent / "scores.jsonl").read_text().splitlines():
        row = json.loads(line)
        found.setdefault((row["candidate"], row["example"]), []).append(row["score"])
    return found


def test_recorded_attempts_are_played_as_draws(tmp_path: Path) -> None:
    path = drawn_study(tmp_path)
    standing = run_all(path)
    assert (standing.spent.pulls, standing.spent.calls) == (4 * N, 4 * N * 3)
    means = {row.candidate.label: row.estimate for row in standing.rows}
    scores = recorded(path)
    for label, estimate in means.items():
        each = [mean(scores[label, f"e{j}"]) for j in range(N)]
        assert estimate == pytest.approx(mean(each))
    outcomes = [event.outcome for event in events_of(path) if isinstance(event, Told)]
    drawn = sorted(
        tuple(draw.value for draw in one.draws) for one in outcomes if isinstance(one, Scored)
    )
    assert drawn == sorted(map(tuple, scores.values()))


def test_the_plan_counts_all_draws(tmp_path: Path, capsys: Capsys) -> None:
    drawn_study(tmp_path, repeats={"draws": 3, "reduce": "pass@k"})
    plan = json.loads(invoke(capsys, "plan", "study.json", "--json", folder=tmp_path).out)
    assert plan["pulls"] == 4 * N
    assert plan["expected"]["calls"] == 4 * N * 3
    once = json.loads(
        invoke(capsys, "plan", drawn_study(tmp_path, repeats=1), "--json", folder=tmp_path).out
    )
    assert once["expected"]["calls"] == 4 * N


def test_a_plan_learns_from_a_run_with_another_number_of_draws(
    tmp_path: Path, capsys: Capsys
) -> None:
    path = drawn_study(tmp_path, repeats=1)
    run_all(path)
    drawn_study(tmp_path)
    plan = json.loads(invoke(capsys, "plan", path, "--json", folder=tmp_path).out)
    assert (plan["learned"], plan["expected"]["calls"]) == (True, 4 * N * 3)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"budget": {"calls": 90}}, "the study's budget ends after 30 of its 120 pairs of 3 draws"),
        (
            {"budget": {"share": 0.5}},
            "the study's budget ends after 60 of its 120 pairs of 3 draws",
        ),
        ({"budget": {"share": 0.5}, "repeats": {"draws": 3, "reduce": "worst"}}, None),
        ({"budget": {"share": 0.5}, "repeats": 1}, None),
        ({}, None),
    ],
)
def test_more_draws_than_the_examples_need_are_warned_of(
    tmp_path: Path, capsys: Capsys, changes: dict[str, Any], said: str | None
) -> None:
    done = invoke(capsys, "validate", drawn_study(tmp_path, **changes), folder=tmp_path)
    assert done.code == 0, done.err
    assert ("repeats: " in done.out + done.err) is (said is not None)
    assert said is None or said in " ".join((done.out + done.err).split())


def test_draws_at_temperature_0_are_warned_of(tmp_path: Path, capsys: Capsys) -> None:
    changes: dict[str, Any] = {
        "models": ["openai/alpha"],
        "params": {"temperature": [0, 1.0]},
        "providers": {"openai": {"base_url": "http://127.0.0.1:9/v1", "key": "none"}},
        "scorer": "exact",
        "dataset": {"path": "questions.jsonl", "target": "id"},
    }
    done = invoke(capsys, "validate", drawn_study(tmp_path, **changes), folder=tmp_path)
    assert done.code == 0, done.err
    said = " ".join((done.out + done.err).split())
    assert "repeats: 1 candidate at temperature 0, where 3 draws are (nearly) alike" in said


def test_a_gate_compares_reduced_scores(tmp_path: Path, capsys: Capsys) -> None:
    path = drawn_study(tmp_path, repeats={"draws": 3, "reduce": "majority"})
    done = invoke(
        capsys, "gate", path, "--baseline", "c0", "--margin", "0.9", "--json", folder=tmp_path
    )
    assert done.code == 0, done.err
    scores = recorded(path)
    for event in events_of(path):
        if isinstance(event, Told):
            assert event.score in (0.0, 1.0)
    assert all(len(drawn) == 3 for drawn in scores.values())
    assert json.loads(done.out)["verdict"] == "passed"


def test_a_run_is_not_resumed_with_another_number_of_draws(tmp_path: Path, capsys: Capsys) -> None:
    path = drawn_study(tmp_path)
    done = invoke(capsys, "select", path, "--quiet", "--budget-pulls", "12", folder=tmp_path)
    assert done.code == 0, done.err
    drawn_study(tmp_path, repeats=5)
    refused = invoke(capsys, "resume", "--quiet", folder=tmp_path)
    assert refused.code != 0
    assert "`repeats` is no longer what it was" in " ".join(refused.err.split())


@pytest.mark.parametrize(
    ("repeats", "problem"),
    [
        (0, "must be at least 1, got 0"),
        (True, "repeats"),
        ("3", "must be a whole number or a mapping"),
        ({"draws": 3, "reduce": "median"}, "reduce"),
    ],
)
def test_wrong_repeats_are_refused(repeats: Any, problem: str) -> None:  # noqa: ANN401
    assert study_from({**CONTENT, "repeats": 3}).config.repeats.draws == 3
    with pytest.raises(ConfigError, match=problem):
        study_from({**CONTENT, "repeats": repeats})


def test_certificates_are_about_single_replies() -> None:
    with pytest.raises(ConfigError, match="certifies single replies"):
        study_from({**CONTENT, "repeats": 3, "certify": {"risk": 0.1, "judge": "exact"}})


def test_the_spread_of_draws_is_told(tmp_path: Path, capsys: Capsys) -> None:
    path = drawn_study(tmp_path)
    found = json.loads(invoke(capsys, "select", path, "--json", "--quiet", folder=tmp_path).out)
    scores = recorded(path)
    for row in found["candidates"]:
        each = [scores[row["label"], f"e{j}"] for j in range(N)]
        within = sum(variance(drawn) for drawn in each) / N
        between = max(0.0, variance([mean(drawn) for drawn in each]) - within / 3)
        assert row["draws"] == {
            "n_examples": N,
            "n_draws": 3,
            "within": pytest.approx(within**0.5),
            "between": pytest.approx(between**0.5),
            "of_mean": pytest.approx((within / (3 * N)) ** 0.5),
            "share_if_drawn_once": pytest.approx((between + within) / (3 * between + within)),
        }
    shown = invoke(capsys, "show", folder=tmp_path).out
    assert "Draws:     new draws would move the mean of c3 by about ±.0" in shown
    page = (tmp_path / "runs" / f"{found['run']}.html").read_text(encoding="utf-8")
    assert "How much do draws vary?" in page


def test_draws_that_stop_early_have_no_spread(tmp_path: Path, capsys: Capsys) -> None:
    path = drawn_study(tmp_path, repeats={"draws": 3, "reduce": "pass@k"})
    done = invoke(capsys, "select", path, "--json", "--quiet", folder=tmp_path)
    assert all(row["draws"] is None for row in json.loads(done.out)["candidates"])


def test_a_run_that_leaves_examples_says_what_new_ones_would_have_told(
    tmp_path: Path, capsys: Capsys
) -> None:
    path = drawn_study(tmp_path)
    done = invoke(capsys, "select", path, "--quiet", "--budget-pulls", "60", folder=tmp_path)
    assert "new examples, drawn once, would have said as much" in " ".join(done.out.split())


def test_answers_list_the_draws(tmp_path: Path, capsys: Capsys) -> None:
    path = drawn_study(tmp_path)
    run_all(path)
    done = invoke(capsys, "answers", "--format", "jsonl", folder=tmp_path)
    scores = recorded(path)
    for line in done.out.splitlines():
        row = json.loads(line)
        values = [float(draw.split(":")[0]) for draw in row["draws"].splitlines()]
        assert values == scores[row["candidate"], row["example"]]
