"""The replay provider: files, attempts, latency, failures, and its cost per call."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.domain.values import Finish, Json, Reply, Request
from bestarm_agent.errors import Blame, ConfigError, FailureKind
from bestarm_agent.interop.formats import read_results
from bestarm_agent.providers.replay import ReplayOptions, ReplayProvider
from bestarm_agent.testing.provider_suite import ProviderCase, ProviderSuite
from tests.support.provider_calls import error, replies, reply
from tests.support.virtual_time import run_virtual

Row = Mapping[str, Json]


def write_rows(path: Path, *rows: Row) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def tape(folder: Path, *rows: Row) -> ReplayProvider:
    """A provider that plays rows back."""
    write_rows(folder / "r.jsonl", *rows)
    return open_file(folder, "r.jsonl")


def open_file(folder: Path, path: str, **options: Json) -> ReplayProvider:
    return ReplayProvider.create("replay", {"path": path, **options}, folder)


def ask(model: str, example: str) -> Request:
    return Request(model=model, text="any", example=example)


class TestConformance(ProviderSuite):
    adapters = ("replay",)

    @pytest.fixture
    def case(self, tmp_path: Path) -> ProviderCase:
        rows: list[Row] = [
            {
                "candidate": f"c{i % 2}",
                "example": f"e{i}",
                "text": f"answer {i}",
                "seconds": 1 + i % 3,
                "input_tokens": 10 + i,
                "output_tokens": i,
                "usd": 0.001 * i,
            }
            for i in range(6)
        ]
        rows.append({"candidate": "c0", "example": "bad", "error": "overloaded", "usd": 0.01})
        rows.append({"candidate": "c0", "example": "refused", "error": "refused", "usd": 0.01})
        write_rows(tmp_path / "r.jsonl", *rows)
        return ProviderCase(
            build=lambda: open_file(tmp_path, "r.jsonl"),
            requests=[ask(f"c{i % 2}", f"e{i}") for i in range(6)],
            failing=[ask("c0", "bad"), ask("c0", "refused"), ask("c0", "absent"), ask("c7", "e0")],
            nonsense=["c7", ""],
            run=run_virtual,
        )


def test_a_row_becomes_a_reply(tmp_path: Path) -> None:
    row: Row = {
        "candidate": "gpt/qa",
        "example": 17,
        "text": "42",
        "score": 0.5,
        "finish": "length",
    }
    costs: Row = {
        "score": 0.5,
        "seconds": 0,
        "input_tokens": 7,
        "output_tokens": 3,
        "usd": 0.000_001,
    }
    provider = tape(tmp_path, {**row, **costs})
    assert reply(provider, ask("gpt/qa", "17")) == Reply(
        text="42",
        finish=Finish.LENGTH,
        usage=Usage(input=7, output=3),
        usd_nanos=1000,
        model="gpt/qa",
        score=0.5,
        recorded=True,
    )
    assert provider.bound(ask("gpt/qa", "17")) == Spend(calls=1, tokens=10, usd_nanos=1000)


def test_a_call_that_has_no_record_by_its_name_is_bounded_by_the_dearest(tmp_path: Path) -> None:
    """As a judgement is, before the answer is there that it is named after."""
    provider = tape(
        tmp_path,
        {"candidate": "j", "example": "a/e0/first", "text": "", "usd": 0.001},
        {"candidate": "j", "example": "a/e1/first", "text": "", "usd": 0.003},
    )
    assert provider.bound(ask("j", "e1/first")).usd_nanos == 3_000_000
    assert provider.bound(ask("j", "a/e0/first")).usd_nanos == 1_000_000


def test_csv_tells_an_empty_answer_from_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(
        "candidate,example,text,score,error,retry_after\n"
        'a,1,"two\nlines",,,\n'
        "a,2,,,,\n"
        "a,3,,0.25,,\n"
        "a,4,,,rate-limited,1.5\n",
        encoding="utf-8",
    )
    provider = open_file(tmp_path, "r.csv")
    found = replies(provider, *(ask("a", str(n)) for n in (1, 2, 3)))
    assert [(one.text, one.score) for one in found] == [
        ("two\nlines", None),
        ("", None),
        ("", 0.25),
    ]
    failed = error(provider, ask("a", "4"))
    wanted = (FailureKind.RATE_LIMITED, True, 1.5)
    assert (failed.kind, failed.transient, failed.retry_after) == wanted


@pytest.mark.parametrize(
    ("kind", "blame", "transient", "fatal"),
    [
        ("refused", Blame.CANDIDATE, False, False),
        ("too-long", Blame.CANDIDATE, False, False),
        ("timeout", Blame.PROVIDER, True, False),
        ("malformed-reply", Blame.PROVIDER, True, False),
        ("quota-exhausted", Blame.PROVIDER, False, True),
        ("model-not-found", Blame.PROVIDER, False, True),
        ("bad-request", Blame.HARNESS, False, True),
        ("internal", Blame.HARNESS, False, False),
    ],
)
def test_recorded_failures_are_typed(
    tmp_path: Path, kind: str, blame: Blame, transient: bool, fatal: bool
) -> None:
    row = {"candidate": "a", "example": "1", "error": kind, "message": "as it was"}
    found = error(tape(tmp_path, row), ask("a", "1"))
    assert (found.kind, found.blame) == (FailureKind(kind), blame)
    assert (found.transient, found.fatal, str(found)) == (transient, fatal, "as it was")


def test_attempts_are_played_in_turn_and_the_last_repeats(tmp_path: Path) -> None:
    provider = tape(
        tmp_path,
        {"candidate": "a", "example": "1", "error": "overloaded", "usd": 0.5},
        {"candidate": "a", "example": "1", "attempt": 2, "text": "late", "usd": 0.25},
    )
    assert provider.bound(ask("a", "1")).usd_nanos == 500_000_000
    assert error(provider, ask("a", "1")).kind is FailureKind.OVERLOADED
    assert [one.text for one in replies(provider, *[ask("a", "1")] * 2)] == ["late", "late"]


def test_a_missing_record_counts_against_nobody(tmp_path: Path) -> None:
    provider = tape(tmp_path, {"candidate": "0", "example": "1", "score": 1.0})
    found = error(provider, ask("0", "0"))
    assert (found.blame, found.transient, found.fatal) == (Blame.HARNESS, False, False)
    assert "'0' at example '0'" in str(found)


@pytest.mark.parametrize(
    ("options", "waits"),
    [
        ({}, [3.0]),
        ({"latency_seconds": 0.5}, [3.0, 0.5]),
        ({"latency_seconds": 0.5, "speed": 10}, [0.3, 0.05]),
        ({"latency_seconds": 0.5, "speed": "inf"}, []),
    ],
)
def test_recorded_time_is_awaited(tmp_path: Path, options: Row, waits: list[float]) -> None:
    write_rows(
        tmp_path / "r.jsonl",
        {"candidate": "a", "example": "1", "text": "", "seconds": 3},
        {"candidate": "a", "example": "2", "text": ""},
    )
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    parsed = ReplayOptions.model_validate({"path": "r.jsonl", **options})
    provider = ReplayProvider("replay", parsed, tmp_path, sleep=sleep)
    found = replies(provider, ask("a", "1"), ask("a", "2"))
    assert waited == pytest.approx(waits)
    assert [one.seconds for one in found] == [3.0, 0.0]


def test_dollars_are_unknown_until_every_record_says_them(tmp_path: Path) -> None:
    provider = tape(
        tmp_path,
        {"candidate": "a", "example": "1", "text": "", "usd": 0},
        {"candidate": "b", "example": "1", "text": "", "usd": 0},
        {"candidate": "b", "example": "2", "text": ""},
    )
    assert provider.capabilities("a").priced
    assert not provider.capabilities("b").priced


def test_the_fingerprint_follows_the_content(tmp_path: Path) -> None:
    one, two, three = (
        tape(tmp_path, {"candidate": "a", "example": "1", "text": text}).fingerprint("a")
        for text in ("one", "two", "one")
    )
    assert one == three != two


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"example": "1", "text": ""}, "`candidate` is missing"),
        ({"candidate": "a", "example": "1"}, "`text` or `score`"),
        ({"candidate": "a", "example": "1", "text": None, "error": None}, "`text` or `score`"),
        ({"candidate": "a", "example": "1", "text": "x", "error": "timeout"}, "`error`"),
        ({"candidate": "a", "example": "1", "score": 1.5}, "`score`"),
        ({"candidate": "a", "example": "1", "text": "", "usd": -1}, "`usd`"),
        ({"candidate": "a", "example": "1", "text": "", "tokens": 1}, "input_tokens"),
        ({"candidate": "a", "example": "1", "error": "judge-failed"}, "judge-failed"),
        ({"candidate": "a", "example": "0", "text": "again"}, "`attempt` is 1"),
        ({"candidate": "a", "example": "1", "text": "", "attempt": 2}, "`attempt` is 2"),
    ],
)
def test_bad_rows_are_refused_with_their_line(tmp_path: Path, row: Row, problem: str) -> None:
    with pytest.raises(ConfigError, match=r"r\.jsonl, line 2: ") as caught:
        tape(tmp_path, {"candidate": "a", "example": "0", "text": ""}, row)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("r.jsonl", b'{"candidate": \n', "line 1, column 14: malformed JSON"),
        ("r.jsonl", b"[1]\n", "line 1: expected an object with fields, got a list"),
        ("r.jsonl", b"\xff\xfe\n", "is UTF-16; save it as UTF-8"),
        ("r.npz", b"", "the suffix '.npz' is none of"),
        ("r.txt", b"", "the suffix '.txt' is none of"),
        ("r.csv.gz", gzip.compress(b"candidate,example\n", mtime=0)[:-9], "cannot read"),
        ("r.csv", b"candidate,example,text\na,1,x,y\n", "line 2: 4 values for the 3 columns"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=rf"^.*\b{name}") as caught:
        open_file(tmp_path, name)
    assert problem in str(caught.value)


def test_the_format_and_not_the_name_says_what_an_empty_cell_is(tmp_path: Path) -> None:
    """pandas writes null wherever another row has a value; "from.json.csv" is a table."""
    (tmp_path / "from.json.csv").write_text("candidate,example,text,score\na,1,,\na,2,,0.5\n")
    table = open_file(tmp_path, "from.json.csv")
    empty = {"message": None, "retry_after": None, "usd": None, "error": None}
    typed = tape(
        tmp_path,
        {"candidate": "a", "example": "1", "text": "", "score": None, **empty},
        {"candidate": "a", "example": "2", "text": None, "score": 0.5, **empty},
    )
    for provider in (table, typed):
        found = replies(provider, ask("a", "1"), ask("a", "2"))
        assert [(one.text, one.score) for one in found] == [("", None), ("", 0.5)]


@pytest.mark.parametrize("name", ["r.csv", "r.jsonl"])
def test_records_as_spreadsheets_save_them_are_read(tmp_path: Path, name: str) -> None:
    rows = "candidate,example,text\r\na,1,hi\r\n"
    if name == "r.jsonl":
        rows = '{"candidate": "a", "example": "1", "text": "hi"}\r\n'
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + rows.encode())
    assert reply(open_file(tmp_path, name), ask("a", "1")).text == "hi"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"path": "no.jsonl"}, "^there is no file no.jsonl; correct the op"),
        ({"path": "no.csv"}, "^there is no file no.csv; correct the op"),
        ({}, "provider `tape`.*`path` is missing"),
        ({"path": "r.jsonl", "sped": 2}, r"provider `tape`.*did you mean `speed`\?"),
        ({"path": "r.jsonl", "speed": 0}, "provider `tape`.*`speed`"),
        ({"path": "r.jsonl", "latency_seconds": -1}, "provider `tape`.*`latency_seconds`"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, options: Row, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        ReplayProvider.create("tape", options, tmp_path)


def test_records_of_a_grid_are_found_by_the_candidates_label(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"candidate": f"tiny/plain/t={t}", "example": "e", "text": f"{t}"} for t in (0, 1)
    ]
    (tmp_path / "grid.jsonl.gz").write_bytes(
        gzip.compress("\n".join(json.dumps(row) for row in rows).encode())
    )
    provider = open_file(tmp_path, "grid.jsonl.gz", by="candidate")
    provider.check("tiny")
    assert "temperature" in provider.capabilities("tiny").params
    asks = [replace(ask("tiny", "e"), candidate=f"tiny/plain/t={t}") for t in (0, 1)]
    assert [one.text for one in replies(provider, *asks)] == ["0", "1"]
    missing = error(provider, replace(ask("tiny", "e"), candidate="tiny/qa"))
    assert "no record of candidate 'tiny/qa'" in str(missing)
    with pytest.raises(ConfigError, match="give the provider `by: candidate`"):
        open_file(tmp_path, "grid.jsonl.gz").check("tiny")


def test_a_score_of_0_in_a_typed_table_is_a_score(tmp_path: Path) -> None:
    """Parquet has numbers where a CSV has texts, and 0 is as empty to Python as no text."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"candidate": "a", "example": str(n), "text": "x", "score": n / 2} for n in range(3)]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "r.parquet")
    provider = open_file(tmp_path, "r.parquet")
    assert [one.score for one in replies(provider, *(ask("a", str(n)) for n in range(3)))] == [
        *(0.0, 0.5, 1.0)
    ]
    (result, *_) = read_results(tmp_path / "r.parquet")
    assert result.scores == {"score": 0.0}
