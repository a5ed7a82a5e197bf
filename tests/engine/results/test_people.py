"""A statement by people's labels: from a stored run, its plan and the file of labels."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.config.labels import load_labels
from bestarm_agent.engine.results.labelling import Labelling, read_plan
from bestarm_agent.errors import ConfigError
from bestarm_agent.study import Archive
from tests.support.commands import invoke
from tests.support.studies import run_all, store_of, study_file

N = 60
PEOPLE = {"a": 0.4, "b": 0.9, "c": 0.3}  # share of right answers
SAME = range(0, N, 10)  # examples to which all give the same answer


def text(candidate: str, example: int) -> str:
    """Return an answer that people find right or wrong by its beginning."""
    if example in SAME:
        return "right: the same"
    is_right = (7 * example + ord(candidate)) % 10 < 10 * PEOPLE[candidate]
    return f"{'right' if is_right else 'wrong'}: {candidate}{example}"


def judged(candidate: str, example: int) -> float:
    """Return the score of a judge that likes ``a`` too well."""
    score = float(text(candidate, example).startswith("right"))
    return 1.0 if candidate == "a" and example % 5 else score


@pytest.fixture
def store(tmp_path: Path) -> Path:
    calls = [
        {"candidate": c, "example": f"e{e}", "text": text(c, e), "score": judged(c, e)}
        for c in PEOPLE
        for e in range(N)
    ]
    rows = [{"id": f"e{e}", "q": f"question {e}", "answer": "right"} for e in range(N)]
    path = study_file(
        tmp_path,
        {"rows": rows, "calls": calls},
        models=[{"model": f"replay/{c}", "label": c} for c in PEOPLE],
        providers={"replay": {"path": "calls.jsonl"}},
        scorer="recorded",
        dataset={"path": "rows.jsonl", "target": "answer"},
        limits={"in_flight": 1},  # the same answers on any machine
    )
    run_all(path)
    return store_of(path)


def score(answer: str) -> float:
    return float(answer.startswith("right"))


async def label_all(labelling: Labelling, most: int = N, rater: str = "") -> int:
    """Label as people do until nothing is asked any more; return the number of examples."""
    for n in range(most):
        question = await labelling.next(rater)
        if question is None:
            return n
        scores = {answer: score(answer) for answer in question.answers}
        await labelling.put(question.place, scores, rater, tie=False)
    return most


def test_people_set_right_what_the_judge_says(store: Path) -> None:
    async def play() -> None:
        async with Archive(store).labelling() as labelling:
            before = await labelling.stand()
            assert before.said == ("By the scorer: a. Nobody has labelled an answer yet.",)
            n = await label_all(labelling)
            stand = await labelling.stand()
            assert stand.proved
            assert stand.take == "b"
            assert stand.decision.scored_by == "people"
            assert n <= stand.raced.n < N
            [file] = store.parent.glob("*.labels.jsonl")
            asked = {label.example for label in load_labels(file)}
            assert not asked & {f"e{e}" for e in SAME}  # they count, and cost no label
            assert "b is the best of these 3 (proved at 95 %" in stand.said[0]
            for name, (mean, lower, upper) in zip(stand.contenders, stand.raced.means, strict=True):
                truth = sum(score(text(name, e)) for e in range(N)) / N
                assert lower <= truth <= upper
                assert lower <= mean <= upper

    asyncio.run(play())


def test_a_stored_run_shows_both_decisions(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def play() -> None:
        async with Archive(store).labelling() as labelling:
            await label_all(labelling)

    before = invoke(capsys, "show", "--store", store, "--json").json
    assert before["decision_by_people"] is None
    asyncio.run(play())

    found = invoke(capsys, "show", "--store", store, "--json").json
    assert found["decision"]["take"] == "a"
    assert found["decision_by_people"]["take"] == "b"
    assert found["decision_by_people"]["scored_by"] == "people"
    shown = invoke(capsys, "show", "--store", store).out
    # what is proved stands first, and the judge's advice no longer
    assert shown.startswith("By the scorer: a. By your labels: b is the best of these 3 (proved at")
    assert "\nTake a: " in shown
    assert "\nNext: " not in shown
    for form in ("md", "html"):
        written = store.parent / f"both.{form}"
        invoke(capsys, "report", "--store", store, "--out", written)
        assert "By your labels: b is the best" in written.read_text(encoding="utf-8"), form


def test_labels_that_were_not_asked_for_measure_the_judge_alone(store: Path) -> None:
    async def play() -> tuple[int, int]:
        async with Archive(store).labelling() as labelling:
            run = labelling.texts.run_id
            path = store.parent / f"{run}.labels.jsonl"
            path.write_text(
                "".join(
                    json.dumps({"example": f"e{e}", "answer": text("c", e), "score": 1.0}) + "\n"
                    for e in range(N)
                )
            )
            stand = await labelling.stand()
            question = await labelling.next(None)
            assert question is not None
            return stand.raced.n - stand.later, question.place

    n, first_asked = asyncio.run(play())
    assert n == first_asked  # those before it have equal answers, and count without a label


def test_what_is_left_for_later_counts_at_its_worst_until_it_is_scored(store: Path) -> None:
    async def play() -> None:
        async with Archive(store).labelling() as labelling:
            later: list[int] = []
            for _ in range(6):
                first = await labelling.next(None, later)
                assert first is not None
                later.append(first.place)
                second = await labelling.next(None, later)
                assert second is not None
                given = {answer: score(answer) for answer in second.answers}
                await labelling.put(second.place, given, None, tie=False)
            waiting = await labelling.stand()
            assert waiting.later == 6
            assert any("left for later" in said for said in waiting.said)
            for place in later:
                question = await labelling.question(place, waiting)
                given = {answer: score(answer) for answer in question.answers}
                await labelling.put(place, given, None, tie=False)
            fixed = read_plan(store, labelling.texts.run_id)
            assert fixed is not None
            n = max(later)  # places up to the last one that people were asked about
            found = await labelling.stand()
            assert found.later == 0
            assert found.raced.leaders[:n] == fixed.leaders[:n] == waiting.raced.leaders[:n]

    asyncio.run(play())


def test_two_raters_count_with_their_mean_once_both_have_scored(store: Path) -> None:
    async def play() -> None:
        async with Archive(store).labelling(raters=2) as labelling:
            await label_all(labelling, 5, "ann")
            assert (await labelling.stand()).n <= 2
            question = await labelling.next("bob")
            assert question is not None
            await label_all(labelling, 5, "bob")
            stand = await labelling.stand()
            assert stand.n >= 5
            assert stand.kappa is not None
            assert stand.kappa.value == 1.0

    asyncio.run(play())


def test_who_takes_part_is_fixed_when_labelling_begins(store: Path) -> None:
    async def begin(names: Sequence[str]) -> tuple[str, ...]:
        async with Archive(store).labelling("latest", names, top=2) as labelling:
            plan = read_plan(store, labelling.texts.run_id)
            assert plan is not None
            return plan.contenders

    assert asyncio.run(begin(["c"])) == ("a", "c")
    with pytest.raises(ConfigError, match="who takes part is fixed"):
        asyncio.run(begin(["b"]))


def test_a_table_is_written_filled_in_and_read(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "todo.csv"
    done = invoke(capsys, "label", "--store", store, "--next", "40", "--out", table)
    assert done.code == 0
    lines = table.read_text(encoding="utf-8-sig").splitlines()
    filled = [lines[0]]
    for line in lines[1:]:
        assert line.endswith(",")
        filled.append(line + ("right" if ",right: " in line else "wrong"))
    table.write_text("\n".join(filled))

    done = invoke(capsys, "label", "--store", store, "--in", table)

    assert "b is the best of these 3 (proved at 95 %" in done.out

    [file] = store.parent.glob("*.labels.jsonl")
    labels = load_labels(file)
    assert {label.score for label in labels} == {0.0, 1.0}
    assert all(label.place is not None for label in labels)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": "maybe"}, "row 3: `score`: must be 0 to 1, a percentage, right, wrong or same"),
        ({"score": 5}, "row 3: `score` must be at most 1, got"),
        ({"place": "inf"}, "row 3: `place` must be a whole number"),
        ({"place": 10_000}, "place 10000 has no answer"),
        ({"place": None}, "place -1 has no answer"),
        ({"answer_digest": "1.23E+15"}, r"place \d+ has no answer 1.23E\+15; keep the columns"),
        ({"answer_digest": None}, "row 3: a label needs"),
        ({"again": "wrong"}, "row 4: this answer has another score; keep one of them"),
        ({"rater": "x", "again": "right"}, ""),
    ],
)
def test_a_table_counts_as_a_whole_or_not_at_all(
    store: Path, change: dict[str, Any], message: str
) -> None:
    async def play() -> int:
        async with Archive(store).labelling() as labelling:
            with pytest.raises(ConfigError, match="no row has a score; fill in the column `score`"):
                await labelling.put_rows([{"candidate": "a", "example": "e1", "score": math.nan}])
            rows = [{**row, "score": "right"} for row in await labelling.rows(2)][:3]
            rows[2] |= {"rater": math.nan, **change}
            rows += [{**rows[2], "score": again} for again in [change.get("again")] if again]
            return await labelling.put_rows(rows)

    if not message:
        assert asyncio.run(play()) == 2
        return
    with pytest.raises(ConfigError, match=message):
        asyncio.run(play())
    assert not list(store.parent.glob("*.labels.jsonl"))


def test_equal_labels_of_all_examples_are_a_tie(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "to do.csv"
    done = invoke(capsys, "label", "--store", store, "--next", "60", "--out", table)
    assert f"--in '{table}' --store {store}`" in done.out.replace("\n", " ")
    first, *lines = table.read_text(encoding="utf-8-sig").splitlines()
    table.write_text("\n".join([first, *(f"{line}1" for line in lines)]))
    done = invoke(capsys, "label", "--store", store, "--in", table, "--json").json
    people = done["decision_by_people"]
    assert sorted((people["take"], *people["as_good"])) == ["a", "b", "c"]
    assert (people["undecided"], people["proved"], people["next"]) == ([], False, None)
    assert "By your labels: no difference between " in people["said"][0]
    assert not any("To a proof" in line for line in people["said"])
    none = invoke(capsys, "label", "--store", store, "--next", "3", "--out", table)
    assert (none.code, "no answer is left to label" in none.err) == (2, True)


def test_those_who_take_part_answer_all_examples_before_the_first_label(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of three take part; what they answer more is the study's budget and --budget-answers."""
    calls = [
        {"candidate": c, "example": f"e{e}", "text": text(c, e), "score": judged(c, e)}
        for c in PEOPLE
        for e in range(N)
    ]
    path = study_file(
        tmp_path,
        {"rows": [{"id": f"e{e}", "q": f"question {e}"} for e in range(N)], "calls": calls},
        models=[{"model": f"replay/{c}", "label": c} for c in PEOPLE],
        providers={"replay": {"path": "calls.jsonl"}},
        scorer="recorded",
        dataset={"path": "rows.jsonl"},
        budget={"answers": 60},
    )
    run_all(path)
    two = ("label", "--complete", "--top", "2", "--next", "5", "--out", "todo.csv")
    refused = invoke(capsys, *two, folder=tmp_path)
    assert (refused.code, "which are not all" in refused.err) == (2, True), refused.err
    assert read_plan(store_of(path), newest(store_of(path))) is None, "labelling has not begun"
    done = invoke(capsys, *two, "--budget-answers", "200", folder=tmp_path)
    assert done.code == 0, done.err
    state = asyncio.run(Archive(store_of(path)).state("latest"))
    plan = read_plan(store_of(path), newest(store_of(path)))
    assert plan is not None
    rows = [one.label for one in state.candidates]
    counts = {name: int((state.asks["candidate"] == k).sum()) for k, name in enumerate(rows)}
    assert [counts[name] for name in plan.contenders] == [N, N]
    assert sum(counts.values()) < 3 * N
    again = invoke(capsys, *two, folder=tmp_path)
    assert "--complete comes before the first label" in again.err


def newest(store: Path) -> str:
    return asyncio.run(Archive(store).runs())[-1].id
