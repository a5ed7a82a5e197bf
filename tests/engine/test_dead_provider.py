"""A server that is not there, on real sockets: a run over it ends soon, and says why."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from bestarm_agent import Study
from bestarm_agent.cli.run import EXIT_FAILURES, exit_code
from bestarm_agent.engine.results.standing import Standing, Status
from bestarm_agent.engine.setup.parts import Options
from bestarm_agent.study import Archive
from tests.support.api_studies import KEYS, FastClock, write_api_study


def closed_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
    return port


@pytest.mark.slow
def test_a_run_whose_every_call_fails_ends_within_few_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)
    url = f"http://127.0.0.1:{closed_port()}"
    path = write_api_study(tmp_path, f"{url}/v1", url, n_examples=500)

    async def run() -> Standing:
        async with Study.open(path, options=Options(clock=FastClock(30))) as study:
            return await study.run()

    standing = asyncio.run(run())
    assert exit_code(standing, confidence_asked=False) == EXIT_FAILURES
    assert standing.spent.calls == 6 * 5, "the retries of one call to each of six models"
    assert len(standing.rows) == 6
    assert all("it was the first pair" in str(row.problem) for row in standing.rows)
    stored = asyncio.run(Archive(tmp_path / "runs" / "runs.sqlite").record("latest")).standing
    assert {row.status for row in stored.rows} == {Status.BROKEN}
    assert {row.problem for row in stored.rows} == {row.problem for row in standing.rows}
