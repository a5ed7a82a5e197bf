"""The replay provider: files, attempts, latency, failures, and its cost per call."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.domain.values import Finish, Json, Reply, Request
from bestarm_agent.errors import Blame, ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.replay import ReplayOptions, ReplayProvider
from bestarm_agent.testing.provider_suite import ProviderCase, ProviderSuite
from tests.support.virtual_time import run_virtual

Row = Mapping[str, Json]


def write_rows(path: Path, *rows: Row) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def ask(model: str, example: str) -> Request:
    return Request(model=model, text="any", example=example)


def play(provider: ReplayProvider, *requests: Request) -> list[Reply]:
    async def main() -> list[Reply]:
        return [await provider.generate(request) for request in requests]

    return asyncio.run(main())


def failed(provider: ReplayProvider, request: Request) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        play(provider, request)
    return caught.value


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
        write_rows(tmp_path / "answers.jsonl", *rows)
        return ProviderCase(
            build=lambda: ReplayProvider.create("replay", {"path": "answers.jsonl"}, tmp_path),
            requests=[ask(f"c{i % 2}", f"e{i}") for i in range(6)],
            failing=[ask("c0", "bad"), ask("c0", "refused"), ask("c0", "absent"), ask("c7", "e0")],
            nonsense=["c7", ""],
            run=run_virtual,
        )


def test_a_row_becomes_a_reply(tmp_path: Path) -> None:
    write_rows(
        tmp_path / "r.jsonl",
        {
            "candidate": "gpt/qa",
            "example": 17,
            "text": "42",
            "score": 0.5,
            "finish": "length",
            "seconds": 0,
            "input_tokens": 7,
            "output_tokens": 3,
            "usd": 0.000_001,
        },
    )
    provider = ReplayProvider.create("replay", {"path": "r.jsonl"}, tmp_path)
    (reply,) = play(provider, ask("gpt/qa", "17"))
    assert reply == Reply(
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
    usd = [0.001, 0.003, 0.002]
    rows: list[Row] = [
        {"candidate": "j", "example": f"a/e{i}/first", "text": "", "usd": usd[i]} for i in (0, 1, 2)
    ]
    write_rows(tmp_path / "r.jsonl", *rows)
    provider = ReplayProvider.create("replay", {"path": "r.jsonl"}, tmp_path)
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
    provider = ReplayProvider.create("replay", {"path": "r.csv"}, tmp_path)
    replies = play(provider, ask("a", "1"), ask("a", "2"), ask("a", "3"))
    assert [(reply.text, reply.score) for reply in replies] == [
        ("two\nlines", None),
        ("", None),
        ("", 0.25),
    ]
    error = failed(provider, ask("a", "4"))
    assert (error.kind, error.transient, error.retry_after) == (
        FailureKind.RATE_LIMITED,
        True,
        1.5,
    )


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
    write_rows(
        tmp_path / "r.jsonl",
        {"candidate": "a", "example": "1", "error": kind, "message": "as it was"},
    )
    error = failed(ReplayProvider.create("replay", {"path": "r.jsonl"}, tmp_path), ask("a", "1"))
    assert (error.kind, error.blame, error.transient, error.fatal) == (
        FailureKind(kind),
        blame,
        transient,
        fatal,
    )
    assert str(error) == "as it was"


def test_attempts_are_played_in_turn_and_the_last_repeats(tmp_path: Path) -> None:
    write_rows(
        tmp_path / "r.jsonl",
        {"candidate": "a", "example": "1", "error": "overloaded", "usd": 0.5},
        {"candidate": "a", "example": "1", "attempt": 2, "text": "late", "usd": 0.25},
    )
    provider = ReplayProvider.create("replay", {"path": "r.jsonl"}, tmp_path)
    assert provider.bound(ask("a", "1")).usd_nanos == 500_000_000
    assert failed(provider, ask("a", "1")).kind is FailureKind.OVERLOADED
    assert [reply.text for reply in play(provider, *[ask("a", "1")] * 2)] == ["late", "late"]


def test_a_missing_record_counts_against_nobody(tmp_path: Path) -> None:
    write_rows(tmp_path / "s.jsonl", {"candidate": "0", "example": "1", "score": 1.0})
    error = failed(ReplayProvider.create("replay", {"path": "s.jsonl"}, tmp_path), ask("0", "0"))
    assert (error.blame, error.transient, error.fatal) == (Blame.HARNESS, False, False)
    assert "'0' at example '0'" in str(error)


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
    replies = play(provider, ask("a", "1"), ask("a", "2"))
    assert waited == pytest.approx(waits)
    assert [reply.seconds for reply in replies] == [3.0, 0.0]


def test_dollars_are_unknown_until_every_record_says_them(tmp_path: Path) -> None:
    write_rows(
        tmp_path / "r.jsonl",
        {"candidate": "a", "example": "1", "text": "", "usd": 0},
        {"candidate": "b", "example": "1", "text": "", "usd": 0},
        {"candidate": "b", "example": "2", "text": ""},
    )
    provider = ReplayProvider.create("replay", {"path": "r.jsonl"}, tmp_path)
    assert provider.capabilities("a").priced
    assert not provider.capabilities("b").priced


def test_the_fingerprint_follows_the_content(tmp_path: Path) -> None:
    prints = []
    for text in ("one", "two", "one"):
        write_rows(tmp_path / "r.jsonl", {"candidate": "a", "example": "1", "text": text})
        prints.append(
            ReplayProvider.create("replay", {"path": "r.jsonl"}, tmp_path).fingerprint("a")
        )
    assert prints[0] == prints[2] != prints[1]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"example": "1", "text": ""}, "`candidate` is missing"),
        ({"candidate": "a", "example": "1"}, "`text` or `score`"),
        ({"candidate": "a", "example": "1", "text": "", "error": "timeout"}, "`error`"),
        ({"candidate": "a", "example": "1", "score": 1.5}, "`score`"),
        ({"candidate": "a", "example": "1", "text": "", "usd": -1}, "`usd`"),
        ({"candidate": "a", "example": "1", "text": "", "tokens": 1}, "input_tokens"),
        ({"candidate": "a", "example": "1", "error": "judge-failed"}, "judge-failed"),
        ({"candidate": "a", "example": "0", "text": "again"}, "`attempt` is 1"),
        ({"candidate": "a", "example": "1", "text": "", "attempt": 2}, "`attempt` is 2"),
    ],
)
def test_bad_rows_are_refused_with_their_line(tmp_path: Path, row: Row, problem: str) -> None:
    write_rows(tmp_path / "r.jsonl", {"candidate": "a", "example": "0", "text": ""}, row)
    with pytest.raises(ConfigError, match=r"r\.jsonl, line 2: ") as caught:
        ReplayProvider.create("replay", {"path": "r.jsonl"}, tmp_path)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("r.jsonl", b'{"candidate": \n', "line 1, column 1: malformed JSON"),
        ("r.jsonl", b"[1]\n", "line 1: expected an object with fields, got a list"),
        ("r.jsonl", b"\xff\xfe\n", "is UTF-16; save it as UTF-8"),
        ("r.npz", b"", "not '.npz'"),
        ("r.txt", b"", "not '.txt'"),
        ("r.csv", b"candidate,example,text\na,1,x,y\n", "line 2: 4 values for the 3 columns"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=rf"^.*\b{name}") as caught:
        ReplayProvider.create("replay", {"path": name}, tmp_path)
    assert problem in str(caught.value)


@pytest.mark.parametrize("name", ["r.csv", "r.jsonl"])
def test_records_as_spreadsheets_save_them_are_read(tmp_path: Path, name: str) -> None:
    rows = "candidate,example,text\r\na,1,hi\r\n"
    if name == "r.jsonl":
        rows = '{"candidate": "a", "example": "1", "text": "hi"}\r\n'
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + rows.encode())
    [reply] = play(ReplayProvider.create("replay", {"path": name}, tmp_path), ask("a", "1"))
    assert reply.text == "hi"


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    for name in ("no.jsonl", "no.csv"):
        with pytest.raises(ConfigError, match=f"^there is no file {name}; correct the op"):
            ReplayProvider.create("replay", {"path": name}, tmp_path)


def test_bad_options_are_refused(tmp_path: Path) -> None:
    cases: list[tuple[Row, str]] = [
        ({}, "`path` is missing"),
        ({"path": "r.jsonl", "sped": 2}, "did you mean `speed`?"),
        ({"path": "r.jsonl", "speed": 0}, "`speed`"),
        ({"path": "r.jsonl", "latency_seconds": -1}, "`latency_seconds`"),
    ]
    for options, problem in cases:
        with pytest.raises(ConfigError, match="provider `tape`") as caught:
            ReplayProvider.create("tape", options, tmp_path)
        assert problem in str(caught.value)


def test_records_of_a_grid_are_found_by_the_candidates_label(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"candidate": f"tiny/plain/t={t}", "example": "e", "text": f"{t}"} for t in (0, 1)
    ]
    (tmp_path / "grid.jsonl.gz").write_bytes(
        gzip.compress("\n".join(json.dumps(row) for row in rows).encode())
    )
    options = ReplayOptions(path="grid.jsonl.gz", by="candidate")
    provider = ReplayProvider("replay", options, tmp_path)
    provider.check("tiny")
    assert "temperature" in provider.capabilities("tiny").params
    asks = [replace(ask("tiny", "e"), candidate=f"tiny/plain/t={t}") for t in (0, 1)]
    assert [reply.text for reply in play(provider, *asks)] == ["0", "1"]
    with pytest.raises(ProviderError, match="no record of candidate 'tiny/qa'"):
        play(provider, replace(ask("tiny", "e"), candidate="tiny/qa"))
    by_model = ReplayProvider("replay", ReplayOptions(path="grid.jsonl.gz"), tmp_path)
    with pytest.raises(ConfigError, match="give the provider `by: candidate`"):
        by_model.check("tiny")
