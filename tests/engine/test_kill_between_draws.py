"""`kill -9` of a study over an API server whose pairs are drawn three times."""

from __future__ import annotations

import signal
import subprocess
import threading
from pathlib import Path
from statistics import fmean

import pytest

from bestarm_agent.domain.outcome import Scored
from bestarm_agent.engine.setup.open_run import STORE_FILE
from bestarm_agent.store.run_state import fold
from tests.engine.test_api_kill_and_resume import start
from tests.engine.test_kill_and_resume import read
from tests.support.api_studies import KEYS, write_api_study
from tests.support.fake_api import Call, FakeApi, in_thread
from tests.support.fake_api.answers import add

N_EXAMPLES, DRAWS, IN_FLIGHT = 12, 3, 4
KILLED_AT = (17,)  # requests received
STUDY = {
    "models": ["openai/alpha"],
    "params": {"temperature": 1, "max_tokens": 16},
    "repeats": DRAWS,
    "limits": {"in_flight": IN_FLIGHT},
}


def every_other(call: Call) -> str:
    """Right on every other request of a question."""
    return add(call.question) if call.attempt % 2 else "0"


def kill_at(process: subprocess.Popen[bytes], api: FakeApi, received: int) -> None:
    while process.poll() is None and len(api.received) < received:
        threading.Event().wait(0.01)
    assert process.poll() is None, process.communicate()[1].decode()
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_stored_draws_are_not_bought_again_and_all_requests_are_booked(tmp_path: Path) -> None:
    server = FakeApi(every_other, key=KEYS["OPENAI_API_KEY"], latency=lambda _call: 0.1)
    with in_thread(server) as api:
        own = {"base_url": api.openai_url, "key": "OPENAI_API_KEY"}
        changes = {**STUDY, "providers": {"openai": own}}
        path = write_api_study(tmp_path, "", "", n_examples=N_EXAMPLES, changes=changes)
        store = tmp_path / "runs" / STORE_FILE
        arguments: list[str | Path] = ["select", "--candidates", path]
        for received in KILLED_AT:
            kill_at(start(tmp_path, *arguments), api, received)
            arguments = ["resume", "--store", store]
        stored, before = len(read(store)[1]), len(api.received)
        last = start(tmp_path, *arguments)
        _, errors = last.communicate()
        assert last.returncode == 0, errors.decode()
        assert len(api.received) - before == N_EXAMPLES * DRAWS - stored, "what was missing"
        requests = len(api.received)
    events, replies = read(store)
    assert len(replies) == N_EXAMPLES * DRAWS
    state = fold(events)
    assert requests <= state.spend.calls <= N_EXAMPLES * DRAWS + len(KILLED_AT) * IN_FLIGHT
    assert len(state.told) == N_EXAMPLES
    scores = []
    for told in state.told.values():
        assert isinstance(told.outcome, Scored)
        assert told.score == fmean(draw.value for draw in told.outcome.draws)
        scores += [draw.value for draw in told.outcome.draws]
    assert len(scores) == N_EXAMPLES * DRAWS
    assert {0.0, 1.0} <= set(scores)
