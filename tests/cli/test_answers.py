"""``answers``, ``compare`` and ``export --texts`` on a run of two candidates and two examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands import invoke
from tests.support.studies import write_study

Capsys = pytest.CaptureFixture[str]

ATTACK = "\x1b[2J\x9b31m=cmd()"
REPLIES = {
    ("c0", "e0"): "Paris",
    ("c0", "e1"): "Rome",
    ("c1", "e0"): f"Lyon{ATTACK}\nsecond line",
    ("c1", "e1"): "Rome",
}


@pytest.fixture
def folder(tmp_path: Path, capsys: Capsys) -> Path:
    """A folder with a finished run: c0 is right twice, c1 once, with an attack on the terminal."""
    path = write_study(
        tmp_path,
        n_candidates=2,
        n_examples=2,
        changes={
            "dataset": {"path": "questions.jsonl", "target": "capital"},
            "scorer": "contains",
            "selector": {"name": "uniform", "stop_when_separated": False},
        },
    )
    records = [
        {"candidate": candidate, "example": example, "text": text, "usd": 0.25}
        for (candidate, example), text in REPLIES.items()
    ]
    examples = [
        {"id": "e0", "question": f"France?{ATTACK}", "capital": "Paris"},
        {"id": "e1", "question": "Italy?", "capital": "Rome"},
    ]
    (tmp_path / "scores.jsonl").write_text("\n".join(map(json.dumps, records)))
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, examples)))
    assert invoke(capsys, "select", "-c", path, "--quiet", folder=tmp_path).code == 0
    return tmp_path


def test_one_line_per_pair(folder: Path, capsys: Capsys) -> None:
    done = invoke(capsys, "answers", folder=folder)
    head, *lines = done.out.splitlines()
    assert head.split() == ["candidate", "example", "score", "question", "target", "answer"]
    assert sorted([*line.split()[:3], line.split()[4]] for line in lines) == [
        ["c0", "e0", "1", "Paris"],
        ["c0", "e1", "1", "Rome"],
        ["c1", "e0", "0", "Paris"],
        ["c1", "e1", "1", "Rome"],
    ]


def test_the_first_twenty_are_shown_unless_all_are_asked_for(
    tmp_path: Path, capsys: Capsys
) -> None:
    path = write_study(tmp_path, n_candidates=2, n_examples=15, changes={"selector": "uniform"})
    invoke(capsys, "select", path, "-q", "--set", "selector.stop_when_separated=false")
    *shown, rest = invoke(capsys, "answers", folder=tmp_path).out.splitlines()
    assert (len(shown), rest) == (21, "... and 10 more: --all shows them")
    assert len(invoke(capsys, "answers", "--all", folder=tmp_path).out.splitlines()) == 31
    assert len(invoke(capsys, "answers", "--json", folder=tmp_path).out.splitlines()) == 30


def test_one_pair_in_full(folder: Path, capsys: Capsys) -> None:
    done = invoke(capsys, "answers", "--candidate", "c1", "--example", "e0", folder=folder)
    assert done.out.startswith("c1 on e0: 0\n  prompt:\n    France?")
    assert "\n    second line\n" in done.out
    assert "1 request, " in done.out
    assert "$0.25" in done.out


@pytest.mark.parametrize(
    "command",
    [
        "answers",
        "answers --wrong",
        "answers --example e0",
        "answers --json",
        "compare --between c0 c1",
    ],
)
def test_escape_sequences_stay_text(folder: Path, capsys: Capsys, command: str) -> None:
    out = invoke(capsys, *command.split(), folder=folder).out
    assert "lyon" in out.lower()
    assert "[2j" in out.lower()
    assert not {"\x1b", "\x9b"} & set(out)


def test_json_lines_keep_everything(folder: Path, capsys: Capsys) -> None:
    done = invoke(capsys, "answers", "--wrong", "--json", folder=folder)
    [pair] = map(json.loads, done.out.splitlines())
    assert (pair["candidate"], pair["example"], pair["target"]) == ("c1", "e0", "Paris")
    assert pair["reply"] == REPLIES["c1", "e0"]
    assert pair["prompt"] == f"France?{ATTACK}"


def test_two_candidates_side_by_side(folder: Path, capsys: Capsys) -> None:
    done = invoke(capsys, "compare", "--between", "c0", "c1", folder=folder)
    assert "They differ on 1 example:\ne0: A 1, B 0\n  question  France?" in done.out
    assert "\n  target    Paris\n  A         «Paris»\n  B         «Lyon" in done.out


def test_nothing_to_show_is_said(folder: Path, capsys: Capsys) -> None:
    done = invoke(capsys, "answers", "--failed", folder=folder)
    assert "no answer of the run is like this" in done.err


def test_a_dataset_that_is_gone_is_said(folder: Path, capsys: Capsys) -> None:
    (folder / "questions.jsonl").unlink()
    done = invoke(capsys, "answers", "--wrong", folder=folder)
    assert "2 of 2 examples are no longer in the dataset" in " ".join(done.err.split())
    assert "Lyon" in done.out


def test_compare_counts_the_same_examples(folder: Path, capsys: Capsys) -> None:
    done = invoke(capsys, "compare", "--between", "c0", "c1", folder=folder)
    assert "2 of 2 examples were scored for both; only they count here" in done.out
    lines = [line.split() for line in done.out.splitlines()]
    assert ["A", "right", "1", "1"] in lines
    assert ["A", "wrong", "0", "0"] in lines
    assert "on new examples like these A is ahead of B by 50 points, between -" in done.out
    assert "not proved; 2 examples can reveal a difference of about 100 points" in " ".join(
        done.out.split()
    )
    as_json = invoke(capsys, "compare", "--between", "c0", "c1", "--json", folder=folder)
    found = json.loads(as_json.out)
    assert (found["n"], found["only_a"], found["difference"][0]) == (2, 1, 0.5)
    [flip] = found["flips"]
    assert (flip["example"], flip["score_a"], flip["score_b"]) == ("e0", 1.0, 0.0)


def test_compare_takes_the_best_of_two_runs(folder: Path, capsys: Capsys) -> None:
    again = invoke(capsys, "select", "study.json", "--quiet", "--seed", "1", folder=folder)
    assert "Spent: 4 of 4 answers (100 %), 4 from the cache, 0 calls" in again.out
    runs = [line["id"] for line in json.loads(invoke(capsys, "list", "--json", folder=folder).out)]
    done = invoke(capsys, "compare", *runs, folder=folder)
    assert f"A = c0 of run {runs[0]}\nB = c0 of run {runs[1]}\n" in done.out
    assert "They score alike on all of these." in done.out
    other = invoke(capsys, "compare", *runs, "--between", "c0", "c1", folder=folder)
    assert f"A = c0 of run {runs[0]}\nB = c1 of run {runs[1]}\n" in other.out
    assert invoke(capsys, "compare", *runs, "--json", folder=folder).json["runs"] == runs
    same = invoke(capsys, "compare", "latest", "latest", folder=folder)
    assert (same.code, "both are run" in same.told) == (2, True)
    neither = invoke(capsys, "compare", folder=folder)
    assert "name two candidates (--between A B), or a second run" in neither.err


def test_export_adds_texts(folder: Path, capsys: Capsys) -> None:
    out = folder / "all.jsonl"
    assert invoke(capsys, "export", "--texts", "--out", out, folder=folder).code == 0
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert {(r["candidate"], r["example"]): r["reply"] for r in records} == REPLIES
    [wrong] = [r for r in records if r["score"] == 0.0]
    assert (wrong["prompt"], wrong["target"]) == (f"France?{ATTACK}", "Paris")
