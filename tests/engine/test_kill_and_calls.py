"""`kill -9`, again and again, of a run whose calls are in flight: no request goes unrecorded."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from bestarm_agent.engine.setup.parts import STORE_FILE
from bestarm_agent.store.run_state import fold
from tests.engine.test_api_kill_and_resume import Server, serving, start
from tests.engine.test_kill_and_resume import has_told, read
from tests.support.api_studies import KEYS, write_api_study
from tests.support.processes import kill_once

CALLS, IN_FLIGHT = 16, 8


def has_sent(server: Server, store: Path, requests: int) -> bool:
    """Return whether so many requests went out; until the first is told they go one by one."""
    return len(server.received()) >= requests and has_told(store, 1)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_requests_in_flight_at_every_kill_count_against_the_cap(tmp_path: Path) -> None:
    options = ("--latency-ms", "60000", "--quick", "1")  # a first call opens the way for others
    with serving({"alpha": 0.5}, KEYS["OPENAI_API_KEY"], *options) as server:
        changes = {
            "models": ["openai/alpha"],
            "budget": {"calls": CALLS},
            "limits": {"in_flight": IN_FLIGHT},
        }
        path = write_api_study(
            tmp_path, f"{server.url}/v1", server.url, n_examples=60, changes=changes
        )
        store = tmp_path / "runs" / STORE_FILE
        arguments: list[str | Path] = ["select", "--candidates", path]
        sent = 0
        for _ in range(10):
            process = start(tmp_path, *arguments)
            arguments = ["resume", "--store", store]
            if sent >= CALLS:
                process.communicate()
                break
            sent = min(CALLS, sent + 4)
            # one whose latest attempt was booked and not sent ends by itself
            kill_once(process, partial(has_sent, server, store, sent))
            sent = len(server.received())
        requests = len(server.received())
    state = fold(read(store)[0])
    assert state.end == "budget"
    assert requests <= (state.spend + state.pending_spend).calls <= CALLS
    assert requests > CALLS - IN_FLIGHT
