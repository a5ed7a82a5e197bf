"""Studies with repeats or clusters: what is told before and after, and who takes part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.config.load import study_from
from bestarm_agent.errors import ConfigError
from bestarm_agent.stats.keyed_random import KeyedRandom
from tests.support.commands import invoke
from tests.support.studies import write_study

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


def test_the_plan_counts_all_draws(tmp_path: Path, capsys: Capsys) -> None:
    drawn_study(tmp_path)
    plan = json.loads(invoke(capsys, "plan", "study.json", "--json", folder=tmp_path).out)
    assert plan["answers"] == plan["expected"]["calls"] == 4 * N * 3
    assert (plan["n_examples"], plan["repeats"]) == (N, 3)
    said = invoke(capsys, "plan", "study.json", "--detect", "0.05", folder=tmp_path).out
    assert "4 candidates x 30 examples x 3 draws = 360 answers" in said
    assert "30 examples can reveal a difference of about 25 points" in said
    assert "(you have 30):" in said
    once = json.loads(
        invoke(capsys, "plan", drawn_study(tmp_path, repeats=1), "--json", folder=tmp_path).out
    )
    assert once["expected"]["calls"] == 4 * N


def test_draws_at_temperature_0_are_warned_of(tmp_path: Path, capsys: Capsys) -> None:
    changes: dict[str, Any] = {
        "models": ["openai/alpha"],
        "params": {"temperature": [0, 1.0]},
        "providers": {"openai": {"base_url": "http://127.0.0.1:9/v1", "key": "none"}},
        "scorer": "exact",
        "dataset": {"path": "questions.jsonl", "target": "id"},
    }
    done = invoke(capsys, "plan", drawn_study(tmp_path, **changes), folder=tmp_path)
    assert done.code == 0, done.err
    said = " ".join((done.out + done.err).split())
    assert "repeats: 1 candidate at temperature 0, where 3 draws are (nearly) alike" in said


@pytest.mark.parametrize(
    ("repeats", "problem"),
    [
        (0, "must be at least 1, got 0"),
        (True, "repeats"),
        ("3", "must be a whole number"),
        ({"draws": 3}, "must be a whole number"),
    ],
)
def test_wrong_repeats_are_refused(repeats: Any, problem: str) -> None:  # noqa: ANN401
    assert study_from({**CONTENT, "repeats": 3}).config.repeats == 3
    with pytest.raises(ConfigError, match=problem):
        study_from({**CONTENT, "repeats": repeats})


def test_certificates_are_about_single_replies() -> None:
    with pytest.raises(ConfigError, match="certifies single replies"):
        study_from({**CONTENT, "repeats": 3, "certify": {"risk": 0.1, "judge": "exact"}})


def clustered_study(folder: Path, **changes: Any) -> Path:  # noqa: ANN401
    """A study of 3 candidates on 90 examples of 40 documents, of 1 to 11 examples each."""
    settings = {
        "dataset": {"path": "questions.jsonl", "cluster": "document"},
        "selector": "auto",
        **changes,
    }
    path = write_study(folder, n_candidates=3, n_examples=90, changes=settings)
    document = [*range(40), *(j // 10 for j in range(50))]
    rows = [
        {"id": f"e{j}", "question": f"q{j}", "document": document[j]} for j in range(len(document))
    ]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return path


def test_clusters_are_counted_for_new_ones_and_examples_for_those_of_the_study(
    tmp_path: Path, capsys: Capsys
) -> None:
    clustered_study(tmp_path)
    plan = invoke(capsys, "plan", "study.json", "--detect", "0.3", folder=tmp_path).out
    assert "3 candidates x 90 examples = 270 answers" in plan
    assert "40 clusters can reveal a difference of about" in plan
    assert "(you have 40):" in plan
    asked = ("study.json", "-q", "--for", "new", "--budget-answers", "30")
    begun = invoke(capsys, "select", *asked, folder=tmp_path)
    assert "Take c2: " in begun.out, begun.err
    assert "On new clusters like these:" in begun.out
    done = invoke(capsys, "resume", "-q", "--budget-answers", "240", folder=tmp_path)
    assert "About as good: " in done.out, done.err
    shown = json.loads(invoke(capsys, "show", "--json", folder=tmp_path).out)
    assert (shown["new_examples"]["n_examples"], shown["new_examples"]["unit"]) == (40, "cluster")
    for sentence in shown["decision"]["said"]:
        assert sentence in " ".join(done.out.split())
    between = ("--between", "c0", "c2")
    compared = json.loads(invoke(capsys, "compare", *between, "--json", folder=tmp_path).out)
    assert compared["n"] > 0
    _, lower, upper = compared["difference"]
    assert upper - lower > 0.3  # of 40 documents at most


def test_a_gate_about_new_clusters_takes_one_example_of_each(
    tmp_path: Path, capsys: Capsys
) -> None:
    clustered_study(tmp_path)
    asked = ("study.json", "--baseline", "c0", "--for", "new", "-q", "--json")
    found = json.loads(invoke(capsys, "gate", *asked, folder=tmp_path).out)
    assert found["examples"] == 40
    assert all(one["examples"] <= 40 for one in found["challengers"])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"confirm": {"share": 0.2}}, "does not go with `confirm`"),
        ({"certify": {"risk": 0.1, "judge": "exact"}}, "does not go with `certify`"),
        ({"dataset": {"path": "questions.jsonl", "cluster": "docs"}}, "no example has the field"),
    ],
)
def test_clusters_that_cannot_be_heeded_are_refused(
    tmp_path: Path, capsys: Capsys, changes: dict[str, Any], problem: str
) -> None:
    done = invoke(capsys, "plan", clustered_study(tmp_path, **changes), folder=tmp_path)
    assert done.code == 2
    assert problem in " ".join(done.err.split())


def test_an_example_that_does_not_say_where_it_belongs_is_named(
    tmp_path: Path, capsys: Capsys
) -> None:
    path = clustered_study(tmp_path)
    rows = (tmp_path / "questions.jsonl").read_text().replace('"document": 7', '"other": 7', 1)
    (tmp_path / "questions.jsonl").write_text(rows)
    done = invoke(capsys, "plan", path, folder=tmp_path)
    assert "example `e7` has no `document`" in " ".join(done.err.split())
