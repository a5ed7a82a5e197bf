"""An account that runs out of money (HTTP 402): the run says so, ends, and can be resumed."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from bestarm_agent.store.run_state import RunState, fold
from bestarm_agent.store.store import Store
from tests.support.api_studies import ANTHROPIC_MODELS, KEYS, OPENAI_MODELS, study_of
from tests.support.commands import Done, invoke
from tests.support.fake_api import Call, FakeApi, Fault, in_thread, quality
from tests.support.studies import store_of

SUMS, IN_FLIGHT = 8, 4
PAIRS = SUMS * (len(OPENAI_MODELS) + len(ANTHROPIC_MODELS))


async def state_of(path: Path) -> RunState:
    async with await Store.connect(store_of(path), create=False) as store:
        return fold(await store.events_of((await store.runs())[-1].id))


@pytest.mark.parametrize("both", [False, True], ids=["one provider", "both providers"])
def test_a_run_whose_account_is_empty_says_so_ends_and_goes_on_once_it_is_paid(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    both: bool,
) -> None:
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)
    is_paid = False

    def api_of(models: dict[str, float], key: str, *, runs_out: bool) -> FakeApi:
        def script(_: Call) -> Fault | None:
            return Fault.PAYMENT if runs_out and not is_paid and len(api.received) > 9 else None

        api = FakeApi(quality(models), script, key=key)
        return api

    openai = api_of(OPENAI_MODELS, KEYS["OPENAI_API_KEY"], runs_out=True)
    anthropic = api_of(ANTHROPIC_MODELS, KEYS["ANTHROPIC_API_KEY"], runs_out=both)
    apis = [openai, anthropic]

    def n_received() -> int:
        return sum(len(api.received) for api in apis)

    def n_answered() -> int:
        return sum(one.status == 200 for api in apis for one in api.received)

    with in_thread(openai), in_thread(anthropic):
        changes = {"limits": {"in_flight": IN_FLIGHT}}
        path = study_of(tmp_path, *apis, n_examples=SUMS, changes=changes)
        ended = invoke(capsys, "select", path, "-q", folder=tmp_path)
        state = asyncio.run(state_of(path))
        refused = [one for api in apis for one in api.received if one.status == 402]
        assert len(refused) <= 2 * IN_FLIGHT * len(apis), "an empty account is asked no more"
        assert (state.spend + state.pending_spend).calls == n_received(), (
            "the books agree with the servers"
        )
        assert openai.received[-1].status == 402

        is_paid, n_bought = True, n_answered()
        resumed = invoke(capsys, "resume", "--store", store_of(path), "-q", folder=tmp_path)
    said = " ".join((ended.out + ended.err).split())
    assert ended.code == 4
    assert "HTTP 402" in said
    assert "raise the account's limit or add credit, then resume the run" in said
    assert bool(re.search(r"anthropic/\S+: the account has no credit", said)) == both
    _finished(resumed)
    state = asyncio.run(state_of(path))
    assert (state.n_told, state.spend.calls) == (PAIRS, n_received())
    assert n_answered() == PAIRS, f"{n_bought} answers were kept, and none was bought again"


def _finished(done: Done) -> None:
    assert done.code in (0, 3), done.err
    assert "finished" in done.out + done.err
    assert "Cannot be called" not in done.out + done.err
