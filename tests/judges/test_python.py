"""Scores by a function of the user's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.values import Example, Finish, Reply
from bestarm_agent.errors import Blame, ConfigError, FailureKind, JudgeError
from bestarm_agent.judges.base import Judge
from bestarm_agent.judges.registry import check_examples, create_judge
from tests.support.judge_answers import NoCalls
from tests.support.store_runs import outcomes_in
from tests.support.studies import run_all, store_of, study_file

SOURCE = """
import asyncio, functools
import numpy

def length(answer, example):
    return min(1.0, len(answer) / example.inputs["most"])

def same(answer, example):
    return answer == example.reference

async def later(answer, example):
    await asyncio.sleep(0)
    return 0.25

@functools.wraps(later)
def wrapped(*arguments):
    return later(*arguments)

class Later:
    async def __call__(self, answer, example):
        return await later(answer, example)

an_object, a_part = Later(), functools.partial(later)

def stops(answer, example):
    return next(line for line in answer.splitlines() if line.startswith("Answer:"))

async def stops_later(answer, example):
    return stops(answer, example)

@functools.wraps(stops_later)
def stops_wrapped(*arguments):
    return stops_later(*arguments)

def cancels(answer, example):
    raise asyncio.CancelledError

def says_nothing(answer, example):
    assert answer == "x"

def odd(answer, example):
    return {
        "none": None, "much": 2, "text": "good", "nan": float("nan"),
        "one": "1", "bytes": b"1", "huge": 10**400, "list": [1], "float32": numpy.float32(1),
        "cosine": 1.0000000000000002,
    }[answer]

def leaves(answer, example):
    raise SystemExit(answer)

async def leaves_later(answer, example):
    raise SystemExit(answer)

def too_few(answer):
    return 1

def broken(answer, example):
    return same(
        answer, {}[answer])

async def careless(answer, example):
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task
"""
EXAMPLE = Example("e1", {"most": 10}, "46")


def judge(folder: Path, function: str, **options: object) -> Judge:
    (folder / "scoring.py").write_text(SOURCE)
    wanted = {"function": f"scoring:{function}", **options}
    return create_judge("python", wanted, Catalog(folder))  # type: ignore[arg-type]


def score(judge: Judge, reply: Reply) -> float:
    return asyncio.run(judge.score(EXAMPLE, reply, NoCalls())).value


@pytest.mark.parametrize(
    ("function", "answer", "expected"),
    [
        ("length", "12345", 0.5),
        ("same", "46", 1.0),
        ("same", "47", 0.0),
        ("later", "x", 0.25),
        ("wrapped", "x", 0.25),
        ("an_object", "x", 0.25),
        ("a_part", "x", 0.25),
        ("odd", "float32", 1.0),
        ("odd", "cosine", 1.0),
    ],
)
def test_a_function_scores(tmp_path: Path, function: str, answer: str, expected: float) -> None:
    assert score(judge(tmp_path, function), Reply(answer)) == expected


@pytest.mark.parametrize(
    ("function", "reply", "kind", "message"),
    [
        ("odd", Reply("none"), FailureKind.UNPARSABLE, "scoring:odd found nothing to score"),
        ("odd", Reply("no", Finish.REFUSAL), FailureKind.REFUSED, "refused"),
        *(
            (function, Reply(said), FailureKind.JUDGE_FAILED, message)
            for function, said, message in (
                ("odd", "much", r"in \[0, 1\] or None, got 2"),
                ("odd", "text", "got 'good'"),
                ("odd", "nan", "got nan"),
                ("odd", "one", "got '1'"),
                ("odd", "bytes", "got b'1'"),
                ("odd", "huge", "got 10000"),
                ("odd", "list", r"got \[1\]"),
                ("odd", "?", r"scoring:odd raised KeyError: '\?'"),
                ("odd", "very-hidden-value", r"raised KeyError: '\[redacted\]'"),
                ("leaves", "bye", "scoring:leaves raised SystemExit: bye"),
                ("leaves_later", "bye", "scoring:leaves_later raised SystemExit: bye"),
                *(
                    (name, "x", rf"^scoring:{name} raised StopIteration \(scoring.py, line \d+\)$")
                    for name in ("stops", "stops_later", "stops_wrapped")
                ),
                ("cancels", "x", r"raised CancelledError \(scoring.py, line \d+\)$"),
                ("says_nothing", "y", r"raised AssertionError \(scoring.py, line \d+\)$"),
                ("careless", "x", "let a cancellation of its own get out"),
                ("broken", "46", r"scoring:broken raised KeyError: '46' \(scoring.py, line \d+\)$"),
                (
                    "too_few",
                    "46",
                    r"raised TypeError: .*; it is called as too_few\(answer, example\)$",
                ),
            )
        ),
    ],
)
def test_what_is_no_score_is_told_apart_and_names_no_secret(
    tmp_path: Path,
    function: str,
    reply: Reply,
    kind: FailureKind,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JUDGE_TOKEN", "very-hidden-value")
    with pytest.raises(JudgeError, match=message) as caught:
        score(judge(tmp_path, function), reply)
    blame = Blame.JUDGE if kind is FailureKind.JUDGE_FAILED else Blame.CANDIDATE
    assert (caught.value.kind, caught.value.blame) == (kind, blame)


def test_a_study_keeps_what_a_scorer_says_without_half_characters(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def f(answer, example):\n    raise ValueError('\\ud800!')\n")
    files = {
        "rows": [{"id": "e1", "q": "?"}],
        "r": [{"candidate": "a", "example": "e1", "text": "46"}],
    }
    path = study_file(
        tmp_path,
        files,
        models=["replay/a"],
        scorer={"name": "python", "function": "own:f"},
        providers={"replay": {"path": "r.jsonl"}},
    )
    run_all(path)
    [outcome] = outcomes_in(store_of(path))
    assert outcome.failure is not None
    assert outcome.failure.message == "own:f raised ValueError: ?! (own.py, line 2)"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("python/scoring:same", r"python/scoring:same.*\{name: python, function: scoring:same\}"),
        ("scoring:same", r"not a subclass of .*; a function is named by \{name: python, function"),
    ],
)
def test_a_function_in_the_place_of_a_judge_is_told_its_own(
    tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / "scoring.py").write_text(SOURCE)
    with pytest.raises(ConfigError, match=message):
        create_judge(name, {}, Catalog(tmp_path))


def test_a_changed_function_is_another_judge(tmp_path: Path) -> None:
    first = judge(tmp_path, "same")
    assert judge(tmp_path, "same").digest == first.digest
    (tmp_path / "table.txt").write_text("1")
    with_table = judge(tmp_path, "same", sources=["*.txt"])
    (tmp_path / "table.txt").write_text("2")
    assert judge(tmp_path, "same", sources=["*.txt"]).digest != with_table.digest


def test_a_missing_function_and_a_missing_reference_are_found_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no `lenght`.*did you mean `length`"):
        judge(tmp_path, "lenght")
    with pytest.raises(ConfigError, match="no reference answer"):
        check_examples(judge(tmp_path, "same", needs_reference=True), [Example("e", {})])
