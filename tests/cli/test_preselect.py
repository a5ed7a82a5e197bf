from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tests.support.commands import Done, invoke

pytest.importorskip("sklearn", reason="needs the extra preselect")


def lines(n: int, start: int = 0) -> str:
    """Records in which the poet wins poems and sums win sums."""
    rows = []
    for i in range(start, start + n):
        text, winner = (f"a poem on the colour {i}", "poet") if i % 2 else (f"add {i} to 3", "sums")
        rows.append({"prompt": text, "shown": ["poet", "sums", "other"], "winner": winner})
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder with a trained router."""
    (tmp_path / "history.jsonl").write_text(lines(200), encoding="utf-8")
    done = invoke(capsys, "preselect", "train", "history.jsonl", folder=tmp_path)
    assert done.code == 0, done.err
    assert done.out == (
        "router default, version 1: 200 records learnt, 0 say nothing, 0 wait for features\n"
    )
    return tmp_path


def stdin(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_choose_names_who_suits_the_prompt(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = invoke(capsys, "preselect", "choose", "-k", "1", "add 77 to 3", folder=trained)
    assert (one.code, one.out) == (0, "sums\n")
    two = invoke(capsys, "preselect", "choose", "poem on the colour red", "--json", folder=trained)
    answer = json.loads(two.out)
    assert answer["shown"][0] == "poet"
    assert len(answer["shown"]) == 2
    assert answer["version"] == 1
    empty = invoke(capsys, "preselect", "choose", "", folder=trained)
    assert (empty.code, empty.out) == (2, "")
    assert "a prompt needs text" in empty.err


def test_choose_answers_json_lines(
    trained: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin(monkeypatch, '{"prompt": "add 1 to 3"}\n{"prompt": "a poem on the colour 9"}\n\n')
    done = invoke(capsys, "preselect", "choose", "-k", "1", folder=trained)
    assert [json.loads(line)["shown"] for line in done.out.splitlines()] == [["sums"], ["poet"]]


def test_a_stream_is_learnt_and_more_of_it_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates = tmp_path / "candidates.json"
    candidates.write_text('["poet", "sums", {"name": "other", "usd": 0.1}]')

    def feed(text: str, *more: str) -> dict[str, int]:
        stdin(monkeypatch, text)
        done = invoke(
            capsys, "preselect", "train", "-", "-r", "live", "--json", *more, folder=tmp_path
        )
        assert done.code == 0, done.err
        found: dict[str, int] = json.loads(done.out)
        return found

    first = feed(
        lines(120),
        "--names",
        "candidates.json",
        "--setting",
        "rule=cppl",
        "--setting",
        "collect=30",
    )
    assert (first["learnt"], first["waiting"]) == (120, 0)
    assert first["version"] == 3  # saved twice on the way, and at the end
    nobody = '{"prompt": "hm", "shown": ["poet", "sums"], "winner": null}\n'
    second = feed(nobody + lines(80, start=120))
    assert (second["learnt"], second["uninformative"], second["version"]) == (80, 1, 5)
    done = invoke(
        capsys, "preselect", "choose", "-r", "live", "-k", "1", "add 5 to 3", folder=tmp_path
    )
    assert done.out == "sums\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "absent.jsonl"), "history absent.jsonl does not exist"),
        (("train", "history.jsonl", "--setting", "rule=x"), "`rule` must be 'linucb' or 'cppl'"),
        (
            ("train", "history.jsonl", "--names", "absent.json"),
            "candidates file absent.json does not exist",
        ),
        (("choose", "hello"), "no run store (runs.sqlite) lies in this folder"),
        (("choose", "hello", "--store", "runs.sqlite"), "there is no store at runs.sqlite"),
        (("train", "history.csv"), "history.csv, line 1: not a line of JSON"),
        (("train", "empty.jsonl", "--store", "new.sqlite"), "there is no store at new.sqlite"),
    ],
)
def test_what_is_wrong_is_said_in_one_paragraph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "history.jsonl").write_text(lines(20), encoding="utf-8")
    (tmp_path / "history.csv").write_text("prompt,a\nx,1\n")
    (tmp_path / "empty.jsonl").write_text("")
    done: Done = invoke(capsys, "preselect", *arguments, folder=tmp_path)
    assert done.code in (1, 2)
    assert message in done.err
    assert done.out == ""


def test_a_router_that_is_not_there_is_named(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = invoke(capsys, "preselect", "choose", "-r", "nobody", "hello", folder=trained)
    assert done.code == 2
    assert "there is no router 'nobody' in this store" in done.err


def test_training_says_whether_routing_would_pay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = []
    for i in range(120):
        text = f"a poem on the colour {i}" if i % 2 else f"add {i} to 3"
        rows.append({"prompt": text, "scores": {"poet": i % 2, "sums": 1 - i % 2}})
    path = tmp_path / "scores.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = invoke(capsys, "preselect", "train", path, "-k", "1", folder=tmp_path)
    assert done.code == 0, done.err
    assert "Routing pays: on the second half of 120 prompts it gains +" in done.out
    again = invoke(capsys, "preselect", "train", path, "--json", folder=tmp_path)
    found = json.loads(again.out)["routing"]
    assert (found["k"], found["n_prompts"]) == (2, 120)
    assert found["says"].startswith("Routing makes no difference")  # both run on every prompt
