"""The first pair of each model over the network, against a server on real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent import Study
from bestarm_agent.cli.run import EXIT_FAILURES, exit_code
from bestarm_agent.domain.events import Asked, Attempted, Stopped
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.options import Options
from bestarm_agent.study import Archive
from tests.support.api_studies import KEYS, FastClock, write_api_study
from tests.support.fake_api import Call, FakeApi, Fault
from tests.support.fake_api.faults import calm
from tests.support.judge_answers import mark_in
from tests.support.studies import ANSWERED, events_of, store_of, study_file

N = 20
PRICE = {"price": {"input": 1.0, "output": 2.0}}
JUDGED: dict[str, Any] = {
    "scorer": {"name": "rubric", "model": "openai/judge", "rubric": "?", "model_options": PRICE}
}
# long enough to answer in on a busy machine
QUICK: dict[str, Any] = {"limits": {"timeout_seconds": 3}}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.setenv(name, "fake-key-3f9a")


def write_study(folder: Path, api: FakeApi, models: str, **more: Any) -> Path:  # noqa: ANN401
    return study_file(
        folder,
        {"rows": [{"id": f"e{j}", "q": f"{j}+1", "answer": str(j + 1)} for j in range(N)]},
        dataset=ANSWERED,
        models=[{"model": f"openai/{name}", "options": PRICE} for name in models],
        prompts=[{"p": "{{ q }}"}, {"again": "{{ q }}?"}],
        providers={"openai": {"base_url": api.openai_url, "key": "OPENAI_API_KEY"}},
        **{"scorer": "numeric", **more},
    )


async def run(path: Path, *, resumed: bool = False, speed: int = 100) -> Standing:
    options = Options(store=store_of(path), clock=FastClock(speed))
    opening = Study.resume(options=options) if resumed else Study.open(path, options=options)
    async with opening as study:
        return await study.run()


def answered(call: Call) -> str:
    if call.model == "judge":
        return json.dumps({"mark": mark_in(call.prompt), "explanation": "so", "verdict": 7})
    return "4"


Script = Callable[[Call], Fault | None]


def fails(fault: Fault, model: str) -> Script:
    return lambda call: fault if call.model == model else None


def played(
    folder: Path,
    models: str = "ab",
    script: Script = calm,
    answer: Callable[[Call], str] = answered,
    **more: Any,  # noqa: ANN401
) -> tuple[Standing, Counter[str], Standing | None]:
    """Run a study; return its standing, the calls of each model, and the run that went on.

    That is after the server has got well, if a ``script`` made it fail.
    """

    async def scene() -> tuple[Standing, Counter[str], Standing | None]:
        is_well = False

        def until_well(call: Call) -> Fault | None:
            return None if is_well else script(call)

        async with FakeApi(answer=answer, script=until_well) as api:
            path = write_study(folder, api, models, **more)
            stopped = await run(path)
            calls = Counter(str(received.body["model"]) for received in api.received)
            is_well = True
            return stopped, calls, await run(path, resumed=True) if script is not calm else None

    return asyncio.run(scene())


def assert_failed(standing: Standing) -> dict[str, str]:
    """See that a run ended as a failure; return what is said of each model."""
    assert exit_code(standing, confidence_asked=False) == EXIT_FAILURES
    return {row.candidate.model: str(row.problem) for row in standing.rows}


def test_a_dead_server_meets_the_retries_of_one_call(tmp_path: Path) -> None:
    stopped, calls, resumed = played(tmp_path, "ab", fails(Fault.UNAVAILABLE, "b"))
    assert "it was the first answer" in assert_failed(stopped)["b"]
    assert calls["b"] == 5
    kinds = [type(event) for event in events_of(tmp_path / "study.json")]
    repeated = kinds[kinds.index(Attempted) : kinds.index(Stopped)]
    assert repeated.count(Attempted) == 4
    assert Asked not in repeated, "nothing else is paid for while it is repeated"
    assert resumed is not None
    assert resumed.told == 4 * N
    assert sum(row.void for row in resumed.rows) == 0, "the first pair was sent again"


@pytest.mark.slow
def test_a_server_that_is_not_there_ends_a_run_within_few_calls(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    path = write_api_study(tmp_path, f"{url}/v1", url, n_examples=500)
    standing = asyncio.run(run(path, speed=30))
    problems = assert_failed(standing)
    assert standing.spent.calls == 6 * 5, "the retries of one call to each of six models"
    assert len(problems) == 6
    assert all("it was the first answer" in problem for problem in problems.values())
    stored = asyncio.run(Archive(store_of(path)).record("latest")).standing
    assert all(row.is_broken for row in stored.rows)
    assert {row.problem for row in stored.rows} == {row.problem for row in standing.rows}


@pytest.mark.parametrize(
    "verdict", ["It is excellent.", json.dumps({"mark": "d17785", "verdict": 7})]
)
def test_a_judge_that_cannot_be_read_is_asked_about_one_reply(tmp_path: Path, verdict: str) -> None:
    def answer(call: Call) -> str:
        return verdict if call.model == "judge" else "4"

    standing, calls, _ = played(tmp_path, "abcdef", answer=answer, **JUDGED)
    assert all("no readable verdict" in problem for problem in assert_failed(standing).values())
    assert calls["judge"] == 3, "its attempts at one reply"
    assert calls.total() == 4


def test_a_scorer_that_fails_on_every_reply_sees_one_of_each_model(tmp_path: Path) -> None:
    (tmp_path / "scorer.py").write_text("def score(reply, example):\n    raise KeyError('gold')\n")
    scorer = {"name": "python", "function": "scorer:score"}
    standing, calls, _ = played(tmp_path, scorer=scorer)
    assert_failed(standing)
    assert calls == {"a": 1, "b": 1}


async def test_an_odd_first_pair_stops_a_run_once(tmp_path: Path) -> None:
    """Resumed, the pair is void, and the run goes on with others."""
    first: list[str] = []

    def odd(call: Call) -> Fault | None:
        first.append(call.digest)
        return Fault.SERVER_ERROR if call.digest == first[0] else None

    async with FakeApi(answer=answered, script=odd) as api:
        path = write_study(tmp_path, api, "a")
        stopped, resumed = await run(path), await run(path, resumed=True)
    assert (stopped.end, stopped.told) == ("failures", 0)
    assert (resumed.end, resumed.told) == ("exhausted", 2 * N)
    assert sum(row.void for row in resumed.rows) == 1


@pytest.mark.parametrize(
    ("models", "silent", "more", "calls"),
    [
        ("ab", "b", {}, {"a": 2 * N, "b": 1}),
        ("b", "b", {}, {"b": 1}),
        pytest.param("a", "judge", JUDGED, {"a": 1, "judge": 1}, marks=pytest.mark.slow),
    ],
    ids=["one of two models", "the only model", "a judge"],
)
def test_what_never_answers_costs_one_time_out(
    tmp_path: Path, models: str, silent: str, more: dict[str, Any], calls: dict[str, int]
) -> None:
    """Its model is left out with the reason, the others go on, and ``resume`` tries it again."""
    stopped, made, resumed = played(tmp_path, models, fails(Fault.SILENT, silent), **QUICK, **more)
    problem = assert_failed(stopped)[models[-1]]
    assert made == calls
    assert "did not answer within 3 s" in problem
    assert silent == "judge" or "so the model is left out" in problem
    assert resumed is not None
    assert resumed.told == 2 * N * len(models)


async def test_replies_that_are_not_judged_do_not_hold_a_run_up(tmp_path: Path) -> None:
    async with FakeApi(script=lambda _: Fault.REFUSAL) as api:
        standing = await run(write_study(tmp_path, api, "ab", **JUDGED))
        standing, n_judged = standing, sum(one.body["model"] == "judge" for one in api.received)
    assert (standing.told, n_judged) == (4 * N, 0)
    assert sum(row.failed for row in standing.rows) == 4 * N
