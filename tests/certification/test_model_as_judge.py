"""A model as the autoevaluator, audited by an exact match with labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from bestarm_agent.engine.results.judge_check import put_label
from bestarm_agent.stats.keyed_random import KeyedRandom
from tests.support.commands import Command

N_EXAMPLES, N_LABELS = 480, 120
RIGHT = {"large": 0.97, "medium": 0.9, "small": 0.4}
RUBRIC: dict[str, JsonValue] = {"name": "rubric", "scale": {"bad": 0, "good": 1}}


def write(folder: Path, **section: JsonValue) -> None:
    """Three candidates, and a judge that agrees with the truth in 19 of 20 answers."""
    rng = KeyedRandom(3, "test-world").at(0)
    rows: list[dict[str, Any]] = []
    for name, chance in RIGHT.items():
        right = rng.random(N_EXAMPLES) < chance
        liked = right ^ (rng.random(N_EXAMPLES) < 0.05)
        for j in range(N_EXAMPLES):
            text = "yes" if right[j] else "no"
            said = json.dumps({"verdict": "good" if liked[j] else "bad"})
            rows.append({"candidate": name, "example": f"e{j}", "text": text, "usd": 0.01})
            at = f"{name}/e{j}"
            rows.append({"candidate": "judge", "example": at, "text": said, "usd": 0.002})
    examples = [{"id": f"e{j}", "q": f"question {j}"} for j in range(N_EXAMPLES)]
    labels = [{"id": f"e{j}", "target": "yes"} for j in range(N_LABELS)]
    for file, lines in (("calls", rows), ("examples", examples), ("labels", labels)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{file}.jsonl").write_text(text, encoding="utf-8")
    judge = {**RUBRIC, "model": "replay/judge"}
    study = {
        "models": [f"replay/{name}" for name in RIGHT],
        "prompts": [{"p": "{{ q }}"}],
        "dataset": "examples.jsonl",
        "scorer": "exact",
        "certify": {"risk": 0.2, "judge": judge, "labels": "labels.jsonl", "order": "given"}
        | section,
        "providers": {"replay": {"path": "calls.jsonl"}},
        "limits": {"in_flight": 8},
    }
    (folder / "study.json").write_text(json.dumps(study))


ASKED = ("certify", "-c", "study.json", "-q", "--json")


@pytest.mark.slow
def test_few_labels_and_many_judgements(tmp_path: Path, command: Command) -> None:
    write(tmp_path)
    done = command(*ASKED, "--judge", "rubric")
    assert done.code == 0, done.err
    found = done.json
    assert found["chosen"] == "medium"
    assert [one["verdict"] for one in found["candidates"]] == ["certified", "certified", "refuted"]
    assert found["labels"] < N_LABELS
    calls, answers = found["spent"]["calls"], found["spent"]["answers"]
    assert calls == 2 * answers  # every reply is judged by a call
    assert found["spent"]["usd"] == pytest.approx(0.012 * answers)


def human(folder: Path, rows: list[dict[str, JsonValue]], name: str = "human.jsonl") -> None:
    """Let the study name a file of scores that people gave."""
    if rows:
        (folder / name).write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    study = json.loads((folder / "study.json").read_text())
    (folder / "study.json").write_text(json.dumps({**study, "labels": name}))


@pytest.mark.slow
@pytest.mark.parametrize("people", [False, True])
def test_people_have_the_last_word(tmp_path: Path, command: Command, people: bool) -> None:
    write(tmp_path, people=people)
    human(tmp_path, [{"example": f"e{j}", "answer": "yes", "score": 0} for j in range(N_LABELS)])
    done = command(*ASKED)
    found = done.json
    assert found["chosen"] == (None if people else "medium")
    assert done.code == (3 if people else 0)
    first = found["candidates"][0]
    assert (first["verdict"], first["mean_loss"] == 1.0) == (
        ("refuted", True) if people else ("certified", False)
    )


def test_labels_given_in_the_view_are_scores_of_people(tmp_path: Path, command: Command) -> None:
    write(tmp_path, people=True)
    for j in range(N_LABELS):
        put_label(tmp_path / "runs.sqlite", "run", f"e{j}", "yes", 0.0)
    human(tmp_path, [], "run.labels.jsonl")
    assert command(*ASKED).json["candidates"][0]["mean_loss"] == 1.0


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (None, "name their file as the study's `labels`"),
        ({"example": "e1", "candidate": "large", "score": 1}, "needs `answer` or `answer_digest`"),
    ],
)
def test_scores_of_people_that_name_no_answer(
    tmp_path: Path, command: Command, row: dict[str, JsonValue] | None, message: str
) -> None:
    write(tmp_path, people=True)
    if row is not None:
        human(tmp_path, [row])
    done = command(*ASKED)
    assert done.code == 2
    assert message in done.told
