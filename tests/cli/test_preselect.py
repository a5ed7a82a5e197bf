from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from bestarm_agent.preselection.policy_comparison import Interval, PolicyResult, verdict
from tests.support.commands import Done, invoke

pytest.importorskip("sklearn", reason="needs the extra preselect")


def lines(n: int, start: int = 0) -> str:
    """Records in which the poet wins poems and sums win sums."""
    rows = []
    for i in range(start, start + n):
        text, winner = (f"a poem on the colour {i}", "poet") if i % 2 else (f"add {i} to 3", "sums")
        rows.append({"prompt": text, "shown": ["poet", "sums", "other"], "winner": winner})
    return "".join(json.dumps(row) + "\n" for row in rows)


def matrix(path: Path, n: int = 120) -> Path:
    rng = np.random.default_rng(0)
    is_poem = np.arange(n) % 2 == 1
    scores = np.array([is_poem, ~is_poem, rng.random(n) < 0.3], dtype=float)
    texts = [
        f"a poem on the colour {i}" if poem else f"add {i} to 3" for i, poem in enumerate(is_poem)
    ]
    names = np.array(["poet", "sums", "other"])
    np.savez(path, scores=scores, methods=names, prompt_text=np.array(texts), cost=[3.0, 1.0, 1.0])
    return path


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


def test_choose_answers_json_lines(
    trained: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [
        {"prompt": "add 1 to 3", "k": 1},
        {"prompt": "a poem on the colour 9", "candidates": ["sums", "other"], "k": 1},
    ]
    stdin(monkeypatch, "\n".join(json.dumps(row) for row in asked) + "\n\n")
    done = invoke(capsys, "preselect", "choose", folder=trained)
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert answers[0]["shown"] == ["sums"]
    assert answers[1]["shown"][0] in ("sums", "other")


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

    first = feed(lines(120), "-c", "candidates.json", "--set", "rule=cppl", "--set", "collect=30")
    assert (first["learnt"], first["waiting"]) == (120, 0)
    assert first["version"] == 3  # saved twice on the way, and at the end
    nobody = '{"prompt": "hm", "shown": ["poet", "sums"], "winner": null}\n'
    second = feed(nobody + lines(80, start=120))
    assert (second["learnt"], second["uninformative"], second["version"]) == (80, 1, 5)
    done = invoke(
        capsys, "preselect", "choose", "-r", "live", "-k", "1", "add 5 to 3", folder=tmp_path
    )
    assert done.out == "sums\n"


def test_simulate_compares_rules_with_fixed_choices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = matrix(tmp_path / "m.npz")
    done = invoke(capsys, "preselect", "simulate", path, "--rules", "random,linucb", "--json")
    found = {line["policy"]: line for line in json.loads(done.out)}
    assert list(found)[:2] == ["random", "linucb"]
    assert found["oracle"]["quality"] == 1.0
    assert found["linucb"]["first"] > 0.9
    assert found["random"]["quality"] < found["linucb"]["quality"] <= 1.0
    assert "always poet" in found or "always sums" in found
    assert found["always poet, sums"]["quality"] == 1.0
    table = invoke(capsys, "preselect", "simulate", path, "--rules", "mm", "-n", "1")
    assert "first named" in table.out
    assert "oracle" in table.out
    said = " ".join(table.out.split())
    assert "mm makes no difference that" in said or "mm is" in said
    assert "on the second half of the prompts it gains" in said
    single = invoke(capsys, "preselect", "simulate", path, "-k", "1", "--rules", "linucb,mm")
    assert "best of 1" in single.out
    assert "over the candidate that was best on the first half" in " ".join(single.out.split())
    options = invoke(
        capsys, "preselect", "simulate", path, "--rules", "linucb,linucb[ties=1]", "--json"
    )
    assert [line["policy"] for line in json.loads(options.out)][:2] == ["linucb", "linucb[ties=1]"]


def test_simulate_fills_in_missing_features(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = np.arange(120) % 2.0
    features = np.column_stack([kind, np.where(np.arange(120) % 5, 1 - kind, np.nan)])
    path = tmp_path / "m.npz"
    np.savez(path, scores=np.array([kind, 1 - kind]), methods=["odd", "even"], features=features)
    command = ("preselect", "simulate", path, "-k", "1", "--rules", "linucb")
    done = invoke(capsys, *command, "--set", "source=given")
    assert done.code == 0, done.err
    assert "linucb is worth it" in done.out
    refused = invoke(capsys, *command)
    assert "give `features`, and source `given`" in refused.err


def test_simulate_says_whether_routing_is_worth_it() -> None:
    oracle = PolicyResult("oracle", 0.9, 0.9, 0.9, 1.0, Interval(0.4, 0.4, 0.4), kind="oracle")
    ends = {
        "is worth it": (0.01, 0.03),
        "is not worth it": (-0.03, -0.01),
        "no diff": (-0.01, 0.02),
    }
    for expected, (low, high) in ends.items():
        gain = Interval((low + high) / 2, low, high)
        rule, random = (PolicyResult(name, 0.5, 0.5, 0.5, 1.0, gain) for name in ("mm", "random"))
        said = verdict([rule, random, oracle], 2, 400)
        assert said.startswith("mm ")
        assert expected in said
        assert said.endswith("2 rules); an oracle would gain 0.4000.")


def test_simulate_warns_of_rules_below_random_arms() -> None:
    oracle = PolicyResult("oracle", 0.9, 0.9, 0.9, 1.0, Interval(0.4, 0.4, 0.4), kind="oracle")
    good, bad = Interval(0.0, -0.1, 0.1), Interval(-0.05, -0.1, 0.1)
    lines = [
        PolicyResult("random", 0.5, 0.5, 0.5, 1.0, good),
        PolicyResult("cppl", 0.5, 0.5, 0.5, 1.0, bad),
    ]
    assert "Random arms gain more than cppl" in verdict([*lines, oracle], 2, 400)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "absent.jsonl"), "history absent.jsonl does not exist"),
        (("train", "history.jsonl", "--set", "rule=x"), "no preselection rule 'x'"),
        (
            ("train", "history.jsonl", "-c", "absent.json"),
            "candidates file absent.json does not exist",
        ),
        (("choose", "hello"), "no run store (runs.sqlite) lies in this folder"),
        (("choose", "hello", "--store", "runs.sqlite"), "there is no store at runs.sqlite"),
        (("simulate", "history.jsonl"), "every candidate needs a score on every prompt"),
        (("simulate", "m.npz", "-k", "4"), r"k must be in 1..3, got 4"),
        (("simulate", "m.npz", "--rules", "cpl"), "did you mean `cppl`"),
    ],
)
def test_what_is_wrong_is_said_in_one_paragraph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "history.jsonl").write_text(lines(20), encoding="utf-8")
    matrix(tmp_path / "m.npz")
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


def test_candidates_are_added_to_a_router(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (trained / "more.json").write_text('[{"name": "critic", "usd": 0.002}]')
    done = invoke(capsys, "preselect", "add", "painter", "-c", "more.json", folder=trained)
    assert (done.code, done.out) == (0, "router default, version 2: 5 candidates\n")
    chosen = invoke(capsys, "preselect", "choose", "-k", "5", "a poem", folder=trained)
    assert set(chosen.out.split()) == {"poet", "sums", "other", "painter", "critic"}
    twice = invoke(capsys, "preselect", "add", "painter", folder=trained)
    assert (twice.code, "two candidates are called 'painter'" in twice.err) == (2, True)
    nobody = invoke(capsys, "preselect", "add", folder=trained)
    assert (nobody.code, "name the candidates that join" in nobody.err) == (2, True)
