"""The first pair of each model over the network, against a server on real sockets."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent import Study
from bestarm_agent.cli.run import EXIT_FAILURES, exit_code
from bestarm_agent.domain.events import Asked, Attempted, Event
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.parts import Options
from bestarm_agent.store.store import Store
from tests.support.api_studies import FastClock
from tests.support.fake_api import Call, FakeApi, Fault
from tests.support.judge_answers import mark_in
from tests.support.studies import store_of

N = 40
PRICE = {"price": {"input": 1.0, "output": 2.0}}
RUBRIC = {"name": "rubric", "model": "openai/judge", "rubric": "Is it good?"}


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "fake-key-3f9a")


def write_study(folder: Path, api: FakeApi, models: str = "ab", **more: Any) -> Path:  # noqa: ANN401
    examples = [{"id": f"e{j}", "q": f"{j}+1", "answer": str(j + 1)} for j in range(N)]
    (folder / "examples.jsonl").write_text("\n".join(map(json.dumps, examples)))
    study = {
        "models": [{"model": f"openai/{name}", "options": PRICE} for name in models],
        "prompts": [{"p": "{{ q }}"}, {"again": "{{ q }}?"}],
        "dataset": {"path": "examples.jsonl", "target": "answer"},
        "scorer": "numeric",
        "providers": {"openai": {"base_url": api.openai_url, "key": "OPENAI_API_KEY"}},
        "selector": {"name": "uniform", "stop_when_separated": False},
        **more,
    }
    path = folder / "study.json"
    path.write_text(json.dumps(study))
    return path


def judged(scorer: dict[str, Any] = RUBRIC) -> dict[str, Any]:
    return {"scorer": {**scorer, "model_options": PRICE}}


async def run(path: Path, *, resumed: bool = False) -> Standing:
    options = Options(store=store_of(path), clock=FastClock(100))
    opening = Study.resume(options=options) if resumed else Study.open(path, options=options)
    async with opening as study:
        return await study.run()


def asked(api: FakeApi) -> Counter[str]:
    return Counter(str(received.body["model"]) for received in api.received)


def answered(call: Call) -> str:
    if call.model == "judge":
        return json.dumps({"mark": mark_in(call.prompt), "explanation": "so", "verdict": 7})
    return "4"


def test_a_dead_server_meets_the_retries_of_one_call(tmp_path: Path) -> None:
    dead = True

    def script(call: Call) -> Fault | None:
        return Fault.UNAVAILABLE if dead and call.model == "b" else None

    async def scene() -> tuple[Standing, Counter[str], list[Event], Standing]:
        nonlocal dead
        async with FakeApi(answer=answered, script=script) as api:
            path = write_study(tmp_path, api)
            stopped = await run(path)
            before = asked(api)
            dead = False
            async with await Store.connect(store_of(path)) as store:
                events = list(await store.events_of("latest"))
            return stopped, before, events, await run(path, resumed=True)

    stopped, before, events, resumed = asyncio.run(scene())
    assert exit_code(stopped, confidence_asked=False) == EXIT_FAILURES
    assert before["b"] == 5
    kinds = [type(event) for event in events]
    repeated = kinds[kinds.index(Attempted) :]
    assert repeated.count(Attempted) == 4
    assert Asked not in repeated, "nothing else is paid for while it is repeated"
    problems = {row.candidate.model: str(row.problem) for row in stopped.rows}
    assert "it was the first pair" in problems["b"]
    assert resumed.told == 4 * N
    assert sum(row.void for row in resumed.rows) == 0, "the first pair was sent again"


@pytest.mark.parametrize(
    "verdict", ["It is excellent.", json.dumps({"mark": "d17785", "verdict": 7})]
)
def test_a_judge_that_cannot_be_read_is_asked_about_one_reply(tmp_path: Path, verdict: str) -> None:
    async def scene() -> tuple[Standing, Counter[str]]:
        def answer(call: Call) -> str:
            return verdict if call.model == "judge" else answered(call)

        async with FakeApi(answer=answer) as api:
            standing = await run(write_study(tmp_path, api, "abcdef", **judged()))
            return standing, asked(api)

    standing, calls = asyncio.run(scene())
    assert exit_code(standing, confidence_asked=False) == EXIT_FAILURES
    assert calls["judge"] == 3, "its attempts at one reply"
    assert calls.total() == 4
    assert all("no readable verdict" in str(row.problem) for row in standing.rows)


def test_a_scorer_that_fails_on_every_reply_sees_one_of_each_model(tmp_path: Path) -> None:
    (tmp_path / "scorer.py").write_text("def score(reply, example):\n    raise KeyError('gold')\n")

    async def scene() -> tuple[Standing, Counter[str]]:
        async with FakeApi(answer=answered) as api:
            scorer = {"name": "python", "function": "scorer:score"}
            return await run(write_study(tmp_path, api, scorer=scorer)), asked(api)

    standing, calls = asyncio.run(scene())
    assert exit_code(standing, confidence_asked=False) == EXIT_FAILURES
    assert calls == {"a": 1, "b": 1}


def test_an_odd_first_pair_stops_a_run_once(tmp_path: Path) -> None:
    """Resumed, the pair is void, and the run goes on with others."""

    first: list[str] = []

    def odd(call: Call) -> Fault | None:
        first.append(call.digest)
        return Fault.SERVER_ERROR if call.digest == first[0] else None

    async def scene() -> tuple[Standing, Standing]:
        async with FakeApi(answer=answered, script=odd) as api:
            path = write_study(tmp_path, api, "a")
            return await run(path), await run(path, resumed=True)

    stopped, resumed = asyncio.run(scene())
    assert (stopped.end, stopped.told) == ("failures", 0)
    assert (resumed.end, resumed.told) == ("exhausted", 2 * N)
    assert sum(row.void for row in resumed.rows) == 1


@pytest.mark.parametrize("models", ["ab", "b"])
def test_a_server_that_never_answers_costs_one_time_out(tmp_path: Path, models: str) -> None:
    """Its model is left out with the reason, the others go on, and ``resume`` tries it again."""
    hangs = True

    def script(call: Call) -> Fault | None:
        return Fault.SILENT if hangs and call.model == "b" else None

    async def scene() -> tuple[Standing, Counter[str], Standing]:
        nonlocal hangs
        async with FakeApi(answer=answered, script=script) as api:
            path = write_study(tmp_path, api, models, limits={"timeout_seconds": 2})
            stopped = await run(path)
            before, hangs = asked(api), False
            return stopped, before, await run(path, resumed=True)

    stopped, before, resumed = asyncio.run(scene())
    assert exit_code(stopped, confidence_asked=False) == EXIT_FAILURES
    assert before["b"] == 1
    assert before["a"] == 2 * N * (models == "ab")
    problems = {row.candidate.model: str(row.problem) for row in stopped.rows}
    assert "did not answer within 2 s" in problems["b"]
    assert "so the model is left out" in problems["b"]
    assert resumed.told == 2 * N * len(models)


@pytest.mark.slow
def test_a_judge_that_never_answers_costs_one_time_out(tmp_path: Path) -> None:
    hangs = True

    def script(call: Call) -> Fault | None:
        return Fault.SILENT if hangs and call.model == "judge" else None

    async def scene() -> tuple[Standing, Counter[str], Standing]:
        nonlocal hangs
        async with FakeApi(answer=answered, script=script) as api:
            path = write_study(tmp_path, api, **judged(), limits={"timeout_seconds": 2})
            stopped = await run(path)
            before, hangs = asked(api), False
            return stopped, before, await run(path, resumed=True)

    stopped, before, resumed = asyncio.run(scene())
    assert exit_code(stopped, confidence_asked=False) == EXIT_FAILURES
    assert (before["judge"], before["a"] + before["b"]) == (1, 1)
    assert "did not answer within 2 s" in str(stopped.rows[0].problem)
    assert resumed.told == 4 * N


def test_replies_that_are_not_judged_do_not_hold_a_run_up(tmp_path: Path) -> None:
    async def scene() -> tuple[Standing, Counter[str]]:
        async with FakeApi(script=lambda _: Fault.REFUSAL) as api:
            return await run(write_study(tmp_path, api, **judged())), asked(api)

    standing, calls = asyncio.run(scene())
    assert (standing.told, calls["judge"]) == (4 * N, 0)
    assert sum(row.failed for row in standing.rows) == 4 * N
