"""Latencies of candidates and models, from the log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bestarm_agent.engine.results.reply_measures import Latency, latency_of
from tests.support.commands import invoke
from tests.support.fake_api import FakeApi, in_thread, storm
from tests.support.fake_api.streams import IN_THE_MIDDLE
from tests.support.studies import write_study


@pytest.mark.parametrize(
    ("n", "p50", "p95"), [(1, 1, 1), (2, 1, 2), (19, 10, 19), (20, 10, 19), (100, 50, 95)]
)
def test_percentiles_are_measured_times(n: int, p50: float, p95: float) -> None:
    seconds = [float(i) for i in range(1, n + 1)]
    assert latency_of(seconds) == Latency(n, p50, p95, float(n))
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
    found = {row["label"]: row["latency"] for row in json.loads(done.out)["candidates"]}
    assert found == {"c0": {"n": 10, "p50": 0.005, "p95": 0.01, "longest": 0.01}, "c1": None}
    shown = invoke(capsys, "show", folder=tmp_path).out
    assert "p95" in shown.splitlines()[0]
    assert "5 ms" in shown
    page = next((tmp_path / "runs").glob("*.html")).read_text(encoding="utf-8")
    assert '<td class="n" data-value="0.005">5 ms</td>' in page
    assert "95% within" in page


def write_streaming_study(folder: Path, api: FakeApi) -> Path:
    rows = [{"id": f"e{i}", "q": f"{i} or more?", "answer": "4"} for i in range(12)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    study = {
        "models": [
            {"model": "openai/fast", "options": {"stream": True}, "label": "fast"},
            {"model": "openai/whole", "label": "whole"},
        ],
        "prompts": [{"p": "{{ q }}"}],
        "dataset": {"path": "rows.jsonl", "target": "answer"},
        "scorer": "numeric",
        "providers": {"openai": {"base_url": api.openai_url, "key": "OPENAI_API_KEY"}},
        "selector": {"name": "uniform", "stop_when_separated": False},
    }
    path = folder / "study.json"
    path.write_text(json.dumps(study))
    return path


@pytest.mark.slow
def test_first_tokens_of_streams_reach_try_json_and_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third of the attempts breaks off in the middle; what came from the cache has no time."""
    monkeypatch.setenv("OPENAI_API_KEY", "fake-key-3f9a")
    script = storm(0.3, IN_THE_MIDDLE[2:], most=2)
    with in_thread(FakeApi(lambda call: "4 is it", script, pace=0.003)) as api:
        path = write_streaming_study(tmp_path, api)
        shown = invoke(capsys, "try", path, folder=tmp_path).out
        tried = len(api.received)
        done = invoke(capsys, "select", path, "-q", "--json", folder=tmp_path)
    assert "first token after" in shown.splitlines()[0]
    rows = {row["label"]: row for row in json.loads(done.out)["candidates"]}
    streamed, whole = rows["fast"]["latency"], rows["whole"]["latency"]
    assert (streamed["n"], streamed["first_token"]["n"]) == (12, 11)
    assert streamed["first_token"]["p95"] < streamed["longest"]
    assert "first_token" not in whole
    page = next((tmp_path / "runs").glob("*.html")).read_text(encoding="utf-8")
    assert "First token, median" in page
    asked = api.received[tried:]
    assert sum(row["calls"] for row in rows.values()) == len(asked)
    assert rows["fast"]["tokens"] > 256 * sum(received.fault is not None for received in asked) > 0
