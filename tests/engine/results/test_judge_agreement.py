"""A judge held against gold scores: of a stored run, of labelled answers, in the report."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bestarm_agent import Study
from bestarm_agent.cli.main import app
from bestarm_agent.config.datasets import Label, answer_digest, load_labels
from bestarm_agent.domain.spend import Spend
from bestarm_agent.engine.results.judge_check import (
    JudgedAnswer,
    JudgedLabels,
    check_judge,
)
from bestarm_agent.errors import ConfigError
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.study import Archive

N_EXAMPLES = 40
CANDIDATES = ("a", "b", "c")


def truth(candidate: str, j: int) -> float:
    """The gold score of a candidate's answer: a is right in 3 of 4, b in 2 of 4, c in 1 of 4."""
    return float(j % 4 < 3 - CANDIDATES.index(candidate))


def judged(candidate: str, j: int) -> float:
    """The judge calls every fifth answer of c right, whatever it says."""
    return 1.0 if candidate == "c" and j % 5 == 0 else truth(candidate, j)


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("\n".join(map(json.dumps, rows)))


def write_study(folder: Path, **changes: object) -> Path:
    rows: list[dict[str, Any]] = []
    for name in CANDIDATES:
        for j in range(N_EXAMPLES):
            rows.append({"candidate": name, "example": f"e{j}", "text": f"{name} on {j}"})
            said = json.dumps({"verdict": "good" if judged(name, j) else "bad"})
            pair = {"candidate": "judge", "example": f"{name}/e{j}", "text": said, "usd": 0.002}
            rows.append(pair)
    write_lines(folder / "calls.jsonl", rows)
    write_lines(folder / "examples.jsonl", [{"id": f"e{j}", "q": "?"} for j in range(N_EXAMPLES)])
    study = {
        "models": [f"replay/{name}" for name in CANDIDATES],
        "prompts": [{"p": "{{ q }}"}],
        "dataset": "examples.jsonl",
        "scorer": {
            "name": "rubric",
            "model": "replay/judge",
            "scale": {"bad": 0, "good": 1},
            "attempts": 1,
        },
        "providers": {"replay": {"path": "calls.jsonl"}},
        "selector": {"name": "uniform", "stop_when_separated": False},
        **changes,
    }
    path = folder / "study.json"
    path.write_text(json.dumps(study))
    return path


def run(path: Path) -> None:
    async def scene() -> None:
        async with Study.open(path) as study:
            await study.run()
            await study.write_report(path.with_name("live.html"))

    asyncio.run(scene())


def gold_rows(n: int = N_EXAMPLES) -> list[dict[str, Any]]:
    return [
        {"candidate": name, "example": f"e{j}", "score": truth(name, j)}
        for name in CANDIDATES
        for j in range(n)
    ]


@pytest.mark.slow
def test_labels_join_the_report(tmp_path: Path) -> None:
    labels = [*gold_rows(), {"candidate": "z", "example": "e1", "score": 1}]
    write_lines(tmp_path / "gold.jsonl", labels)
    run(write_study(tmp_path, labels="gold.jsonl"))
    record = asyncio.run(Archive(tmp_path / "runs" / "runs.sqlite").record("latest"))
    check = record.check
    assert check is not None
    assert len(check.comparison.pairs) == 3 * N_EXAMPLES
    wrong = sum(judged("c", j) != truth("c", j) for j in range(N_EXAMPLES))
    assert wrong == 6
    assert check.measures["agreement"].value == pytest.approx(1 - wrong / 120)
    assert check.measures["sensitivity"].value == 1.0
    assert check.measures["specificity"].value == pytest.approx(1 - wrong / 60)
    assert check.usd_per_1000 == pytest.approx(2.0)
    page = (tmp_path / "live.html").read_text()
    assert "Judge against labels" in page
    assert "120 of 121 labels are about an answer that was scored" in page


@pytest.mark.slow
def test_a_report_without_labels_has_no_such_section(tmp_path: Path) -> None:
    run(write_study(tmp_path))
    page = (tmp_path / "live.html").read_text()
    assert "Judge against labels" not in page
    assert "The latest 100 judgements" in page


@pytest.mark.slow
def test_markup_from_a_judge_is_inert_in_the_report(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    calls = (tmp_path / "calls.jsonl").read_text()
    attack = "<script>alert(1)</script>\x1b[2J"
    said = json.dumps(json.dumps(attack))[1:-1]
    (tmp_path / "calls.jsonl").write_text(calls.replace('\\"bad\\"', said))
    run(path)
    page = (tmp_path / "live.html").read_text()
    assert "<script>alert" not in page
    assert "alert(1)</script>" not in page
    assert "\x1b" not in page
    assert "&lt;script&gt;alert(1)" in page, "it is shown as the text that it is"
    assert "judge-failed" in page


@pytest.mark.slow
def test_the_command_checks_a_stored_run(tmp_path: Path) -> None:
    run(write_study(tmp_path))
    with (tmp_path / "gold.csv").open("w", newline="") as file:
        rows = [
            {"answer_digest": answer_digest(f"{r['candidate']} on {r['example'][1:]}"), **r}
            for r in gold_rows(10)
        ]
        writer = csv.DictWriter(file, ["answer_digest", "example", "score"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    store = str(tmp_path / "runs" / "runs.sqlite")
    command = ["judge", "check", "latest", str(tmp_path / "gold.csv"), "--store", store]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0, shown.output
    assert "30 of 30 labels compared, 0 without a score" in shown.output
    result = json.loads(CliRunner().invoke(app, [*command, "--json"]).output)
    wrong = sum(judged("c", j) != truth("c", j) for j in range(10))
    assert result["measures"]["agreement"]["value"] == pytest.approx(1 - wrong / 30)
    assert result["compared"] == 30


def test_the_command_lets_a_judge_score_labelled_answers(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    rows = [{**r, "answer": f"{r['candidate']} on {r['example'][1:]}"} for r in gold_rows(5)]
    rows.append({"candidate": "nobody", "example": "e1", "score": 0, "answer": "unrecorded"})
    write_lines(tmp_path / "gold.jsonl", rows)
    command = ["judge", "check", str(path), str(tmp_path / "gold.jsonl"), "--json"]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0, shown.output
    result = json.loads(shown.stdout)  # a slow machine says on stderr what it does
    assert (result["labels"], result["compared"], result["judge_failed"]) == (16, 15, 1)
    wrong = sum(judged("c", j) != truth("c", j) for j in range(5))
    assert result["measures"]["agreement"]["value"] == pytest.approx(1 - wrong / 15)
    assert result["usd_per_1000"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"example": "e0", "score": 0, "candidate": "a"}, "this answer has another score already"),
        ({"example": "e1", "score": 2, "candidate": "a"}, "`score`"),
        ({"example": "e1", "score": 1}, "needs `candidate`, `answer` or `answer_digest`"),
        ({"score": 1, "candidate": "a"}, "`example` is missing"),
    ],
)
def test_bad_labels_are_named(tmp_path: Path, row: dict[str, object], message: str) -> None:
    first = {"example": "e0", "score": 1, "candidate": "a"}
    write_lines(tmp_path / "gold.jsonl", [first, row])
    with pytest.raises(ConfigError, match=rf"line 2.*{message}"):
        load_labels(tmp_path / "gold.jsonl")


def test_answers_are_needed_where_nothing_was_run(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    for row, message in (
        ({"example": "e1", "score": 1, "candidate": "a"}, "holds no `answer`"),
        ({"example": "e99", "score": 1, "answer": "x"}, "no example `e99`"),
    ):
        write_lines(tmp_path / "gold.jsonl", [row])
        shown = CliRunner().invoke(app, ["judge", "check", str(path), str(tmp_path / "gold.jsonl")])
        assert isinstance(shown.exception, ConfigError)
        assert message in str(shown.exception)


def compared(judged: float, gold: float, *, n_chars: int = 10) -> JudgedAnswer:
    return JudgedAnswer(judged, gold, n_chars, Spend())


def test_length_bias_is_found_where_it_is_planted() -> None:
    rng = KeyedRandom(0, "planted").at(0)
    pairs = []
    for i in range(300):
        gold = float(rng.random() < 0.5)
        long = i % 2 == 0
        score = 1.0 if long and rng.random() < 0.4 else gold  # long answers are flattered
        pairs.append(compared(score, gold, n_chars=900 if long else 100))
    check = check_judge(JudgedLabels(tuple(pairs), 300), 0.95)
    assert check.measures["length bias"].lower > 0.05
    assert check.measures["length bias"].value == pytest.approx(0.2, abs=0.07)


def test_a_fair_judge_shows_no_bias() -> None:
    pairs = [compared(float(i % 2), float(i % 2), n_chars=i) for i in range(200)]
    check = check_judge(JudgedLabels(tuple(pairs), 200), 0.95)
    assert check.measures["kappa"].value == pytest.approx(1.0)
    assert check.measures["length bias"].lower < 0 < check.measures["length bias"].upper


def test_nothing_to_compare_is_an_error() -> None:
    with pytest.raises(ConfigError, match="none of 3 labels is about an answer"):
        check_judge(JudgedLabels((), 3), 0.95)


def test_what_judging_costs_is_unknown_without_the_judges_price() -> None:
    pairs = (compared(1, 1),)
    assert check_judge(JudgedLabels(pairs, 1), 0.95).usd_per_1000 is not None
    assert check_judge(JudgedLabels(pairs, 1, priced=False), 0.95).usd_per_1000 is None


def test_a_judge_that_failed_on_everything_is_told_by_its_last_failure(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    row = {"candidate": "nobody", "example": "e1", "score": 0, "answer": "unrecorded"}
    write_lines(tmp_path / "gold.jsonl", [row])
    shown = CliRunner().invoke(app, ["judge", "check", str(path), str(tmp_path / "gold.jsonl")])
    assert isinstance(shown.exception, ConfigError)
    assert "failed on 1 of them, the last time: judge model " in str(shown.exception)


def test_labels_by_text_carry_its_digest(tmp_path: Path) -> None:
    write_lines(tmp_path / "g.jsonl", [{"example": 7, "score": 0.5, "answer": "46"}])
    label = Label(example="7", score=0.5, answer="46", answer_digest=answer_digest("46"))
    assert load_labels(tmp_path / "g.jsonl") == (label,)
