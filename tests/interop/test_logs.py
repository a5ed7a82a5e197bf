"""Logs as matrices and recordings: labels, tasks, plain tables, and back again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from bestarm_agent.interop.formats import Result, label_candidates
from bestarm_agent.interop.logs import read_logs
from tests.interop.test_golden_files import INSPECT, PROMPTFOO


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
    assert "in no log, and so void: 2 pairs" in logs.notes()


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
