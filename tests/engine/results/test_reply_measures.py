"""Latencies of candidates, from the log."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bestarm_agent.domain.events import Event
from bestarm_agent.store.run_state import fold
from tests.support.commands import invoke
from tests.support.store_runs import asked, grid, started, told
from tests.support.studies import write_study


@pytest.mark.parametrize(
    ("n", "p50", "p95"), [(1, 1, 1), (2, 1, 2), (19, 10, 19), (20, 10, 19), (100, 50, 95)]
)
def test_percentiles_are_measured_times(n: int, p50: float, p95: float) -> None:
    seconds = [float(i) for i in range(n, 0, -1)]
    events: list[Event] = [started(), *grid(2, n), *map(asked, range(n))]
    for seq, took in enumerate(seconds):
        one = told(seq)
        events.append(replace(one, outcome=replace(one.outcome, seconds=took)))
    half, most = fold(events).latencies(50, 95)
    np.testing.assert_array_equal([half, most], [[p50, np.nan], [p95, np.nan]])
    assert sum(one <= p95 for one in seconds) >= 0.95 * n


def test_times_of_pairs_reach_json_table_and_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_study(tmp_path, n_candidates=2, n_examples=10)
    lines = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    for i, line in enumerate(lines):
        line["seconds"] = 0.001 * (1 + i % 10) if line["candidate"] == "c0" else 0.0
    (tmp_path / "scores.jsonl").write_text("\n".join(map(json.dumps, lines)))
    done = invoke(capsys, "select", path, "-q", "--json", folder=tmp_path)
    found = {
        row["candidate"]["label"]: (row["p50_seconds"], row["p95_seconds"])
        for row in json.loads(done.out)["rows"]
    }
    assert found == {"c0": (0.005, 0.01), "c1": (None, None)}
    shown = invoke(capsys, "show", folder=tmp_path).out
    assert any("p95" in line for line in shown.splitlines())
    assert "5 ms" in shown
    page = next((tmp_path / "runs").glob("*.html")).read_text(encoding="utf-8")
    assert '<td class="n" data-value="0.005">5 ms</td>' in page
    assert "95 % within" in page
