"""A storm of faults at both APIs: nothing is lost, told twice or spent unseen."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from bestarm_agent import Study
from bestarm_agent.domain.events import Event, Told
from bestarm_agent.domain.spend import Spend
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.options import STORE_FILE, Options
from bestarm_agent.store.store import Store
from tests.support.api_studies import ANTHROPIC_MODELS, KEYS, OPENAI_MODELS, FastClock, study_of
from tests.support.fake_api import FakeApi, Script, in_thread, quality, storm
from tests.support.fake_api.faults import calm

N_EXAMPLES = 120
SPEED = 30  # of the clock: a call is given up after 15 minutes, which is then half a minute
PAIRS = N_EXAMPLES * (len(OPENAI_MODELS) + len(ANTHROPIC_MODELS))


@dataclass(frozen=True)
class Run:
    """What a run left behind."""

    standing: Standing
    outstanding: Spend
    events: Sequence[Event]
    requests: int
    faults: Counter[str]


def servers(script: Script) -> tuple[FakeApi, FakeApi]:
    shares = {**OPENAI_MODELS, **ANTHROPIC_MODELS}
    keys = list(KEYS.values())
    one, other = (FakeApi(answer=quality(shares), script=script, key=key) for key in keys)
    return one, other


async def run_study(path: Path) -> tuple[Standing, Spend, Sequence[Event]]:
    async with Study.open(path, options=Options(clock=FastClock(SPEED))) as study:
        standing = await study.run()
        outstanding = study._run.ledger.outstanding
        await study.write_report()
    async with await Store.connect(path.parent / "runs" / STORE_FILE, create=False) as store:
        return standing, outstanding, await store.events_of("latest")


def run_under(script: Script, folder: Path, n_examples: int = N_EXAMPLES) -> Run:
    one, other = servers(script)
    with in_thread(one), in_thread(other):
        changes = {"limits": {"in_flight": 64, "max_attempts": 8}, "budget": {"usd": 5}}
        path = study_of(folder, one, other, n_examples=n_examples, changes=changes)
        standing, outstanding, events = asyncio.run(run_study(path))
    received = [*one.received, *other.received]
    faults = Counter(str(r.fault) for r in received if r.fault is not None)
    return Run(standing, outstanding, events, len(received), faults)


@pytest.mark.slow
def test_a_storm_changes_nothing_but_the_bill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)
    caplog.set_level(logging.DEBUG)
    stormy = run_under(storm(0.25, seed=3), tmp_path / "stormy")
    quiet = run_under(calm, tmp_path / "quiet")

    assert len(stormy.faults) >= 15, "all kinds of faults happened"
    assert stormy.requests > PAIRS * 1.2
    told = Counter(event.seq for event in stormy.events if isinstance(event, Told))
    assert sorted(told) == list(range(PAIRS)), "every pair is told"
    assert set(told.values()) == {1}, "and told once"
    outcomes = [event.outcome for event in stormy.events if isinstance(event, Told)]
    assert all(outcome.score for outcome in outcomes), "in the end all succeed"

    spent = sum((outcome.spend for outcome in outcomes), Spend())
    for run in (stormy, quiet):
        assert run.standing.spent.calls == run.requests, "every request is booked"
        assert run.outstanding == Spend()
        assert run.standing.spent.usd_nanos <= 5_000_000_000
    assert stormy.standing.spent == spent
    assert stormy.standing.spent.usd_nanos > quiet.standing.spent.usd_nanos

    assert quiet.requests == PAIRS
    assert winner(stormy.standing) == winner(quiet.standing) == "epsilon"
    assert means(stormy.standing) == means(quiet.standing)
    assert_no_key_in(tmp_path, caplog.text)


def winner(standing: Standing) -> str:
    assert standing.best is not None
    return standing.best.candidate.label


def means(standing: Standing) -> dict[str, float | None]:
    return {row.candidate.label: row.estimate for row in standing.rows}


def assert_no_key_in(folder: Path, logs: str) -> None:
    texts = {"logs": logs.encode()}
    texts |= {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert any(name.endswith(".html") for name in texts), "the reports are among them"
    assert any(name.endswith(STORE_FILE) for name in texts), "and the stores"
    for key in KEYS.values():
        assert [name for name, content in texts.items() if key.encode() in content] == []
