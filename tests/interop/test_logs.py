"""Logs as matrices and recordings: labels, tasks, plain tables, and back again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bestarm_agent.errors import ConfigError
from bestarm_agent.interop.formats import Result, label_candidates
from bestarm_agent.interop.logs import read_logs
from tests.interop.test_golden_files import INSPECT, PROMPTFOO
from tests.support.commands import invoke
from tests.support.studies import run_all, write_lines, write_study


def test_labels_hold_only_what_differs_in_a_task() -> None:
    one = {"model": "m", "prompt": "short", "t": "0"}
    results = [
        Result(one, "e", task="a"),
        Result({**one, "t": "1"}, "e", task="a"),
        Result({"model": "n"}, "e", task="b"),
        Result({**one, "prompt": "p" * 60}, "e", task="c"),
        Result({**one, "prompt": "p" * 61}, "e", task="c"),
        Result({"model": "a model"}, "e", task="d"),
        Result({"model": "a_model"}, "e", task="d"),
    ]
    labels = label_candidates(results)

    assert labels[:3] == ["m,t=0", "m,t=1", "n"]
    assert labels[3] != labels[4]
    assert labels[3].startswith("m,prompt=pppp")
    assert len(labels[3]) < 80
    assert labels[5] != labels[6]
    assert not set("".join(labels)) & set(" {}$")  # a study may name them


def test_a_recording_says_what_its_log_said(tmp_path: Path) -> None:
    for number, paths in enumerate((INSPECT, PROMPTFOO)):
        logs = read_logs(paths, metric="match" if paths is INSPECT else None)
        copy = tmp_path / f"{number}.jsonl"
        copy.write_text("".join(json.dumps(row) + "\n" for row in logs.records()))
        again = read_logs([str(copy)]).matrix()

        assert again.names == logs.matrix().names
        np.testing.assert_array_equal(again.scores, logs.matrix().scores)


def test_plain_tables_join_on_their_examples(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("candidate,x,y\nalpha,1,0\n")
    (tmp_path / "b.csv").write_text("candidate,example,score,cost\nbeta,y,0.5,2\nbeta,z,,2\n")
    logs = read_logs([str(tmp_path / "a.csv"), str(tmp_path / "b.csv")])

    np.testing.assert_array_equal(logs.matrix().scores, [[1, 0, np.nan], [np.nan, 0.5, np.nan]])
    assert "in no log, and so without a score: 2 answers" in logs.notes()


def test_examples_of_several_tasks_are_kept_apart(tmp_path: Path) -> None:
    template = json.loads(Path(INSPECT[0]).with_name("inspect_weak.json").read_text())
    template["eval"] |= {"task": "other", "task_id": "2"}
    (tmp_path / "other.json").write_text(json.dumps(template))
    logs = read_logs([INSPECT[1], str(tmp_path / "other.json")], metric="match")

    assert logs.matrix().names == ("mockllm/weak",)
    assert {example.partition(":")[0] for _, example in logs.pairs} == {"sums", "other"}


def test_candidates_without_a_score_are_left_out_and_named(tmp_path: Path) -> None:
    rows = [
        {"candidate": "a", "example": "x", "score": 1},
        {"candidate": "b", "example": "x", "error": "server"},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    logs = read_logs([str(tmp_path / "a.jsonl")])

    assert logs.matrix().names == ("a",)
    assert "left out, without any score: b" in logs.notes()


def inspect_log(path: Path, values: list[object], **config: object) -> str:
    samples = [{"id": i, "scores": {"s": {"value": value}}} for i, value in enumerate(values)]
    named = {"task": "t", "task_id": path.stem, "model": "openai/x"}
    spec = {**named, "model_generate_config": {"temperature": 0, **config}}
    path.write_text(json.dumps({"version": 2, "eval": spec, "samples": samples}))
    return str(path)


def test_settings_of_the_client_make_no_candidate_of_their_own(tmp_path: Path) -> None:
    logs = [
        inspect_log(tmp_path / "a.json", ["C", "I"], max_connections=1, timeout=30),
        inspect_log(
            tmp_path / "b.json", ["I", "I"], max_connections=20, max_retries=3, temperature=0
        ),
    ]
    known = read_logs(logs).matrix()
    assert known.names == ("openai/x",)
    assert known.means == [0.25]
    warm = inspect_log(tmp_path / "c.json", ["C", "C"], attempt_timeout=3, temperature=1)
    assert len(read_logs([*logs, warm]).matrix().names) == 2


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["A", "B", "A", "C"], "A, B"),
        (["C", "C-", "B+"], "B+, C-"),
        (["P", "F", "P"], "F"),
        (["pass", "fail", "pass"], "fail, pass"),
    ],
)
def test_verdicts_in_words_are_named_and_no_scores(
    tmp_path: Path, values: list[object], words: str
) -> None:
    path = inspect_log(tmp_path / "a.json", values)
    for metric in (None, "s"):
        with pytest.raises(ConfigError) as caught:
            read_logs([path], metric=metric)
        assert f"the verdicts of 's' are words ({words}), and no scores" in str(caught.value)


def test_a_word_among_scores_is_told_and_void(tmp_path: Path) -> None:
    logs = read_logs([inspect_log(tmp_path / "a.json", ["C", "I", "no verdict", 1])])
    np.testing.assert_array_equal(logs.matrix().scores, np.array([[1, 0, np.nan, 1]], np.float32))
    assert "verdicts in words, which are no scores: s (no verdict)" in logs.notes()


@pytest.mark.parametrize("texts", [(), ("--texts",)])
@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_an_export_of_our_own_is_read_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str, texts: tuple[str, ...]
) -> None:
    standing = run_all(write_study(tmp_path, n_candidates=3, n_examples=8))
    file = tmp_path / f"scores.{ending}"
    assert invoke(capsys, "export", "--out", file, *texts, folder=tmp_path).code == 0
    logs = read_logs([str(file)])
    means = dict(zip(logs.matrix().names, logs.matrix().means, strict=True))
    assert means == {row.candidate.label: pytest.approx(row.total / row.n) for row in standing.rows}
    done = invoke(capsys, "simulate", file, "--seeds", "2", "--jobs", "1", folder=tmp_path)
    assert done.code == 0, done.err
    assert "3 candidates x 8 examples" in done.out


@pytest.mark.parametrize(
    "rows",
    [
        [{"candidate": "a", "example": "x", "score": score} for score in (1, 0, 1, 0)],
        [{"candidate": "a", "example": "x", "text": "t", "score": s} for s in (1, 0, 0.5)],
    ],
)
def test_rows_of_a_pair_are_its_mean_in_json_lines(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    write_lines(tmp_path / "a.jsonl", rows)
    assert read_logs([str(tmp_path / "a.jsonl")]).matrix().means == [0.5]


def test_a_table_of_texts_and_scores_keeps_the_texts(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("candidate,example,text,score\na,x,yes,1\na,y,no,0\n")
    logs = read_logs([str(tmp_path / "a.csv")])
    assert [row["text"] for row in logs.records()] == ["yes", "no"]
