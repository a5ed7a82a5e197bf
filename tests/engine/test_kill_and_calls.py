"""`kill -9`, again and again, of a run whose calls are in flight: no request goes unrecorded."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from bestarm_agent.engine.setup.open_run import STORE_FILE
from bestarm_agent.store.run_state import fold
from tests.engine.test_api_kill_and_resume import Server, serving, start
from tests.engine.test_kill_and_resume import read, told_so_far
from tests.support.api_studies import KEYS, write_api_study

CALLS, IN_FLIGHT = 24, 8


def killed_when(
    process: subprocess.Popen[bytes], server: Server, store: Path, received: int
) -> None:
    """Kill a process once the server has received so many requests and the first is told.

    Until then calls go out one by one. A process whose latest attempt was booked and not sent ends
    by itself, for want of budget.
    """
    while process.poll() is None and (len(server.received()) < received or told_so_far(store) == 0):
        threading.Event().wait(0.05)
    process.kill()
    process.communicate()


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
            killed_when(process, server, store, sent)
            sent = len(server.received())
        requests = len(server.received())
    state = fold(read(store)[0])
    assert state.end == "budget"
    assert requests <= (state.spend + state.pending_spend).calls <= CALLS
    assert requests > CALLS - IN_FLIGHT
