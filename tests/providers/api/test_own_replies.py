"""An outcome names the reply that it was scored by, also where a run shares no replies."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from bestarm_agent import Study
from bestarm_agent.engine.setup.options import Options
from bestarm_agent.engine.setup.parts import assemble
from bestarm_agent.engine.single_calls import make_first_calls
from bestarm_agent.study import Archive
from tests.support.api_studies import KEYS, study_of
from tests.support.fake_api import FakeApi
from tests.support.fake_api.answers import add
from tests.support.fake_api.calls import Call
from tests.support.studies import store_of

_PAIRS = 6 * 4


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)


def right(call: Call) -> str:
    return add(call.question)


def wrong(call: Call) -> str:
    return f"{add(call.question)}1"


async def shown(path: Path, run: str) -> list[float]:
    """Return the scores of a run, each of which is that of the reply that is shown."""
    scores = []
    async for pair in Archive(store_of(path)).outcomes(run):
        assert pair.score == float(pair.reply == pair.target), pair
        scores.append(pair.score)
    return scores


@pytest.mark.parametrize(("use_cache", "second"), [(False, 0.0), (True, 1.0)])
async def test_answers_that_change_between_runs_are_shown_as_they_were_scored(
    tmp_path: Path, use_cache: bool, second: float
) -> None:
    runs = []
    async with FakeApi(answer=right, key=None) as server:
        path = study_of(tmp_path, server, server, n_examples=4)
        for answer, options in ((right, Options()), (wrong, Options(use_cache=use_cache))):
            server.answer = answer
            async with Study.open(path, options=options) as study:
                await study.run()
                runs.append(study.run_id)
    assert [await shown(path, run) for run in runs] == [[1.0] * _PAIRS, [second] * _PAIRS]


async def test_a_run_without_the_cache_that_was_cut_off_finds_its_own_replies_and_no_others(
    tmp_path: Path,
) -> None:
    changes = {"limits": {"in_flight": 4}, "selector": {"name": "uniform"}}

    async with FakeApi(answer=right, key=None) as server:
        path = study_of(tmp_path, server, server, n_examples=4, changes=changes)
        async with Study.open(path) as study:
            await study.run()
        server.answer = wrong
        n_before = len(server.received)
        async with Study.open(path, options=Options(use_cache=False)) as study:
            running, run_id = asyncio.create_task(study.run()), study.run_id
            while len(server.received) < n_before + 8:  # noqa: ASYNC110 - no event to await
                await asyncio.sleep(0)
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
        options = Options(store=store_of(path), use_cache=False)
        async with Study.resume(run_id, options=options) as study:
            standing = await study.run()
            n_told = standing.told
        n_bought = len(server.received) - n_before
    scores = await shown(path, run_id)
    assert scores == [0.0] * n_told, "none is the first run's"
    assert n_told <= n_bought <= n_told + 4, "at most what was in flight is sent again"


async def test_first_calls_without_the_cache_show_what_they_got(tmp_path: Path) -> None:
    async with FakeApi(answer=right, key=None) as server:
        options = [Options(), Options(use_cache=False)]
        loaded = options[0].load(study_of(tmp_path, server, server, n_examples=4), {})
        found = []
        for answer, option in zip((right, wrong), options, strict=True):
            server.answer = answer
            parts = assemble(loaded, option.catalog(loaded))
            found.append(await make_first_calls(parts, option))
    for calls, text, score in zip(found, ("22", "221"), (1.0, 0.0), strict=True):
        assert [call.reply and call.reply.text for call in calls] == [text] * 6
        assert [call.score and call.score.value for call in calls] == [score] * 6
