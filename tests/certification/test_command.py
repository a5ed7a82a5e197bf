"""``certify --candidates`` over recorded scores: options, exit codes, refusals, labels."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.engine.test_kills import has_told, note_purchases
from tests.support.commands import Command, Done
from tests.support.processes import kill_once, start_command
from tests.support.studies import write_study

JUDGED = ("--judge", "recorded", "--quiet")
ASKED = (*JUDGED, "--set", "certify.order=given")


def study(
    folder: Path,
    changes: Mapping[str, Any] | None = None,
    **given: Any,  # noqa: ANN401
) -> Path:
    """Six candidates, from right in 30 % of 400 questions to right in 72 %, the best first."""
    path = write_study(folder, n_examples=400, changes=changes, **given)
    written = json.loads(path.read_text())
    written["models"].reverse()
    path.write_text(json.dumps(written))
    return path


def certify(command: Command, *arguments: str) -> Done:
    return command("certify", "-c", "study.json", *arguments)


def reported(command: Command, folder: Path, fmt: str) -> str:
    return (folder / command("report", "--format", fmt).out.strip()).read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(("correction", "begins"), [("sequence", "c5"), ("bonferroni", "c0")])
def test_the_last_good_one(tmp_path: Path, command: Command, correction: str, begins: str) -> None:
    study(tmp_path)
    of_the_section = ("--set", "certify.per_label=1", "--set", f"certify.correction={correction}")
    done = certify(command, *ASKED, "--risk", "0.55", *of_the_section, "--json")
    assert done.code == 0, done.err
    found = done.json
    assert found["correction"] == correction
    assert found["candidates"][0]["name"] == begins
    assert found["chosen"] in {"c5", "c4", "c3", "c2"}
    assert found["end"] == "verdict"
    assert found["spent"]["answers"] < 6 * 400
    if correction == "bonferroni":
        return
    assert found["candidates"][-1]["verdict"] in {"refuted", "undecided"}
    assert found["labels"] <= 200
    first = found["candidates"][0]
    assert first["labels"] == len(first["log_wealths"]) == len(first["weights"])
    assert first["log_e_value"] == pytest.approx(max(first["log_wealths"]))
    assert first["log_e_value"] >= math.log(10)
    assert sum(first["weights"][-1]) == pytest.approx(1, abs=1e-4)
    assert found["labels"] >= found["alternatives"]["r-autoeval+"]["labels_for_same"]
    page = (tmp_path / "runs" / f"{found['run_id']}.html").read_text(encoding="utf-8")
    assert f"Chosen: {found['chosen']}" in page
    assert "<h2>Certificate</h2>" in page
    text = reported(command, tmp_path, "md")
    assert f"- Chosen: {found['chosen']}; for new examples" in text
    assert "| c5 | proved |" in text
    assert "leads" not in text
    # the log alone tells the same
    for name in ("study.json", "questions.jsonl", "scores.jsonl"):
        (tmp_path / name).unlink()
    shown = command("show", "--json").json
    assert json.loads(reported(command, tmp_path, "json")) == shown
    for key in ("chosen", "certified", "labels", "candidates", "alternatives"):
        assert shown[key] == found[key]


def test_nobody_is_good_enough(tmp_path: Path, command: Command) -> None:
    study(tmp_path)
    done = certify(command, *ASKED, "--risk", "0.01")
    assert done.code == 3
    said = " ".join(done.out.split())
    chosen = (
        "Chosen: none is proved to be good enough for new examples like yours: mean loss at most"
    )
    assert f"{chosen} 1 % Labels used: " in said
    assert re.search(r"r-eval: \d+ labels: none is proved to be good enough r-autoeval: ", said)


def test_what_is_proved_is_said_with_its_confidence(tmp_path: Path, command: Command) -> None:
    study(tmp_path)
    done = certify(command, *ASKED, "--risk", "0.95", "--set", "certify.confidence=0.8")
    assert done.code == 0
    said = " ".join(done.out.split())
    chosen = "Chosen: c0; for new examples like yours: mean loss at most 95 %: proved at 80 %"
    assert f"{chosen} Labels used: " in said
    labels = re.search(r"Labels used: (\d+)", said)
    assert labels is not None
    assert re.search(r"c5 proved \d+ [\d.]+ 5 [\d.]+ % c4 proved", said), "1 / .2 is needed"
    assert f"r-autoeval+: {labels[1]} labels for the same; {labels[1]} in the end: c0" in said


@pytest.mark.slow
def test_a_budget_that_ends_early_is_said(tmp_path: Path, command: Command) -> None:
    study(tmp_path, {"budget": {"answers": 40}})
    done = certify(command, *ASKED, "--risk", "0.4")
    assert done.code == 3
    assert "Next: spend as much again, to prove more: `bestarm-agent resume " in done.out
    more = command("resume", "--budget-answers", "2000", "-q", "--json")
    assert more.json["end"] == "verdict"


def label(folder: Path, n: int) -> None:
    labels = [json.dumps({"id": f"e{j}", "target": "any"}) for j in range(n)]
    (folder / "some.jsonl").write_text("\n".join(labels), encoding="utf-8")


@pytest.mark.slow
def test_the_section_of_the_study_and_labels_of_their_own(tmp_path: Path, command: Command) -> None:
    label(tmp_path, 50)
    section = {"risk": 0.6, "judge": "recorded", "order": "given", "labels": "some.jsonl"}
    study(tmp_path, {"certify": section})
    found = certify(command, "--quiet", "--json").json
    assert found["labels"] <= 50
    assert found["risk"] == 0.6
    assert certify(command, "-q", "--json", "--risk", "0.5").json["risk"] == 0.5


def test_examples_with_a_target_have_a_label(tmp_path: Path, command: Command) -> None:
    study(tmp_path, {"dataset": {"path": "questions.jsonl", "target": "answer"}, "scorer": "exact"})
    rows = [{"id": f"e{j}", "question": f"q{j}", "answer": "x"} for j in range(400)]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    done = certify(command, *ASKED, "--risk", "0.3", "--json")
    assert done.code == 3, done.err
    assert done.json["labels"] > 0


@pytest.mark.slow
def test_labels_that_changed_are_noticed_on_resume(tmp_path: Path, command: Command) -> None:
    label(tmp_path, 50)
    study(tmp_path, {"budget": {"answers": 20}})
    begun = certify(command, *ASKED, "--risk", "0.5", "--labels", "some.jsonl")
    assert begun.code == 3, begun.err
    label(tmp_path, 60)
    done = command("resume", "--budget-answers", "100", "-q")
    assert done.code == 2
    assert "is no longer what it was when the run began" in done.told
    label(tmp_path, 50)
    assert command("resume", "--budget-answers", "100", "-q").code in {0, 3}


@pytest.mark.slow
def test_killed_and_resumed(tmp_path: Path, command: Command) -> None:
    study(tmp_path, {"limits": {"in_flight": 2}}, latency_seconds=0.01)
    asked = ("certify", "-c", "study.json", *ASKED, "--risk", "0.55")
    process = start_command(tmp_path, asked, {}, note_purchases)
    kill_once(process, lambda: has_told(tmp_path / "study.json", 12))
    resumed = command("resume", "--json", "--quiet").json
    undisturbed = command(*asked, "--json").json
    assert undisturbed["run_id"] != resumed["run_id"]
    for key in ("chosen", "end", "labels", "candidates"):
        assert resumed[key] == undisturbed[key]
    assert resumed["end"] == "verdict"
    shown = command("show", resumed["run_id"]).out
    assert f"Chosen: {resumed['chosen']}" in shown
    assert "labels for the same" in shown or "more than" in shown


def test_longest_prompt_first(tmp_path: Path, command: Command) -> None:
    prompts = [{"short": "{{ question }}"}, {"long": "Please answer this: {{ question }}"}]
    study(tmp_path, {"prompts": prompts, "models": ["replay/c5"]})
    done = certify(command, *JUDGED, "--set", "certify.order=prompt", "--risk", "0.6", "--json")
    names = [candidate["name"] for candidate in done.json["candidates"]]
    assert names == ["long", "short"][: len(names)]
    assert names[0] == "long"


def test_worked_examples_make_a_prompt_longer(tmp_path: Path, command: Command) -> None:
    (tmp_path / "train.jsonl").write_text('{"question": "7+7", "answer": "14"}\n')
    shots = {"from": {"path": "train.jsonl", "target": "answer"}, "k": [0, 1]}
    study(tmp_path, {"shots": shots, "models": ["replay/c5"]})
    done = certify(command, *JUDGED, "--set", "certify.order=prompt", "--risk", "0.6", "--json")
    assert done.json["candidates"][0]["name"] == "shots=1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--judge", "recorded", "--risk", "1.5"), "`certify.risk` must be less than 1"),
        (("--risk", "0.1"), "`certify.judge` is missing"),
        (("--judge", "recordd", "--risk", "0.1"), "no judge is called `recordd`; did you mean"),
        ((*ASKED, "--risk", "0.1", "--labels", "none.jsonl"), "none.jsonl does not exist"),
        (
            (*ASKED, "--risk", "0.1", "--set", "certify.correction=holm"),
            "`certify.correction` must be",
        ),
        (
            (*ASKED, "--risk", "0.1", "--set", "certify.per_label=900"),
            "too few for 900 unlabelled ones",
        ),
        ((*ASKED, "--risk", "0.1", "--labels", "strange.jsonl"), "labels example 'e999'"),
        ((*JUDGED, "--risk", "0.5"), "the prices of 6 of 6 candidates are not known"),
        ((*JUDGED, "--risk", "0.5"), "order: given"),
    ],
)
def test_bad_requests_are_named_and_nothing_is_begun(
    tmp_path: Path, command: Command, arguments: tuple[str, ...], message: str
) -> None:
    study(tmp_path)
    (tmp_path / "strange.jsonl").write_text('{"id": "e999", "target": "x"}\n', encoding="utf-8")
    rows = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    free = [json.dumps({key: row[key] for key in row if key != "usd"}) for row in rows]
    (tmp_path / "scores.jsonl").write_text("\n".join(free))
    done = certify(command, *arguments)
    assert done.code == 2
    assert message in done.told
    assert not (tmp_path / "runs").exists()
