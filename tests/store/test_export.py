from __future__ import annotations

import csv
import io
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bestarm_agent.domain.events import CandidatesAdded, ExamplesAdded, Told
from bestarm_agent.domain.values import Candidate, Json, PromptTemplate, Score
from bestarm_agent.errors import ConfigError, StoreError
from bestarm_agent.simulation.score_matrices import load_matrix
from bestarm_agent.store.export import (
    PairOutcome,
    export_scores,
    harmless,
    labels,
    matrix,
    pairs_of,
)
from bestarm_agent.store.run_state import RunState, fold
from tests.support.store_runs import asked, failed, grid, started, told

SCORES = [
    [0.5, None, None, None],  # scored, void, pending, never asked
    [None, 0.0, 1.0, None],  # never asked, the candidate's failure, scored, never asked
]


@pytest.fixture
def state() -> RunState:
    asks = [asked(0, 0, 0), asked(1, 0, 1), asked(2, 0, 2), asked(3, 1, 1), asked(4, 1, 2)]
    outcomes = [told(4, 1.0), failed(1), failed(3, score=0.0), told(0, 0.5)]
    return fold([started(), *grid(2, 4), *asks, *outcomes])


def read_csv(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def read_jsonl(path: Path) -> list[dict[str, Json]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def answered(seq: int, answer: str) -> Told:
    return Told(seq, replace(told(seq).outcome, score=Score(1.0, answer)), 1.0)


def with_texts(state: RunState, *events: Told) -> list[PairOutcome]:
    """The pairs, with the answers of some outcomes."""
    answers = {one.seq: one.outcome.score.answer for one in events if one.outcome.score}
    seqs = range(state.n_asked)
    texts = [
        {
            "prompt": f"prompt {seq}",
            "target": "46",
            "reply": f"reply {seq}",
            "answer": answers.get(seq),
        }
        for seq in seqs
    ]
    return list(pairs_of(state, seqs, texts))


def test_the_grid_by_hand(state: RunState) -> None:
    expected = [[math.nan if x is None else x for x in row] for row in SCORES]
    np.testing.assert_array_equal(matrix(state), expected)
    assert matrix(fold([started()])).shape == (0, 0)


def test_labels_are_unique() -> None:
    prompt = PromptTemplate("p", text="x")
    names = ["same", "same", "other", ""]
    candidates = tuple(Candidate("hf", str(i), prompt, label=name) for i, name in enumerate(names))
    state = fold([started(), CandidatesAdded(candidates)])
    assert labels(state) == ["same #0", "same #1", "other", candidates[3].id]


def test_csv_records(state: RunState, tmp_path: Path) -> None:
    export_scores(state, tmp_path / "scores.csv")
    header, *lines = read_csv(tmp_path / "scores.csv")
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    assert [(row["candidate"], row["example"], row["state"], row["score"]) for row in rows] == [
        ("model 0", "example-0", "done", "0.5"),
        ("model 0", "example-1", "void", ""),
        ("model 0", "example-2", "pending", ""),
        ("model 1", "example-1", "failed", "0.0"),
        ("model 1", "example-2", "done", "1.0"),
    ]
    assert rows[0] == {
        "candidate": "model 0",
        "example": "example-0",
        "score": "0.5",
        "state": "done",
        "seq": "0",
        "reason": "ucb",
        "candidate_id": state.candidates[0].id,
        "provider": "hf",
        "model": "model-0",
        "usd": "1.5e-06",
        "tokens": "12",
        "calls": "1",
        "gpu_seconds": "0.125",
        "seconds": "0.5",
        "cached": "False",
        "failure": "",
    }
    assert (rows[1]["failure"], rows[1]["calls"], rows[1]["usd"]) == ("timeout", "3", "0.0")
    assert (rows[2]["calls"], rows[2]["usd"], rows[2]["seconds"]) == ("", "", "")


def test_texts_are_exported_on_request_only(state: RunState, tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"
    export_scores(state, path)
    assert not {"answer", "message", "prompt", "reply"} & read_jsonl(path)[0].keys()
    export_scores(state, path, pairs=with_texts(state, answered(0, "46")))
    fields = ("prompt", "target", "reply", "verdicts", "answer", "message")
    assert [tuple(record[name] for name in fields) for record in read_jsonl(path)[:3]] == [
        ("prompt 0", "46", "reply 0", None, "46", None),
        ("prompt 1", "46", "reply 1", None, None, "no answer"),
        ("prompt 2", "46", "reply 2", None, None, None),
    ]


def test_parquet(state: RunState, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    export_scores(state, tmp_path / "scores.parquet", pairs=with_texts(state))
    table = parquet.read_table(tmp_path / "scores.parquet")
    export_scores(state, tmp_path / "scores.jsonl", pairs=with_texts(state))
    assert table.to_pylist() == read_jsonl(tmp_path / "scores.jsonl")
    types = {field.name: str(field.type) for field in table.schema}
    assert (types["score"], types["seq"], types["cached"]) == ("double", "int64", "bool")
    assert types["message"] == "string"


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_an_empty_run_exports(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"scores.{ending}"
    export_scores(fold([started()]), path)
    assert (path.stat().st_size > 0) is (ending != "jsonl")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_simulator_reads_an_export(state: RunState, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"scores.{ending}"
    export_scores(state, path)
    loaded, asked_of = load_matrix(str(path)), matrix(state)[:, :3]  # nothing was of the last
    np.testing.assert_array_equal(loaded.scores, asked_of.astype(np.float32))
    assert loaded.names == ("model 0", "model 1")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_texts_are_never_formulas(start: str, tmp_path: Path) -> None:
    evil = f"{start}HYPERLINK(1)"
    candidate = Candidate("hf", evil, PromptTemplate("p", text="x"), label=evil)
    added = CandidatesAdded((candidate,)), ExamplesAdded((evil,), ("0",))
    state = fold([started(), *added, asked(0), answered(0, evil)])
    pairs = with_texts(state, answered(0, evil))
    export_scores(state, tmp_path / "scores.csv", pairs=pairs)
    cells = [cell for line in read_csv(tmp_path / "scores.csv") for cell in line]
    assert cells.count(f"'{evil}") == 4, "label, model, id, answer"
    assert not any(cell.startswith(start) for cell in cells)


def test_odd_texts_do_not_break_an_export(state: RunState, tmp_path: Path) -> None:
    odd = "lone \ud83d, \n new line, 答え"  # a dataset may hold it
    for ending in ("csv", "jsonl", "parquet"):
        pairs = [replace(pair, target=odd) for pair in with_texts(state)]
        export_scores(state, tmp_path / f"scores.{ending}", pairs=pairs)
    assert "\\ud83d, \n new line, 答え" in (tmp_path / "scores.csv").read_bytes().decode()


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet"])
def test_a_stream_gets_what_a_file_gets(state: RunState, format: str, tmp_path: Path) -> None:
    stream = io.BytesIO()
    export_scores(state, stream, format=format)
    assert not stream.closed
    export_scores(state, tmp_path / "scores", format=format)
    assert stream.getvalue() == (tmp_path / "scores").read_bytes()


def test_unknown_formats_are_refused(state: RunState, tmp_path: Path) -> None:
    for path, match in (("a.xlsx", "'xlsx'; there are `csv`"), ("a.cvs", "did you mean `csv`?")):
        with pytest.raises(ConfigError, match=match):
            export_scores(state, tmp_path / path)
    with pytest.raises(ValueError, match="needs `format`"):
        export_scores(state, io.BytesIO())
    assert list(tmp_path.iterdir()) == []


def test_parquet_without_pyarrow_says_how_to_install_it(
    state: RunState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install 'bestarm-agent\[data\]'"):
        export_scores(state, tmp_path / "scores.parquet")
    assert list(tmp_path.iterdir()) == []


def test_an_export_appears_whole_or_not_at_all(state: RunState, tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text("before")
    del state.example_ids[1:]  # makes writing fail half-way
    with pytest.raises(IndexError):
        export_scores(state, path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_where_nothing_can_be_written_is_named(state: RunState, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"scores\.csv cannot be written: .*give another path"):
        export_scores(state, tmp_path / "file" / "scores.csv")


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("-5", "-5"),
        ("+3.5e2", "+3.5e2"),
        ("-5+1", "'-5+1"),
        ("=1+1", "'=1+1"),
        ("\n=1+1", "'\n=1+1"),
        ("\uff1d1+1", "'\uff1d1+1"),
        ("@sum", "'@sum"),
        (-5.0, -5.0),
        ("5", "5"),
    ],
)
def test_numbers_stay_and_formulas_become_texts(cell: object, written: object) -> None:
    assert harmless(cell) == written
