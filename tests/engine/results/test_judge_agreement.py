"""A judge held against gold scores: of a stored run, of labelled answers, in the report."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bestarm_agent import Study
from bestarm_agent.cli.main import app
from bestarm_agent.config.labels import Label, answer_digest, load_labels
from bestarm_agent.domain.spend import Spend
from bestarm_agent.engine.results.judge_check import (
    JudgedAnswer,
    JudgedLabels,
    check_judge,
)
from bestarm_agent.errors import ConfigError
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.study import Archive
from tests.support.studies import RECORDED, study_file, write_lines

N_EXAMPLES = 40
CANDIDATES = ("a", "b", "c")


def truth(candidate: str, j: int) -> float:
    """The gold score of a candidate's answer: a is right in 3 of 4, b in 2 of 4, c in 1 of 4."""
    return float(j % 4 < 3 - CANDIDATES.index(candidate))


def judged(candidate: str, j: int) -> float:
    """The judge calls every fifth answer of c right, whatever it says."""
    return 1.0 if candidate == "c" and j % 5 == 0 else truth(candidate, j)


def write_study(folder: Path, **changes: object) -> Path:
    rows: list[dict[str, Any]] = []
    for name in CANDIDATES:
        for j in range(N_EXAMPLES):
            rows.append({"candidate": name, "example": f"e{j}", "text": f"{name} on {j}"})
            said = json.dumps({"verdict": "good" if judged(name, j) else "bad"})
            pair = {"candidate": "judge", "example": f"{name}/e{j}", "text": said, "usd": 0.002}
            rows.append(pair)
    scale = {"bad": 0, "good": 1}
    return study_file(
        folder,
        {"rows": [{"id": f"e{j}", "q": "?"} for j in range(N_EXAMPLES)], "calls": rows},
        providers=RECORDED,
        models=[f"replay/{name}" for name in CANDIDATES],
        scorer={"name": "rubric", "model": "replay/judge", "scale": scale, "attempts": 1},
        **changes,
    )


def run(path: Path) -> str:
    """Run a study; return its report."""

    async def scene() -> None:
        async with Study.open(path) as study:
            await study.run()
            await study.write_report(path.with_name("live.html"))

    asyncio.run(scene())
    return path.with_name("live.html").read_text()


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
    page = run(write_study(tmp_path, labels="gold.jsonl"))
    record = asyncio.run(Archive(tmp_path / "runs" / "runs.sqlite").record("latest"))
    check = record.check
    assert check is not None
    assert len(check.comparison.pairs) == 3 * N_EXAMPLES
    wrong = sum(judged("c", j) != truth("c", j) for j in range(N_EXAMPLES))
    assert wrong == 6
    found = {name: check.measures[name].value for name in ("agreement", "sensitivity")}
    assert found == pytest.approx({"agreement": 1 - wrong / 120, "sensitivity": 1.0})
    assert check.measures["specificity"].value == pytest.approx(1 - wrong / 60)
    assert check.usd_per_1000 == pytest.approx(2.0)
    assert "Judge against labels" in page
    assert "120 of 121 labels are about an answer that was scored" in page


@pytest.mark.slow
def test_markup_from_a_judge_is_inert_in_a_report_without_labels(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    calls = (tmp_path / "calls.jsonl").read_text()
    said = json.dumps(json.dumps("<script>alert(1)</script>\x1b[2J"))[1:-1]
    (tmp_path / "calls.jsonl").write_text(calls.replace('\\"bad\\"', said))
    page = run(path)
    for attack in ("<script>alert", "alert(1)</script>", "\x1b"):
        assert attack not in page
    assert "&lt;script&gt;alert(1)" in page, "it is shown as the text that it is"
    assert "judge failed" in page
    assert "Judge against labels" not in page
    assert " judgements" in page


def checked(*command: str | Path) -> Any:  # noqa: ANN401 - JSON
    """Check a judge on the command line; return what it prints as JSON."""
    shown = CliRunner().invoke(app, ["judge", "check", *map(str, command), "--json"])
    if shown.exception is not None:
        raise shown.exception
    return json.loads(shown.stdout)  # a slow machine says on stderr what it does


def test_a_label_of_a_text_that_several_candidates_gave_counts_once(tmp_path: Path) -> None:
    replies = [
        {"candidate": name, "example": f"e{j}", "text": "x"} for name in "ab" for j in range(4)
    ]
    gold = [{"example": f"e{j}", "answer": "x", "score": 1} for j in range(3)]
    gold += [{"example": "e0", "answer": "y", "score": 0}]
    files: dict[str, list[dict[str, Any]]] = {
        "replies": replies,
        "rows": [{"id": f"e{j}", "q": f"{j}", "target": "x"} for j in range(4)],
        "gold": gold,
    }
    path = study_file(
        tmp_path,
        files,
        dataset={"path": "rows.jsonl", "target": "target"},
        models=["replay/a", "replay/b"],
        scorer="exact",
        providers={"replay": {"path": "replies.jsonl"}},
        selector={"stop_when_separated": False},
        labels="gold.jsonl",
    )
    page = run(path)
    where: list[str | Path] = ["latest", "--store", tmp_path / "runs" / "runs.sqlite"]
    shown = CliRunner().invoke(app, ["judge", "check", *map(str, where)])
    assert "3 of 4 labels compared with 6 answers, 1 without a score, 0 on" in shown.output
    result = checked(*where)
    assert [result[key] for key in ("labels", "compared", "answers")] == [4, 3, 6]
    assert "3 of 4 labels are about an answer that was scored" in page


@pytest.mark.slow
def test_the_command_checks_a_stored_run(tmp_path: Path) -> None:
    run(write_study(tmp_path))
    lines = ["answer_digest,example,score"]
    for row in gold_rows(10):
        digest = answer_digest(f"{row['candidate']} on {row['example'][1:]}")
        lines.append(f"{digest},{row['example']},{row['score']}")
    (tmp_path / "gold.csv").write_text("\n".join(lines))
    command: list[str | Path] = [
        "latest",
        tmp_path / "gold.csv",
        "--store",
        tmp_path / "runs" / "runs.sqlite",
    ]
    shown = CliRunner().invoke(app, ["judge", "check", *map(str, command)])
    assert "30 of 30 labels compared, 0 without a score" in shown.output
    result = checked(*command)
    wrong = sum(judged("c", j) != truth("c", j) for j in range(10))
    assert result["measures"]["agreement"]["value"] == pytest.approx(1 - wrong / 30)
    assert result["compared"] == 30


UNRECORDED = {"candidate": "nobody", "example": "e1", "score": 0, "answer": "unrecorded"}


def test_the_command_lets_a_judge_score_labelled_answers(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    rows = [{**r, "answer": f"{r['candidate']} on {r['example'][1:]}"} for r in gold_rows(5)]
    write_lines(tmp_path / "gold.jsonl", [*rows, UNRECORDED])
    result = checked(path, tmp_path / "gold.jsonl")
    assert (result["labels"], result["compared"], result["judge_failed"]) == (16, 15, 1)
    wrong = sum(judged("c", j) != truth("c", j) for j in range(5))
    assert result["measures"]["agreement"]["value"] == pytest.approx(1 - wrong / 15)
    assert result["usd_per_1000"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"example": "e1", "score": 1, "candidate": "a"}, "holds no `answer`"),
        ({"example": "e99", "score": 1, "answer": "x"}, "no example `e99`"),
        (UNRECORDED, "failed on 1 of them, the last time: judge model "),
    ],
)
def test_labels_that_a_judge_cannot_score_are_refused(
    tmp_path: Path, row: dict[str, object], message: str
) -> None:
    path = write_study(tmp_path)
    write_lines(tmp_path / "gold.jsonl", [row])
    with pytest.raises(ConfigError, match=message):
        checked(path, tmp_path / "gold.jsonl")


@pytest.mark.parametrize(
    ("given", "score"),
    [
        ("right", 1.0),
        (" Wrong ", 0.0),
        ("TRUE", 1.0),
        ("no", 0.0),
        ("80 %", 0.8),
        ("62,5%", 0.625),
        ("0,5", 0.5),
        (1.0000000000000002, 1.0),
        (True, 1.0),
    ],
)
def test_scores_are_read_as_people_and_spreadsheets_write_them(
    tmp_path: Path, given: object, score: float
) -> None:
    write_lines(tmp_path / "gold.jsonl", [{"example": "e0", "score": given, "candidate": "a"}])
    assert load_labels(tmp_path / "gold.jsonl")[0].score == score


@pytest.mark.parametrize("given", ["4", "★★★", "👍", "-", "n/a", "NaN", "-1", "1,000.5", "%", [1]])
def test_what_may_mean_several_scores_is_refused(tmp_path: Path, given: object) -> None:
    write_lines(tmp_path / "gold.jsonl", [{"example": "e0", "score": given, "candidate": "a"}])
    with pytest.raises(ConfigError, match=r"gold\.jsonl, line 1: `score`"):
        load_labels(tmp_path / "gold.jsonl")


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


def test_verdicts_from_the_cache_are_not_called_free() -> None:
    free = compared(1, 1)
    bought = replace(free, spend=Spend(calls=1, usd_nanos=2_000_000))
    for pairs, price in (((free, bought), 2.0), ((free,), None), ((bought,), 2.0)):
        check = check_judge(JudgedLabels(pairs, 2, by_models=True), 0.95)
        assert check.usd_per_1000 == price
    assert check_judge(JudgedLabels((free,), 1), 0.95).usd_per_1000 == 0, "a rule asks nobody"


def test_labels_by_text_carry_its_digest(tmp_path: Path) -> None:
    write_lines(tmp_path / "g.jsonl", [{"example": 7, "score": 0.5, "answer": "46"}])
    label = Label(example="7", score=0.5, answer="46", answer_digest=answer_digest("46"))
    assert load_labels(tmp_path / "g.jsonl") == (label,)
