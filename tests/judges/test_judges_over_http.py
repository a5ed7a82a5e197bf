"""Judges behind real HTTP, in both vendors' protocols: structured output, faults, a bad key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent import Study
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.parts import Options
from bestarm_agent.errors import Blame
from bestarm_agent.store.run_state import RunState
from bestarm_agent.study import Archive
from tests.support.fake_api import Call, FakeApi
from tests.support.judge_answers import mark_in
from tests.support.store_runs import outcomes_in
from tests.support.studies import store_of

KEY = "fake-key-3f9a"
N = 12
PRICE = {"price": {"input": 1.0, "output": 2.0}}


def graded(call: Call) -> str:
    """A judge that sees which answer it is and grades a 9, b 5."""
    mine = call.question.partition("<<<answer")[2]
    said = {"explanation": "so", "verdict": 9 if "by a" in mine else 5}
    return json.dumps({"mark": mark_in(call.prompt), **said})


def write_study(folder: Path, api: FakeApi, provider: str, **changes: object) -> Path:
    url = api.openai_url if provider == "openai" else api.url
    variable = f"{provider.upper()}_API_KEY"
    answers = [
        {"candidate": name, "example": f"e{j}", "text": f"answer {j} by {name}", "usd": 0.001}
        for name in "ab"
        for j in range(N)
    ]
    examples = [{"id": f"e{j}", "q": f"question {j}"} for j in range(N)]
    for name, rows in (("answers", answers), ("examples", examples)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    study = {
        "models": ["replay/a", "replay/b"],
        "prompts": [{"p": "{{ q }}"}],
        "dataset": "examples.jsonl",
        "scorer": {"name": "rubric", "model": f"{provider}/judge", "model_options": PRICE},
        "providers": {
            "replay": {"path": "answers.jsonl"},
            provider: {"base_url": url, "key": variable},
        },
        "budget": {"usd": 5},
        "selector": {"name": "uniform", "stop_when_separated": False},
        **changes,
    }
    path = folder / "study.json"
    path.write_text(json.dumps(study))
    return path


async def run(path: Path) -> tuple[Standing, RunState]:
    async with Study.open(path) as study:
        standing = await study.run()
        notices = study.notices
    assert all("judge" in notice for notice in notices)
    return standing, await Archive(store_of(path)).state("latest")


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_judge_of_either_vendor_is_held_to_the_schema(
    tmp_path: Path, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", KEY)

    async def scene() -> tuple[Standing, RunState, list[Mapping[str, Any]]]:
        async with FakeApi(answer=graded) as api:
            found = await run(write_study(tmp_path, api, provider))
            return *found, [received.body for received in api.received]

    standing, state, bodies = asyncio.run(scene())
    assert standing.end == "exhausted"
    means = {row.candidate.label: row.estimate for row in standing.rows}
    assert means == {"a": pytest.approx(8 / 9), "b": pytest.approx(4 / 9)}
    assert len(bodies) == 2 * N
    for body in bodies:
        sent = json.dumps(body)
        assert '"enum": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]' in sent, "the schema is on the wire"
    outcomes = outcomes_in(tmp_path / "runs" / "runs.sqlite")
    assert all(o.score and o.judge_spend.usd_nanos > 0 for o in outcomes)
    assert state.spend.calls == 4 * N


def test_only_the_judge_is_asked_again_once_its_key_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "wrong")

    async def scene() -> tuple[Standing, Standing, RunState, int]:
        async with FakeApi(answer=graded, key=KEY) as api:
            path = write_study(tmp_path, api, "openai", limits={"in_flight": 4})
            first, _ = await run(path)
            refused = len(api.received)
            monkeypatch.setenv("OPENAI_API_KEY", KEY)
            async with Study.resume(options=Options(store=store_of(path))) as study:
                second = await study.run()
            state = await Archive(store_of(path)).state("latest")
            return first, second, state, len(api.received) - refused

    first, second, state, judged = asyncio.run(scene())
    assert first.end == "failures"
    assert first.told == 0
    assert 0 < first.asked <= 8, "it stops at once, with what was in flight"
    assert all("did not accept the key" in (row.problem or "") for row in first.rows)
    assert second.end == "exhausted"
    assert judged == 2 * N
    assert state.spend.pulls == 2 * N
    candidates = state.spend.usd_nanos - sum(one.usd_nanos for one in state.judging)
    assert candidates == pytest.approx(2 * N * 1_000_000), "no answer was paid for twice"


def test_a_judge_that_talks_leaves_pairs_void_and_the_ranking_honest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def chatty(call: Call) -> str:
        return "I like it." if "question 3" in call.question else graded(call)

    async def scene() -> tuple[Standing, RunState, int]:
        async with FakeApi(answer=chatty) as api:
            found = await run(write_study(tmp_path, api, "openai"))
            return *found, len(api.received)

    standing, _, n_received = asyncio.run(scene())
    assert n_received == 2 * (N - 1) + 2 * 3, "three attempts each, with replies of their own"
    outcomes = outcomes_in(tmp_path / "runs" / "runs.sqlite")
    assert [one.failure.blame for one in outcomes if one.failure] == [Blame.JUDGE] * 2
    assert [row.void for row in standing.rows] == [1, 1]
    best = standing.best
    assert best is not None
    assert best.estimate == pytest.approx(8 / 9)
    assert best.lower < 8 / 9 < best.upper, "what is missing widens the interval"


@pytest.mark.slow
def test_a_new_run_asks_a_mended_judge_again_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unreadable replies stay in the cache, but are never replayed."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    mended = False

    def chatty(call: Call) -> str:
        return "I like it." if "question 3" in call.question and not mended else graded(call)

    async def scene() -> list[tuple[int, list[int], int]]:
        nonlocal mended
        async with FakeApi(answer=chatty) as api:
            path = write_study(tmp_path, api, "openai")
            found = []
            for is_mended in (False, True, True):
                mended = is_mended
                before = len(api.received)
                standing, state = await run(path)
                voids = [row.void for row in standing.rows]
                found.append((len(api.received) - before, voids, state.spend.calls))
            return found

    broken, again, cached = asyncio.run(scene())
    assert broken == (2 * (N - 1) + 2 * 3, [1, 1], 4 * N + 4)
    assert again == (2, [0, 0], 2), "one new judgement of each void pair"
    assert cached == (0, [0, 0], 0)


def test_candidates_and_judge_may_both_be_played_back(tmp_path: Path) -> None:
    """From two files; an unreadable judgement is followed by the next recorded attempt."""
    judged = [
        {"candidate": "j", "example": "a/e0", "text": "hm"},
        {"candidate": "j", "example": "a/e0", "text": '{"verdict": 10}', "attempt": 2},
        {"candidate": "j", "example": "b/e0", "text": '{"verdict": 1}'},
    ]
    answers = [{"candidate": name, "example": "e0", "text": name} for name in "ab"]
    examples = [{"id": "e0", "q": "?"}]
    for name, rows in (("judge", judged), ("answers", answers), ("examples", examples)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    path = tmp_path / "study.json"
    study = {
        "models": ["replay/a", "replay/b"],
        "prompts": [{"p": "{{ q }}"}],
        "dataset": "examples.jsonl",
        "scorer": {
            "name": "rubric",
            "model": "replay/j",
            "model_options": {"path": "judge.jsonl"},
        },
        "providers": {"replay": {"path": "answers.jsonl"}},
    }
    path.write_text(json.dumps(study))
    standing, state = asyncio.run(run(path))
    found = [(row.candidate.label, row.estimate) for row in standing.rows]
    assert found == [("a", 1.0), ("b", 0.0)]
    assert state.spend.calls == 5
