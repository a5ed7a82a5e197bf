"""``gate`` over recorded scores: verdicts, exit codes, baselines, files."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bestarm_agent.stats.keyed_random import KeyedRandom
from tests.support.commands import Command
from tests.support.studies import run_all, study_file, write_study


@pytest.fixture
def gate(command: Command) -> Command:
    """Ask a gate of the study with some arguments."""
    return partial(command, "gate", "study.json", "-q")


def study(
    folder: Path, scores: Sequence[Sequence[float | str]], changes: Mapping[str, Any] | None = None
) -> Path:
    """A study of candidates c0, c1, ... with these scores, or kinds of failure in their place."""
    path = write_study(folder, n_candidates=len(scores), n_examples=len(scores[0]), changes=changes)
    records = [
        {"candidate": f"c{i}", "example": f"e{j}"}
        | ({"error": score} if isinstance(score, str) else {"score": score})
        for i, row in enumerate(scores)
        for j, score in enumerate(row)
    ]
    text = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "scores.jsonl").write_text(text, encoding="utf-8")
    return path


N = 120
RIGHT = [1.0] * N
MOSTLY = [float(j % 10 > 0) for j in range(N)]
HALF = [float(j % 2) for j in range(N)]


def test_not_worse(tmp_path: Path, gate: Command, command: Command) -> None:
    study(tmp_path, [MOSTLY, MOSTLY])
    done = gate("--baseline", "c0", "--margin", "0.05")
    assert done.code == 0, done.err
    assert "PASS: c1 is not worse by more than 5 points: +0.0 points (-4." in done.out
    assert "95 % sure that the verdict is right on your 120 examples, whenever" in done.out
    shown = command("show")
    assert shown.out.splitlines()[:3] == done.out.splitlines()[:3]
    exact = gate("--baseline", "c0", "--margin", "0")
    assert "+0.0 points (+0.0 to +0.0)" in exact.out


def test_not_worse_for_new_examples(tmp_path: Path, gate: Command, command: Command) -> None:
    luck = [float(j % 9 > 0) for j in range(N)]
    study(tmp_path, [MOSTLY, MOSTLY, luck])
    new = ("--baseline", "c0", "--margin", "0.05", "--for", "new")
    done = gate(*new, "--challenger", "c1")
    assert done.code == 0, done.err
    assert "95 % sure that the verdict is right for new examples like your 120" in done.out
    done = gate(*new, "--challenger", "c2")
    assert done.code == 3
    assert "UNDECIDED: c2: -1.7 points (" in done.out
    assert "after 120 of 120 examples" in done.out
    assert "should decide it" not in done.out, "so small a lead may be luck"
    assert command("show", "--json").json["for"] == "new"
    assert gate(*new[:-2], "--challenger", "c2").code == 0  # on these examples


@pytest.mark.slow
def test_worse(tmp_path: Path, gate: Command) -> None:
    study(tmp_path, [RIGHT, RIGHT, HALF])
    done = gate("--baseline", "c0", "--json", "--margin", "0.05")
    assert done.code == 5
    found = done.json
    assert found["verdict"] == "failed"
    verdicts = {one["label"]: one["verdict"] for one in found["challengers"]}
    assert verdicts == {"c1": "passed", "c2": "failed"}
    assert found["challengers"][1]["interval"][1] <= -0.05
    page = (tmp_path / "runs" / f"{found['run_id']}.html").read_text(encoding="utf-8")
    assert "<h2>Gate</h2>" in page
    assert "worse by more than 5 points" in page


def test_only_the_challenger_that_is_named(tmp_path: Path, gate: Command) -> None:
    study(tmp_path, [RIGHT, RIGHT, HALF])
    asked = ("--baseline", "c0", "--challenger", "c1", "--margin", "0.05")
    assert gate(*asked).code == 0


def test_better(tmp_path: Path, gate: Command) -> None:
    study(tmp_path, [HALF, RIGHT])
    done = gate("--baseline", "c0", "--improve")
    assert done.code == 0
    assert "c1 is better: +" in done.out
    assert gate("--baseline", "c1", "--improve").code == 5


def test_the_difference_lies_in_its_interval(tmp_path: Path, gate: Command) -> None:
    """That of the examples taken, of a fixed set, need not: the interval is of all examples."""
    draws = KeyedRandom(167, "gate").at(0).random((3, 200))
    study(tmp_path, (draws < [[0.6], [0.9], [0.6]]).astype(float).tolist())
    found = gate("--baseline", "c0", "--improve", "--json").json["challengers"]
    for one in found:
        lower, upper = one["interval"]
        assert lower <= one["difference"] <= upper
    gain = (found[1]["better_on"] - found[1]["worse_on"]) / found[1]["examples"]
    assert gain > found[1]["interval"][1] == found[1]["difference"], "more was seen than can be"


@pytest.mark.parametrize("says", ["It is {}", "none"])
def test_nobody_passes_by_scores_that_cannot_be_trusted(
    tmp_path: Path, command: Command, says: str
) -> None:
    """It says why, and the command that it names asks the same question by another scorer."""
    rows = [{"id": f"e{j}", "question": f"q{j}", "target": str(j)} for j in range(N)]
    texts = [
        {"candidate": label, "example": f"e{j}", "text": says.format(j)}
        for label in ("c0", "c1")
        for j in range(N)
    ]
    path = study_file(
        tmp_path,
        {"rows": rows, "texts": texts},
        dataset={"path": "rows.jsonl", "target": "target"},
        models=["replay/c0", "replay/c1"],
        prompts=[{"q": "{{ question }}"}],
        scorer="exact",
        providers={"replay": {"path": "texts.jsonl"}},
    )
    path.rename(tmp_path / "my.json")
    asked = ("gate", "my.json", "--baseline", "c0", "--margin", "0.3", "--for", "new", "-q")
    done = command(*asked, "--markdown", "m.md", "--junit", "j.xml")
    assert done.code == 3
    first, verdict, *_ = done.out.splitlines()
    assert first.startswith("The scores cannot be trusted: ")
    assert verdict.startswith("UNDECIDED: c1: +0.0 points (")
    assert "nothing is proved" in done.out
    written = [(tmp_path / name).read_text() for name in ("m.md", "j.xml")]
    pages = [page.read_text() for page in (tmp_path / "runs").glob("*.html")]
    assert all("The scores cannot be trusted: " in text for text in (*written, *pages))
    shown = command("show", "--json", "--store", "runs/runs.sqlite").json
    assert (shown["verdict"], shown["challengers"][0]["verdict"]) == ("undecided", "undecided")
    [advice] = re.findall("`bestarm-agent (.*?)`", " ".join(done.out.split()).split("Next: ")[1])
    if says == "none":
        assert shown["problem"]["kind"] == "nothing right"
        assert "Next: read some of the replies: " in done.out
        assert advice.startswith("answers ")
        return
    assert shown["problem"]["kind"] == "scorer"
    again = command(*shlex.split(advice), "-q", "--json")
    assert again.code == 0, again.err
    found = again.json
    asked_again = [found[key] for key in ("verdict", "baseline", "margin", "for")]
    assert asked_again == ["passed", "c0", 0.3, "new"]
    assert found["problem"] is None


def test_few_pairs_are_in_flight_when_the_verdict_comes(tmp_path: Path, gate: Command) -> None:
    study(tmp_path, [MOSTLY * 10, MOSTLY * 10], {"limits": {"in_flight": 1_000}})
    asked = ("--baseline", "c0", "--margin", "0.05", "--json")
    found = gate(*asked).json
    needed = 2 * found["challengers"][0]["examples"]
    assert needed < 200
    assert needed <= found["spent"]["answers"] <= 1.5 * needed + 16


def test_undecided_within_the_budget_then_decided_with_more(
    tmp_path: Path, gate: Command, command: Command
) -> None:
    study(tmp_path, [MOSTLY, MOSTLY])
    done = gate("--baseline", "c0", "--margin", "0.05", "--budget-answers", "40")
    assert done.code == 3
    assert "the budget pays 20 examples" in done.err
    [advice] = re.findall(
        "Next: spend as much again, to prove more: `bestarm-agent (.*)`", done.out
    )
    assert advice.startswith("resume ")
    assert advice.endswith(" --budget-answers 40")
    assert "How sure: nothing is proved at 95 % yet on your" in done.out
    more = command("resume", "--budget-answers", "400", "-q")
    assert more.code == 0
    assert "PASS:" in more.out
    assert "How sure: 95 % sure that the verdict is right on your" in more.out


def test_challengers_that_were_left_out_do_not_join_on_resume(
    tmp_path: Path, gate: Command, command: Command
) -> None:
    (tmp_path / "prompts").mkdir()
    for name in ("a", "b"):
        (tmp_path / "prompts" / f"{name}.txt").write_text(name + " {{ question }}")
    study(tmp_path, [MOSTLY, MOSTLY], {"prompts": [{"file": "prompts/*.txt"}]})
    asked = ("--baseline", "c0/a", "--challenger", "c1/a", "--budget-answers", "10")
    assert gate(*asked).code == 3
    more = command("resume", "--budget-answers", "10", "-q", "--json")
    assert [one["label"] for one in more.json["challengers"]] == ["c1/a"]


def test_too_many_failures(tmp_path: Path, gate: Command) -> None:
    study(tmp_path, [RIGHT, ["authentication"] * N])
    done = gate("--baseline", "c0", "--margin", "0.05")
    assert done.code == 4, done.out + done.err
    assert "Next: mend what fails, then go on, or begin again" in done.out
    assert "UNDECIDED: c1, after 0" in done.out
    assert done.out.count("Cannot be called: c0, c1: recorded failure\n") == 1


def test_a_gate_that_failed_names_a_store_that_is_not_found_by_itself(
    tmp_path: Path, gate: Command, command: Command
) -> None:
    study(tmp_path, [RIGHT, ["authentication"] * N])
    gate("--baseline", "c0", "--margin", "0.05")
    [store] = tmp_path.rglob("*.sqlite")
    moved = store.rename(tmp_path / "kept.sqlite")
    shown = command("show", "--store", str(moved)).out
    assert re.search(rf"`bestarm-agent resume \S+ --store {moved}`", " ".join(shown.split()))


def test_a_candidate_that_failed_to_answer_counts_as_wrong(tmp_path: Path, gate: Command) -> None:
    half = [1.0 if j % 2 else "refused" for j in range(N)]
    study(tmp_path, [RIGHT, half])
    assert gate("--baseline", "c0", "--margin", "0.05").code == 5


def test_what_could_not_be_measured_is_not_held_against_it(tmp_path: Path, gate: Command) -> None:
    half = [1.0 if j % 2 else "malformed-reply" for j in range(N)]
    study(tmp_path, [RIGHT, half], {"limits": {"max_attempts": 1, "in_flight": 4}})
    done = gate("--baseline", "c0", "--margin", "0.05", "--json")
    found = done.json
    assert found["verdict"] == "undecided", done.err
    assert found["challengers"][0]["void"] > 0
    assert found["challengers"][0]["interval"][1] >= 0


@pytest.mark.slow
def test_the_baseline_is_not_paid_for_twice(tmp_path: Path, gate: Command) -> None:
    path = study(tmp_path, [MOSTLY, MOSTLY], {"budget": {"answers": 2 * N}})
    run_all(path)
    found = gate("--baseline", "c0", "--json").json
    assert found["spent"]["answers"] > 0
    assert found["spent"]["calls"] == 0


@pytest.mark.slow
def test_a_runs_winner_as_the_baseline(tmp_path: Path, gate: Command) -> None:
    path = study(tmp_path, [RIGHT, HALF])
    name = run_all(path).run_id
    written = json.loads(path.read_text())
    written["prompts"] = [{"q": "Please: {{ question }}"}]  # the same labels, other contents
    path.write_text(json.dumps(written), encoding="utf-8")
    found = gate("--baseline", name, "--json").json
    assert found["baseline"] == f"c0 of run {name}"
    verdicts = {one["label"]: one["verdict"] for one in found["challengers"]}
    assert verdicts == {"c0": "passed", "c1": "failed"}
    again = gate("--baseline", "latest", "--json").json
    assert again["baseline"] == found["baseline"]  # of a gate, its baseline
    assert again["spent"]["calls"] == 0


def test_answers_that_could_not_be_had_are_told(tmp_path: Path, gate: Command) -> None:
    study(tmp_path, [RIGHT, ["internal"] * N])
    done = gate("--baseline", "c0", "--margin", "0.05")
    assert "UNDECIDED: c1: " in done.out
    assert re.search(r"Failed: \d+ x program error of c1; mostly: ", done.out)


@pytest.mark.slow
def test_files_for_ci(tmp_path: Path, gate: Command) -> None:
    study(tmp_path, [RIGHT, RIGHT, HALF])
    asked = ("--baseline", "c0", "--margin", "0.05", "--markdown", "s.md", "--junit", "j.xml")
    done = gate(*asked)
    assert (done.code, done.err.count("written: ")) == (5, 2)
    assert "written: s.md\n" in done.err
    text = (tmp_path / "s.md").read_text(encoding="utf-8")
    assert text.startswith("### ❌ Gate recorded: worse by more than 5 points\n")
    assert "| c1 | ✅ not worse by more than 5 points |" in text
    suite = ElementTree.parse(tmp_path / "j.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no baseline is named; say --baseline LABEL"),
        (("--baseline", "c9"), "'c9' is neither a candidate of the study nor a stored run"),
        (("--baseline", "c0", "--challenger", "c7"), "there is no challenger 'c7'"),
        (("--baseline", "c0", "--challenger", "c0"), "there is no challenger 'c0'"),
        (("--baseline", "c0", "--margin", "1"), "--margin"),
        (("--baseline", "c0", "--confidence", "0"), "--confidence"),
        (("--baseline", "c0", "--junit", "no/j.xml"), "there is no folder no"),
        (("--margin", "0.05"), "baseline"),
    ],
)
def test_wrong_usage(tmp_path: Path, gate: Command, arguments: tuple[str, ...], said: str) -> None:
    study(tmp_path, [RIGHT[:20], RIGHT[:20]])
    done = gate(*arguments)
    assert done.code == 2
    assert said in done.told
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_section_of_the_study_is_heeded_by_gate_alone(
    tmp_path: Path, gate: Command, command: Command
) -> None:
    study(tmp_path, [RIGHT, HALF], {"gate": {"baseline": "c0", "margin": 0.1}})
    assert gate("--margin", "0.05").code == 5
    done = command("select", "study.json", "-q", "--json")
    assert done.json["decision"]["take"] == "c0"
    shown = command("show", "--json")
    assert shown.json["decision"]["take"] == "c0"


def test_reports_show_no_interval_that_nothing_bounds(
    tmp_path: Path, gate: Command, command: Command
) -> None:
    study(tmp_path, [MOSTLY, MOSTLY])
    gate("--baseline", "c0", "--margin", "0.05")
    for kind in ("md", "html"):
        name = f"report.{kind}"
        done = command("report", "--format", kind, "--out", name)
        assert done.code == 0, done.err
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "not worse by more than 5 points" in text
        for said in ("[.00, 1.00]", "● best so far", "○ open"):
            assert said not in text


@pytest.mark.parametrize(
    ("section", "notice"),
    [
        ({"baseline": "nope"}, "the baseline 'nope' is neither a candidate of the study nor a"),
        ({"baseline": "c0", "challengers": ["c7"]}, "there is no challenger 'c7'"),
        ({"baseline": "c0"}, None),
    ],
)
def test_plan_tells_of_a_gate_that_names_nobody(
    tmp_path: Path, command: Command, section: Mapping[str, Any], notice: str | None
) -> None:
    study(tmp_path, [RIGHT, HALF], {"gate": section})
    notices = command("plan", "study.json", "--json").json["notices"]
    told = [told for told in notices if told.startswith("gate: ")]
    assert len(told) == bool(notice)
    assert all(f"gate: {notice}" in one for one in told)
