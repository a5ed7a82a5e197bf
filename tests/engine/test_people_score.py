"""The scorer ``people``: answers are collected, labels decide, and those who lose leave."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from scipy.stats import binom

from bestarm_agent.engine.setup.collection import BLOCK
from bestarm_agent.errors import ConfigError
from bestarm_agent.selectors.types import State
from bestarm_agent.stats.people import LabelledRows, Raced, race
from bestarm_agent.store.store import open_store
from bestarm_agent.study import Archive, Study
from bestarm_agent.view.followed_run import FollowedRun
from tests.support.commands import invoke
from tests.support.studies import store_of, study_file

N = 70
SHARES = {"a": 0.3, "b": 0.9, "c": 0.6}  # of right answers
Capsys: TypeAlias = pytest.CaptureFixture[str]


def study(folder: Path, **changes: Any) -> Path:  # noqa: ANN401
    luck = np.random.default_rng(4).random((len(SHARES), N))
    calls = [
        {
            "candidate": name,
            "example": f"e{i}",
            "text": f"{'right' if luck[k, i] < share else 'wrong'} {name}{i}",
        }
        for k, (name, share) in enumerate(SHARES.items())
        for i in range(N)
    ]
    rows = [{"id": f"e{i}", "q": f"question {i}"} for i in range(N)]
    models = [{"model": f"replay/{name}", "label": name} for name in SHARES]
    found = {"models": models, "scorer": "people", "providers": {"replay": {"path": "calls.jsonl"}}}
    found |= {"selector": {"seed": 2}}
    files = {"rows": rows, "calls": calls}
    return study_file(folder, files, **{**found, "dataset": {"path": "rows.jsonl"}, **changes})


def label(store: Path, most: int = N) -> int:
    """Label as people do, until nothing is asked; return the number of examples."""

    async def play() -> int:
        async with Archive(store).labelling() as labelling:
            for n in range(most):
                if (question := await labelling.next("")) is None:
                    return n
                scores = {one: float(one.startswith("right")) for one in question.answers}
                await labelling.put(question.place, scores, "", tie=False)
            return most

    return asyncio.run(play())


def test_a_study_goes_from_answers_to_labels_to_a_proof(tmp_path: Path, capsys: Capsys) -> None:
    path, told = study(tmp_path), 0
    done = invoke(capsys, "select", "-c", path, "-q", "--json", folder=tmp_path)
    first = json.loads(done.out)
    assert (done.code, first["spent"]["answers"]) == (3, BLOCK * len(SHARES))
    decision = first["decision"]
    assert (decision["take"], decision["scored_by"], decision["worse"]) == (None, "people", [])
    assert decision["next"]["command"] == f"bestarm-agent label {first['run_id']}"
    assert all(row["n"] == 0 and row["estimate"] is None for row in first["rows"])
    for _ in range(4):
        told += label(store_of(path))
        shown = json.loads(invoke(capsys, "show", "--json", folder=tmp_path).out)
        if shown["decision"]["proved"]:
            break
        assert shown["decision"]["next"]["command"] == f"bestarm-agent resume {first['run_id']}"
        before = shown["spent"]["answers"]
        left = 1 + len(shown["decision"]["undecided"])
        more = invoke(capsys, "resume", "-q", "--json", folder=tmp_path)
        assert json.loads(more.out)["spent"]["answers"] == before + left * BLOCK
    assert (shown["decision"]["take"], shown["decision"]["undecided"]) == ("b", [])
    assert told < N, "few labels suffice"
    spent = shown["spent"]["answers"]
    ended = json.loads(invoke(capsys, "resume", "-q", "--json", folder=tmp_path).out)
    assert ended["spent"]["answers"] == spent, "nothing is collected once it is proved"
    assert ended["decision"]["take"] == "b"
    page = tmp_path / "r.html"
    invoke(capsys, "report", "--out", page, folder=tmp_path)
    assert "b is the best of these 3" in page.read_text()
    lines = invoke(capsys, "export", folder=tmp_path)
    assert all(line.split(",")[2] == "" for line in lines.out.splitlines()[1:])


def test_the_live_page_says_what_the_terminal_says(tmp_path: Path, capsys: Capsys) -> None:
    """Labels lie beside the log, so the page reads them, too, also while the log rests."""
    path = study(tmp_path)
    invoke(capsys, "select", "-c", path, "-q", folder=tmp_path)
    place = store_of(path)

    async def followed() -> list[tuple[str, ...]]:
        async with open_store(place, create=False) as store:
            run = FollowedRun(store, place, (await store.runs())[-1].id)
            said = []
            for _ in range(2):
                async with run.refreshed():
                    said.append((await run.standing())[0].decision.said)
                await asyncio.to_thread(label, place)
            return said

    async def twice() -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
        first = await followed()
        return first, (await Archive(place).record("latest")).standing.decision.said

    (before, after), stored = asyncio.run(twice())
    assert before[0] == "No winner yet: people have not scored the answers."
    assert after == stored
    assert after[0].startswith("By your labels: ")


def test_before_labels_no_score_is_shown(tmp_path: Path, capsys: Capsys) -> None:
    path = study(tmp_path)
    invoke(capsys, "select", "-c", path, "-q", folder=tmp_path)
    answers = invoke(capsys, "answers", "--json", folder=tmp_path).out
    assert all(json.loads(line)["score"] is None for line in answers.splitlines() if line)


def test_who_leaves_is_asked_no_more(tmp_path: Path, capsys: Capsys) -> None:
    path = study(tmp_path)
    invoke(capsys, "select", "-c", path, "-q", folder=tmp_path)
    label(store_of(path))
    shown = json.loads(invoke(capsys, "show", "--json", folder=tmp_path).out)
    worse = shown["decision"]["worse"]
    assert "a" in worse
    invoke(capsys, "resume", "-q", folder=tmp_path)

    async def asked() -> dict[str, int]:
        state = await Archive(store_of(path)).state("latest")
        names = [state.candidates[row].label for row in state.asks["candidate"].tolist()]
        return {name: names.count(name) for name in SHARES}

    counts = asyncio.run(asked())
    assert all(counts[name] == BLOCK for name in worse)


def test_a_table_can_be_read_twice(tmp_path: Path, capsys: Capsys) -> None:
    """The second time some who answered have left."""
    path = study(tmp_path)
    invoke(capsys, "select", "-c", path, "-q", folder=tmp_path)

    async def play() -> tuple[int, int]:
        async with Archive(store_of(path)).labelling() as labelling:
            rows = await labelling.rows(BLOCK)
            filled = [{**row, "score": str(row["answer"]).split()[0]} for row in rows]
            return await labelling.put_rows(filled), await labelling.put_rows(filled)

    assert asyncio.run(play()) == (BLOCK, BLOCK)


def test_labels_of_some_answers_of_an_example_are_no_labelled_example(
    tmp_path: Path, capsys: Capsys
) -> None:
    path = study(tmp_path)
    invoke(capsys, "select", "-c", path, "-q", folder=tmp_path)

    async def play() -> str:
        async with Archive(store_of(path)).labelling() as labelling:
            first, *_ = await labelling.rows(1)
            await labelling.put_rows([{**first, "score": "right"}])
            return (await labelling.stand()).said[0]

    assert asyncio.run(play()) == "No example has all its answers labelled yet."


def test_fewer_examples_than_are_labelled_at_first_are_all(tmp_path: Path, capsys: Capsys) -> None:
    path = study(tmp_path, dataset={"path": "rows.jsonl", "limit": 12})
    planned = invoke(capsys, "plan", path, folder=tmp_path)
    assert "By people's scores: 12 examples labelled name a likely best;" in planned.out
    done = invoke(capsys, "select", "-c", path, folder=tmp_path)
    assert "the run collects those to 12 examples and ends" in f"{planned.told} {done.told}"


def test_the_cap_counts(tmp_path: Path, capsys: Capsys) -> None:
    path = study(tmp_path, budget={"answers": 12})
    done = invoke(capsys, "select", "-c", path, "-q", "--json", folder=tmp_path)
    found = json.loads(done.out)
    assert (found["spent"]["answers"], found["end"]) == (12, "budget")
    assert label(store_of(path)) == 4, "those that all have answered can be labelled"


def test_what_could_not_be_had_counts_at_its_worst(tmp_path: Path, capsys: Capsys) -> None:
    path = study(tmp_path)
    kept = [
        line
        for line in (tmp_path / "calls.jsonl").read_text().splitlines()
        if (one := json.loads(line))["candidate"] != "b" or int(one["example"][1:]) % 10
    ]
    (tmp_path / "calls.jsonl").write_text("\n".join(kept))

    invoke(capsys, "select", "-c", path, "-q", folder=tmp_path)
    label(store_of(path))

    async def stand() -> tuple[int, int, bool, int]:
        async with Archive(store_of(path)).labelling() as labelling:
            found = await labelling.stand()
            n_void = int((labelling.texts.state.told["state"] == State.VOID).sum())
            return found.n, found.later, found.proved, n_void

    n, later, proved, n_void = asyncio.run(stand())
    assert 0 < later <= n_void
    assert proved or n + later == BLOCK


@pytest.mark.parametrize(
    "changes",
    [
        {"selector": {"name": "uniform"}},
        {"stop": {"within": 0.1}},
        {"objective": {"name": "cheapest-within-epsilon", "epsilon": 0.1}},
        {"repeats": 2},
    ],
)
def test_what_has_no_meaning_here_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    async def play() -> None:
        async with Study.open(study(tmp_path, **changes)):
            pass

    with pytest.raises(ConfigError, match="does not go with the scorer `people`"):
        asyncio.run(play())


def test_for_new_examples_the_best_is_hardly_ever_ruled_out() -> None:
    """600 worlds of new examples at alpha .1: the best is ruled out in at most 81 (binomial, 1e-3).

    Rows are equal but for .02; those who leave the race on the N examples go on at their worst.
    """
    worlds, alpha, n = 600, 0.1, 60
    random = np.random.default_rng(8)
    scores = (random.random((worlds, 3, n)) < np.array([0.62, 0.6, 0.6])[:, None]).astype(float)
    order = random.permuted(np.tile(np.arange(n), (worlds, 1)), axis=1)
    nothing, each = np.full((worlds, 3, n), np.nan), np.arange(worlds)
    here, new = LabelledRows(nothing, alpha), LabelledRows(nothing, alpha, on_new=True)
    for examples in order.T:
        gone, leader, scored = ~here.alive, here.leader, scores[each, :, examples]
        low, high = np.where(gone, 0.0, scored), np.where(gone, 1.0, scored)
        here.add(examples, scored, scored, leader)
        new.add(examples, low, high, leader)
    wrong = int((~new.alive[:, 0]).sum())
    assert wrong <= binom.isf(1e-3, worlds, alpha), wrong
    for world in range(5):  # one by one it is the same race

        def seen(place: int, _: Any, w: int = world) -> Any:  # noqa: ANN401
            return (scores[w, :, order[w, place]],) * 2

        one = race(nothing[world], order[world].tolist(), seen, alpha)

        def on_new(place: int, _: Any, w: int = world, one: Raced = one) -> Any:  # noqa: ANN401
            gone = np.array([at is not None and at <= place for at in one.ruled_out])
            scored = scores[w, :, order[w, place]]
            return np.where(gone, 0.0, scored), np.where(gone, 1.0, scored)

        committed = one.leaders[:-1]
        found = race(
            nothing[world], order[world].tolist(), on_new, alpha, leaders=committed, on_new=True
        )
        left = [at is None for at in found.ruled_out]
        assert left == new.alive[world].tolist()
