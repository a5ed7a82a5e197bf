"""Judges behind real HTTP, in both vendors' protocols: structured output, faults, a bad key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent import Study
from bestarm_agent.domain.values import Outcome
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.options import Options
from bestarm_agent.errors import Blame
from bestarm_agent.store.run_state import RunState
from bestarm_agent.study import Archive
from tests.support.fake_api import Call, FakeApi, in_thread
from tests.support.judge_answers import mark_in
from tests.support.store_runs import outcomes_in
from tests.support.studies import run_study, store_of, study_file

KEY = "fake-key-3f9a"
N = 12
PRICE = {"price": {"input": 1.0, "output": 2.0}}


def graded(call: Call) -> str:
    """A judge that sees which answer it is and grades a 9, b 5."""
    mine = call.question.partition("<<<answer")[2]
    said = {"explanation": "so", "verdict": 9 if "by a" in mine else 5}
    return json.dumps({"mark": mark_in(call.prompt), **said})


def write_study(folder: Path, api: FakeApi, provider: str = "openai", **changes: object) -> Path:
    url = api.openai_url if provider == "openai" else api.url
    answers = [
        {"candidate": name, "example": f"e{j}", "text": f"answer {j} by {name}", "usd": 0.001}
        for name in "ab"
        for j in range(N)
    ]
    study = {
        "models": ["replay/a", "replay/b"],
        "scorer": {"name": "rubric", "model": f"{provider}/judge", "model_options": PRICE},
        "providers": {"replay": {"path": "answers.jsonl"}, provider: {"base_url": url, "key": "K"}},
        "budget": {"usd": 5},
        **changes,
    }
    rows = [{"id": f"e{j}", "q": f"question {j}"} for j in range(N)]
    return study_file(folder, {"answers": answers, "rows": rows}, **study)


def run(path: Path) -> tuple[Standing, RunState, list[Outcome]]:
    """Run a study; return where it stands, its state, and what became of the pairs."""
    standing, study = run_study(path)
    assert all("judge" in notice for notice in study.notices)
    store = store_of(path)
    return standing, asyncio.run(Archive(store).state("latest")), outcomes_in(store)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K", KEY)


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_judge_of_either_vendor_is_held_to_the_schema(tmp_path: Path, provider: str) -> None:
    with in_thread(FakeApi(answer=graded)) as api:
        standing, state, outcomes = run(write_study(tmp_path, api, provider))
    assert standing.end == "exhausted"
    means = {row.candidate.label: row.estimate for row in standing.rows}
    assert means == {"a": pytest.approx(8 / 9), "b": pytest.approx(4 / 9)}
    assert len(api.received) == 2 * N
    for received in api.received:
        sent = json.dumps(received.body)
        assert '"enum": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]' in sent, "the schema is on the wire"
    assert all(o.score and o.judge_spend.usd_nanos > 0 for o in outcomes)
    assert state.spend.calls == 4 * N


def test_only_the_judge_is_asked_again_once_its_key_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("K", "wrong")
    with in_thread(FakeApi(answer=graded, key=KEY)) as api:
        path = write_study(tmp_path, api, limits={"in_flight": 4})
        first, _, _ = run(path)
        refused = len(api.received)
        monkeypatch.setenv("K", KEY)

        async def resumed() -> Standing:
            async with Study.resume(options=Options(store=store_of(path))) as study:
                return await study.run()

        second = asyncio.run(resumed())
    state = asyncio.run(Archive(store_of(path)).state("latest"))
    assert (first.end, first.told) == ("failures", 0)
    assert 0 < first.asked <= 8, "it stops at once, with what was in flight"
    assert all("did not accept the key" in (row.problem or "") for row in first.rows)
    assert second.end == "exhausted"
    assert len(api.received) - refused == 2 * N
    assert state.spend.answers == 2 * N
    candidates = state.spend.usd_nanos - sum(one.usd_nanos for one in state.judging)
    assert candidates == pytest.approx(2 * N * 1_000_000), "no answer was paid for twice"


def test_a_judge_that_talks_leaves_pairs_void_until_it_is_mended(tmp_path: Path) -> None:
    """Unreadable replies stay in the cache, but are never replayed."""
    mended = False

    def chatty(call: Call) -> str:
        return "I like it." if "question 3" in call.question and not mended else graded(call)

    with in_thread(FakeApi(answer=chatty)) as api:
        path = write_study(tmp_path, api)
        standing, state, outcomes = run(path)
        assert len(api.received) == 2 * (N - 1) + 2 * 3, "three attempts, with replies of their own"
        assert state.spend.calls == 4 * N + 4
        assert [one.failure.blame for one in outcomes if one.failure] == [Blame.JUDGE] * 2
        assert [row.void for row in standing.rows] == [1, 1]
        best = standing.best
        assert best is not None
        assert best.estimate == pytest.approx(8 / 9)
        assert best.lower < 8 / 9 < best.upper, "what is missing widens the interval"
        mended = True
        for n_calls in (2, 0):  # one new judgement of each void pair; then nothing
            before = len(api.received)
            standing, state, _ = run(path)
            assert [row.void for row in standing.rows] == [0, 0]
            assert (len(api.received) - before, state.spend.calls) == (n_calls, n_calls)


def test_candidates_and_judge_may_both_be_played_back(tmp_path: Path) -> None:
    """From two files; an unreadable judgement is followed by the next recorded attempt."""
    judged = [
        {"candidate": "j", "example": "a/e0", "text": "hm"},
        {"candidate": "j", "example": "a/e0", "text": '{"verdict": 10}', "attempt": 2},
        {"candidate": "j", "example": "b/e0", "text": '{"verdict": 1}'},
    ]
    answers = [{"candidate": name, "example": "e0", "text": name} for name in "ab"]
    files: Mapping[str, Any] = {
        "judge": judged,
        "answers": answers,
        "rows": [{"id": "e0", "q": "?"}],
    }
    judge = {"name": "rubric", "model": "replay/j", "model_options": {"path": "judge.jsonl"}}
    replay = {"replay": {"path": "answers.jsonl"}}
    models = ["replay/a", "replay/b"]
    path = study_file(tmp_path, files, models=models, scorer=judge, providers=replay)
    standing, state, _ = run(path)
    found = [(row.candidate.label, row.estimate) for row in standing.rows]
    assert found == [("a", 1.0), ("b", 0.0)]
    assert state.spend.calls == 5
