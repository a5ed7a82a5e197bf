"""A selection in one call: of candidates that a function evaluates, or of a study file."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
import warnings
from collections.abc import Callable
from datetime import date
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

import numpy as np
import pytest

from bestarm_agent import Budget, CandidateDict, CandidateError, ConfigError, find_best, select
from bestarm_agent.config.input_specs import CandidateSpec
from bestarm_agent.domain.values import Json
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.errors import FailureKind
from bestarm_agent.providers import failure
from bestarm_agent.selectors import Problem, State, Tell, make_selector
from bestarm_agent.selectors.registry import SELECTORS, SelectorName
from tests.support.studies import write_study

RIGHT = np.random.default_rng(1).random((3, 300)) < [[0.9], [0.6], [0.5]]
QUESTIONS = [{"id": f"q{i}", "target": str(i), "sum": f"{i} + 0"} for i in range(60)]
LOUD, TERSE = "loud", "terse"


def right(candidate: int, example: int) -> bool:
    return bool(RIGHT[candidate, example])


async def right_later(candidate: int, example: int) -> float:
    await asyncio.sleep(0)
    return float(RIGHT[candidate, example])


def answer(candidate: str, example: dict[str, str]) -> str:
    return example["target"] if candidate == TERSE else f"It is {example['target']}!"


def checked(standing: Standing) -> Standing:
    assert standing.winner is not None
    assert standing.decision.proved
    return standing


@pytest.mark.parametrize("evaluate", [right, right_later, lambda c, e: right_later(c, e)])
def test_a_function_is_enough(evaluate: Callable[..., Any]) -> None:
    standing = checked(find_best(evaluate, [0, 1, 2], range(300), seed=1))
    assert standing.winner is not None
    assert (standing.winner.index, standing.winner.candidate.label) == (0, "0")
    assert standing.share < 0.6
    assert standing.new_examples is not None


def test_candidates_may_be_typed_as_those_of_a_study_are() -> None:
    candidates: list[CandidateDict] = [
        {"model": "m", "prompt": "p", "label": "cold", "params": {"temperature": 0}},
        {"model": "m", "prompt": "p", "label": "warm", "params": {"temperature": 1}},
    ]

    def evaluate(candidate: CandidateDict, example: int) -> bool:
        return candidate["params"]["temperature"] == 1 or example % 2 == 0

    standing = checked(find_best(evaluate, candidates, range(200)))
    assert standing.winner is not None
    assert standing.winner.candidate.label == "warm"
    assert CandidateDict.__annotations__.keys() == CandidateSpec.model_fields.keys()


def test_rounds_of_proposals_are_run_by_select_alone(tmp_path: Path) -> None:
    proposer = "def propose(feedback):\n    return '{{ question }} ' + str(feedback.round)\n"
    (tmp_path / "mine.py").write_text(proposer)
    optimize: dict[str, object] = {"proposer": "mine:propose", "rounds": 2}
    replies = {"models": ["python/model:answer"], "providers": {}, "scorer": "exact"}
    (tmp_path / "model.py").write_text("def answer(task):\n    return task.prompt[-1]\n")
    (tmp_path / "rows.jsonl").write_text(
        "".join(f'{{"id": "{i}", "question": "{i}", "target": "2"}}\n' for i in range(30))
    )
    dataset: Json = {"path": "rows.jsonl", "id": "id", "target": "target"}
    path = write_study(tmp_path, changes={**replies, "dataset": dataset})
    overrides = {"optimize": optimize, "scorer.trusted": True}
    standing = select(path, budget=Budget(answers=40), overrides=overrides, show=False)
    assert [row.candidate.label for row in standing.rows if "round" in row.candidate.label]
    assert standing.asked <= 40
    with pytest.raises(ConfigError, match="budget must be a Budget"):
        select(path, budget=40, overrides=overrides)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a function's candidates have none"):
        find_best(right, [0, 1], range(9), overrides={"optimize": optimize})


def test_where_a_loop_is_running_already() -> None:
    async def cell() -> Standing:
        return find_best(right, [0, 1, 2], range(300), seed=1)

    elsewhere = find_best(right, [0, 1, 2], range(300), seed=1)
    assert checked(asyncio.run(cell())).asked == elsewhere.asked


@pytest.mark.parametrize(
    ("candidates", "labels"),
    [
        (["a", "b"], ["a", "b"]),
        ({"x": 1, "y": 2}, ["x", "y"]),
        ([{"label": "one"}, {"model": "m", "t": 0.5}], ["one", "model=m t=0.5"]),
        ([right, answer], ["right", "answer"]),
        ([("m", 0.5), ("m", 1)], ["m 0.5", "m 1"]),
    ],
)
def test_candidates_are_named_by_what_they_are(
    candidates: list[object] | dict[str, object], labels: list[str]
) -> None:
    given = list(candidates.values() if isinstance(candidates, dict) else candidates)
    standing = find_best(lambda c, _: given.index(c), candidates, range(40))
    rows = sorted(standing.rows, key=lambda row: row.index)
    assert [row.candidate.label for row in rows] == labels
    assert standing.rows[0].index == 1


class Model:
    """An object that says nothing of itself."""


class Labelled:
    def __init__(self, label: str) -> None:
        self.label = label


LONG = "Answer as well as you can, " * 5
ODD = [
    "What is it?",
    "  two\nlines, \x1b[31mred ",
    "",
    "日本語",
    "[/red]<b>*x*|",
    "{% if x %}",
    "a;b",
]


@pytest.mark.parametrize(
    ("candidates", "labels"),
    [
        (
            ODD,
            [
                *("What is it?", "two lines, \ufffd[31mred", "(empty)", "日本語", "[/red]<b>*x*|"),
                *("{% if x %}", "a;b"),
            ],
        ),
        (
            [LONG + "a" + LONG, LONG + "b" + LONG],
            ["Answer as well as you can, Ans…n, Answer as well as you can,"] * 2,
        ),
        ([Model(), Model()], ["<tests.test_one_call.Model object>"] * 2),
        ([Labelled("one"), Labelled("two")], ["one", "two"]),
        ([lambda: 1, lambda: 2], ["<lambda>"] * 2),
        ({"a?": 1, 2: 2}, ["a?", "2"]),
        ((name for name in ("x", "y")), ["x", "y"]),
    ],
)
def test_any_text_or_object_is_a_candidate(candidates: list[object], labels: list[str]) -> None:
    standing = find_best(lambda _, e: e % 3 == 0, candidates, range(9), show=False)
    found = [row.candidate.label for row in sorted(standing.rows, key=lambda row: row.index)]
    assert len(set(found)) == len(labels)
    assert [one.removesuffix(" #2") for one in found] == labels
    assert all(len(one) <= 63 for one in found)


def tables() -> list[Any]:
    """The same rows in every kind of table; those of pandas and polars where they are there."""
    columns = {"id": ["a", "b", "c"], "target": ["1", "2", "3"]}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    pandas, polars, arrow = map(find_spec, ("pandas", "polars", "pyarrow"))
    found: list[Any] = [
        rows,
        tuple(rows),
        iter(rows),
        {"x": rows}["x"],
        dict(enumerate(rows)).values(),
    ]
    if pandas:
        found.append(import_module("pandas").DataFrame(columns, index=[5, 5, 7]))
    if polars:
        frame = import_module("polars").DataFrame(columns)
        found += [frame, frame.lazy()]
    if arrow:
        found.append(import_module("pyarrow").table(columns))
    return found


@pytest.mark.parametrize("examples", tables(), ids=lambda one: type(one).__name__)
def test_examples_are_the_rows_of_any_table(examples: list[dict[str, str]]) -> None:
    def evaluate(candidate: str, example: dict[str, str]) -> str:
        return example["target"] if candidate == TERSE else "?"

    standing = find_best(evaluate, [LOUD, TERSE], examples, scorer="exact", show=False)
    assert (standing.n_examples, standing.rows[0].candidate.label) == (3, TERSE)


def test_candidates_may_be_the_rows_of_a_table() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"label": ["even", "none"], "divisor": [2, 1000]})
    standing = find_best(lambda c, e: e % c["divisor"] == 1, frame, range(1, 200), show=False)
    assert standing.rows[0].candidate.label == "even"


def test_what_to_take_is_the_candidate_that_was_given() -> None:
    candidates = [{"divisor": 1000}, {"divisor": 2}]
    found = find_best(lambda c, e: e % c["divisor"] == 1, candidates, range(2, 200), show=False)
    assert found.decision.take is candidates[1]
    assert found.winner is not None
    assert candidates[found.winner.index] is candidates[1]


def test_the_answers_are_kept_with_their_texts() -> None:
    """So that one can ask which of them were wrong."""
    standing = find_best(answer, [LOUD, TERSE], QUESTIONS, scorer="exact", show=False)
    wrong = [one for one in standing.answers if one.score == 0]
    assert {one.candidate for one in wrong} == {LOUD}
    assert all(one.reply == f"It is {one.target}!" and one.inputs["sum"] for one in wrong)
    assert len(standing.answers) == sum(row.n for row in standing.rows)
    by_score = find_best(right, [0, 1, 2], range(300), seed=1, show=False).answers
    assert all(one.score == RIGHT[int(one.candidate), int(one.example)] for one in by_score)


def test_texts_are_scored_as_in_a_study() -> None:
    strict: dict[str, Json] = {"name": "exact", "trusted": True}
    standing = checked(find_best(answer, [LOUD, TERSE], QUESTIONS, scorer=strict))
    assert standing.rows[0].candidate.label == TERSE
    level = find_best(answer, [LOUD, TERSE], QUESTIONS, scorer={"name": "contains"})
    assert [row.total / row.n for row in level.rows] == [1.0, 1.0]


# overrides of the dataset, with the examples that are left and the ids of the first two
DATASETS: list[tuple[dict[str, Any], int, list[str]]] = [
    ({"dataset.target": "sum_is"}, 60, ["q0", "q1"]),
    ({"dataset": {"target": "sum_is", "limit": 5}}, 5, ["q0", "q1"]),
    ({"dataset.target": "held.text", "dataset.fields": ["sum"]}, 60, ["q0", "q1"]),
    ({"dataset.target": "sum_is", "dataset.id": "sum"}, 60, ["0 + 0", "1 + 0"]),
    ({"dataset.target": "sum_is", "dataset.drop": ["id"]}, 60, ["000001", "000002"]),
]


@pytest.mark.parametrize(("overrides", "n", "ids"), DATASETS)
def test_the_keys_of_a_dataset_hold_for_given_examples(
    overrides: dict[str, Any], n: int, ids: list[str]
) -> None:
    rows = [
        row | {"target": "an address", "sum_is": row["target"], "held": {"text": row["target"]}}
        for row in QUESTIONS
    ]
    standing = find_best(
        lambda c, e: e["sum_is"] if c == TERSE else "?",
        [LOUD, TERSE],
        rows,
        scorer="exact",
        overrides={**overrides, "selector.stop_when_separated": False},
        show=False,
    )
    assert (standing.n_examples, standing.decision.take) == (n, TERSE)
    found = {one.example: one.inputs for one in standing.answers}
    assert found.keys() >= set(ids)
    assert len(found) == n
    if "dataset.fields" in overrides:
        assert {*map(len, found.values())} == {1}


def test_examples_that_only_a_function_scores_may_be_limited_too() -> None:
    keys: dict[str, Json] = {"dataset.limit": 7, "dataset.id": "id"}
    standing = find_best(lambda _, e: "5" in e["id"], [0, 1], QUESTIONS, overrides=keys, show=False)
    assert standing.n_examples == 7
    assert {one.example for one in standing.answers} <= {f"q{i}" for i in range(7)}


# fields that are no JSON, with what stands in their place; the function gets them as they are
NO_JSON: list[tuple[object, Json]] = [
    (float("nan"), None),
    (np.int64(3), 3),
    (np.float32(0.5), 0.5),
    ([np.bool_(True), float("inf")], [True, None]),
    (np.arange(2), [0, 1]),
    (date(2020, 1, 2), "2020-01-02"),
    (UUID(int=5), str(UUID(int=5))),
    (b"text", "b'text'"),
    ({(1, 2): 3}, "{(1, 2): 3}"),
    ("half \ud800", "half ?"),
]


@pytest.mark.parametrize("scorer", ["exact", None])
@pytest.mark.parametrize(("value", "shown"), NO_JSON, ids=lambda one: f"{one!a:.20}")
def test_a_row_may_hold_anything(value: object, shown: Json, scorer: str | None) -> None:
    rows = [{"q": i, "target": np.int64(i), "held": value} for i in range(20)]

    def evaluate(candidate: str, example: dict[str, Any]) -> object:
        assert example["held"] is value
        said = str(example["q"]) if candidate == TERSE else "?"
        return said if scorer else said != "?"

    standing = find_best(evaluate, [LOUD, TERSE], rows, scorer=scorer, show=False)
    assert standing.decision.take == TERSE
    assert all(one.inputs["held"] == shown for one in standing.answers)


@pytest.mark.parametrize(
    ("budget", "asked"),
    [(Budget(answers=20), 20), (Budget(usd=0.5), 50), (Budget(usd_nanos=300_000_000), 30)],
)
def test_a_budget_is_kept(budget: Budget, asked: int) -> None:
    level = (np.random.default_rng(3).random((3, 300)) < 0.5).astype(float)
    standing = find_best(
        lambda c, e: level[c, e], [0, 1, 2], range(300), budget=budget, usd_per_call=0.01
    )
    assert (standing.end, standing.asked) == ("budget", asked)


def test_at_most_so_many_threads_are_in_flight() -> None:
    now, most, calls, lock = 0, 0, 0, threading.Lock()
    together = threading.Barrier(3)

    def evaluate(candidate: int, example: int) -> bool:
        nonlocal now, most, calls
        with lock:
            now, calls = now + 1, calls + 1
            most, is_early = max(most, now), calls <= 3
        if is_early:
            together.wait(5)
        with lock:
            now -= 1
        return right(candidate, example)

    find_best(evaluate, [0, 1, 2], range(300), in_flight=3)
    assert most == 3


def test_a_call_that_raises_is_left_out_and_said() -> None:
    def fails_at_times(candidate: int, example: int) -> bool | None:
        if example % 10 == 0:
            raise KeyError(example)
        return None if example % 10 == 1 else right(candidate, example)

    said = r"calls of \d+ failed .* KeyError: \d+ \(test_one_call"
    with pytest.warns(RuntimeWarning, match=said):
        standing = find_best(fails_at_times, [0, 1, 2], range(300))
    assert standing.rows[0].index == 0
    assert sum(row.void for row in standing.rows) > 10
    assert not any(row.failed for row in standing.rows)


@pytest.mark.parametrize("raised", [ValueError("no such model"), SystemExit("no such model")])
def test_a_candidate_that_always_raises_is_given_up(raised: BaseException) -> None:
    called: list[int] = []

    async def raises(candidate: int, example: int) -> bool:
        if candidate != 1:
            return right(candidate, example)
        called.append(example)
        raise raised

    with pytest.warns(
        RuntimeWarning, match=r"failed and are left out; .* no such model \(test_one"
    ):
        standing = find_best(raises, [0, 1, 2], range(300), in_flight=1, show=False)
    assert len(called) == 5
    assert standing.decision.take == 0
    problems = {row.index: row.problem for row in standing.rows}
    assert "no such model" in str(problems[1])
    assert problems[0] is problems[2] is None


@pytest.mark.parametrize("is_async", [True, False])
def test_a_call_that_hangs_is_repeated_then_left_out(is_async: bool) -> None:
    calls: list[int] = []
    end = threading.Event()

    def evaluate(candidate: int, example: int) -> Any:  # noqa: ANN401
        if (candidate, example) != (1, 3):
            return right(candidate, example)
        calls.append(example)
        return hangs(candidate, example) if is_async else end.wait(60)

    keys: dict[str, Json] = {"limits.timeout_seconds": 0.2, "limits.max_attempts": 2}
    with pytest.warns(RuntimeWarning, match=r"1 call of 20 failed .* not return within 0\.2 s"):
        standing = find_best(
            evaluate,
            [0, 1],
            range(10),
            overrides={**keys, "selector.stop_when_separated": False},
            show=False,
        )
    end.set()
    assert (len(calls), len(standing.answers)) == (2, 19)


@pytest.mark.parametrize("fatal", [False, True])
def test_an_error_of_a_called_model_is_the_candidates(fatal: bool) -> None:
    """One that passes is repeated; one that does not gives up this candidate alone."""
    seen: set[int] = set()
    kind = FailureKind.AUTHENTICATION if fatal else FailureKind.RATE_LIMITED

    def evaluate(candidate: int, example: int) -> bool:
        if candidate == 1 and (fatal or example not in seen):
            seen.add(example)
            raise failure(kind, "the model said no", retry_after=0.01)
        return right(candidate, example)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        all_asked: dict[str, Json] = {"selector.stop_when_separated": False}
        standing = find_best(evaluate, [0, 1], range(20), overrides=all_asked, show=False)
    rows = {row.index: row for row in standing.rows}
    assert (rows[1].n == 0, bool(told)) == (fatal, fatal)
    assert str(rows[1].problem) == ("the function: the model said no" if fatal else "None")
    assert rows[0].n
    assert rows[0].problem is None


async def of_a_library(_candidate: object, _example: object) -> float:
    return float(json.loads("no JSON"))


def at_an_end(_candidate: object, _example: object) -> float:
    return next(iter([]))


async def of_a_group(candidate: object, example: object) -> float:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(of_a_library(candidate, example))
    return 1.0


async def with_an_end(_candidate: object, _example: object) -> float:
    raise StopIteration("an end")


async def cancels_itself(_candidate: object, _example: object) -> float:
    task = asyncio.create_task(asyncio.sleep(9))
    task.cancel()
    await task
    return 1.0


@pytest.mark.parametrize(
    ("evaluate", "said"),
    [
        (of_a_library, "JSONDecodeError: Expecting value: "),
        (of_a_group, "JSONDecodeError: Expecting value: "),
        (at_an_end, "StopIteration: "),
        (with_an_end, "StopIteration: an end"),
        (cancels_itself, "CancelledError: "),
        (lambda _c, _e: sys.exit("no key"), "SystemExit: no key"),
    ],
)
def test_a_failure_names_its_cause_and_its_place(evaluate: Callable[..., Any], said: str) -> None:
    place = rf"the first: {said}.* \(test_one_call\.py, line \d+\)$"
    with pytest.raises(ConfigError, match=place) as caught:
        find_best(evaluate, [0, 1], range(20), show=False)
    assert "had not returned" not in str(caught.value)


def test_a_candidate_that_gives_up_has_failed() -> None:
    def gives_up(candidate: int, example: int) -> bool:
        if candidate:
            raise CandidateError("too hard")
        return right(candidate, example)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        standing = checked(find_best(gives_up, [0, 1], range(300)))
    assert standing.rows[1].failed == standing.rows[1].n > 0


def fails(_candidate: object, _example: object) -> float:
    raise ZeroDivisionError("oh")


async def hangs(_candidate: object, _example: object) -> float:
    await asyncio.Event().wait()
    return 1.0


def test_calls_that_hang_are_told_of(recwarn: pytest.WarningsRecorder) -> None:
    calls: list[int] = []

    async def sometimes(candidate: int, example: int) -> float:
        calls.append(example)
        return await hangs(candidate, example) if len(calls) == 2 else right(candidate, example)

    standing = find_best(
        sometimes,
        [0, 1, 2],
        range(300),
        budget=Budget(seconds=1),
        overrides={"selector.stop_when_separated": False},
        selector="uniform",
    )
    assert standing.told
    [told] = recwarn.list
    assert re.match(r"1 call of \d+ had not returned at the end", str(told.message))


def test_a_score_beyond_its_range_by_rounding_alone_is_one() -> None:
    """As a cosine is of two equal vectors."""
    found = find_best(lambda one, _: [-1e-17, 1.0000000000000002][one], [0, 1], range(30))
    assert found.winner is not None
    assert (found.winner.candidate.label, found.winner.total) == ("1", found.winner.n)
    assert all(row.n and not row.void for row in found.rows)


# what is no score, with how its message ends
NO_SCORES: list[tuple[object, str]] = [
    *((b"1", "b'1'"), ([1], r"\[1\]"), ({"score": 1}, "{'score': 1}"), (1j, "1j")),
    *((10**400, "1000"), (object, "<class 'object'>")),
]


@pytest.mark.parametrize(
    ("evaluate", "changes", "said"),
    [
        (fails, {}, r"0 returned None; the first: ZeroDivisionError: oh \(test_one_call.py, line"),
        (lambda _c, _e: 1.5, {}, r"a score must be a number in \[0, 1\], or None .* got 1.5"),
        *((lambda _c, _e, x=x: x, {}, rf"a number in .* got {said}") for x, said in NO_SCORES),
        ("evaluate", {}, "`evaluate` must be a function of .* got 'evaluate'.* not a callable"),
        (lambda _c: 1.0, {}, "`evaluate` must be a function of a candidate and an example, got .*"),
        (right, {"scorer": right}, "a function's score is what `evaluate` returns"),
        (right, {"candidates": []}, "there are no candidates; give at least two"),
        (lambda _c, _e: "text", {}, r"\d failed, .* it returned the text 'text'; name a scorer"),
        (answer, {"scorer": []}, r"`scorer` must be a text or a mapping .* got \[\]"),
        (lambda _c, _e: None, {}, r"0 failed, \d+ returned None$"),
        (lambda _c, _e: "x" * 5_000_000, {"scorer": "exact"}, "it returned 5,000,000 characters"),
        (hangs, {"budget": Budget(seconds=1)}, r"0 failed, 0 returned None, \d had not returned"),
        (lambda _c, _e: 1, {"scorer": "exact"}, "with a scorer it must return a text, got 1"),
        (answer, {"scorer": "exact", "examples": [1]}, "an example is a mapping"),
        (answer, {"scorer": "exakt"}, "did you mean `exact`"),
        (answer, {"scorer": "exact", "examples": [{"q": 1}]}, "name its field as `dataset.target`"),
        *(
            (answer, {"scorer": "exact", "examples": [{"target": x}]}, "a target must be text")
            for x in (float("nan"), object(), date(2020, 1, 2))
        ),
        (right, {"overrides": {"dataset": "rows.csv"}}, "examples are given, so none are read"),
        (right, {"overrides": {"dataset.limit": 0}}, "limit"),
        (right, {"examples": []}, "there are no examples"),
        (right, {"candidates": [1]}, "there is only one candidate; give at least two$"),
        (right, {"candidates": "abc"}, "`candidates` is one text; give a list"),
        (right, {"examples": {"train": [1], "test": [2]}}, "`examples` is a mapping; give one of"),
        (right, {"examples": 7}, "`examples` is 7, which holds none"),
        (right, {"candidates": [1, 1]}, "is the second candidate called '1'.* or give a mapping"),
        (right, {"overrides": {"objective": {"at_least": 0.4}}}, "at most as `usd_per_call`$"),
        (right, {"confidence": 2.0}, "confidence"),
        (right, {"selector": "ucb_e"}, "did you mean `ucb-e`"),
        (right, {"budget": Budget(usd=1)}, "say what a call costs at most as `usd_per_call`$"),
        (right, {"in_flight": 0}, "in_flight"),
        (right, {"overrides": {"stop.within": 3}}, "within"),
    ],
)
def test_what_is_wrong_is_said(
    evaluate: Callable[..., Any], changes: dict[str, Any], said: str
) -> None:
    given = {"candidates": [0, 1, 2], "examples": QUESTIONS, **changes}
    with pytest.raises(ConfigError, match=said):
        find_best(evaluate, **given)


def test_a_study_file(tmp_path: Path) -> None:
    path = write_study(tmp_path)
    standing = select(path, budget=Budget(answers=30), overrides={"selector.seed": 4}, show=False)
    assert standing.asked == 30
    assert standing.winner is not None
    assert list(tmp_path.rglob("runs.sqlite"))
    with pytest.raises(ConfigError, match=r"missing\.yaml"):
        select(tmp_path / "missing.yaml")


def test_the_names_of_rules_are_those_that_exist() -> None:
    assert set(get_args(SelectorName)) == set(SELECTORS.built_in)


@pytest.mark.parametrize("asked", [{}, {"stop_when_separated": False}])
def test_asking_and_telling_stops_as_a_run_does(asked: dict[str, Any]) -> None:
    selector = make_selector("auto", Problem(n_candidates=3, n_examples=300, seed=1, **asked))
    n = 0
    while asks := selector.ask(4):
        n += len(asks)
        selector.tell([Tell(ask.seq, State.DONE, float(RIGHT[ask.pair])) for ask in asks])
    assert selector.answer.best().best == 0
    assert n == RIGHT.size if asked else n < 0.3 * RIGHT.size


@pytest.mark.parametrize("source", [None, 3, ["a.yaml"], b"a.yaml", object])
def test_what_is_no_study_is_named(source: Any) -> None:  # noqa: ANN401
    with pytest.raises(ConfigError, match="a study is the path of its file, or a mapping, not "):
        select(source, show=False)


@pytest.mark.parametrize("overrides", [3, "a", [1]])
def test_overrides_that_are_no_mapping_are_named(overrides: Any) -> None:  # noqa: ANN401
    with pytest.raises(ConfigError, match="`overrides` must be values by dotted key, got "):
        select({"name": "x"}, overrides=overrides, show=False)
    with pytest.raises(ConfigError, match="override 1: unknown key `1`"):
        select({"name": "x"}, overrides={1: 2}, show=False)  # type: ignore[dict-item]


WRONG: dict[str, tuple[Any, ...]] = {
    "in_flight": (None, "3"),
    "budget": (5, {"answers": 5}),
    "usd_per_call": (-1, float("nan"), float("inf"), "abc", True, [1], {}),
    "scorer": ([], 0, 5),
}


@pytest.mark.parametrize(
    ("named", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_settings_that_no_call_can_have_are_refused_by_name(named: str, value: Any) -> None:  # noqa: ANN401
    got = re.escape(f"got {value!r}")
    with pytest.raises(ConfigError, match=f"{named}`? must be .*, {got}"):
        find_best(lambda _c, _e: 1.0, ["a", "b"], [{"q": 1}], show=False, **{named: value})
