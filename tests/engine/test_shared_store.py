"""Processes that run at the same time over one store: no request is sent twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

N_EXAMPLES, N_PROCESSES = 40, 3
PROGRAM = '''
import os, time

def answer(task):
    """Note the request and answer late, so that the processes meet at every one."""
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{task.inputs['n']}\\n")
    time.sleep(0.02)
    return str(task.inputs["n"])
'''


def write_study(folder: Path) -> Path:
    (folder / "programs.py").write_text(PROGRAM)
    rows = [{"id": str(n), "n": n, "answer": str(n)} for n in range(N_EXAMPLES)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    study = {
        "name": "shared",
        "models": ["python/programs:answer"],
        "prompts": [{"q": "say {{ n }}"}],
        "dataset": {"path": "rows.jsonl", "target": "answer", "id": "id"},
        "scorer": "exact",
        "selector": {"name": "uniform", "stop_when_separated": False, "seed": 1},
        "limits": {"in_flight": 4},
    }
    path = folder / "study.json"
    path.write_text(json.dumps(study))
    return path


@pytest.mark.slow
def test_processes_that_share_a_store_buy_every_reply_once(tmp_path: Path) -> None:
    path, notes = write_study(tmp_path), tmp_path / "notes"
    program = "from bestarm_agent.cli.main import main; main()"
    command = [sys.executable, "-c", program, "select", "-c", str(path), "--json", "--quiet"]
    processes = [
        subprocess.Popen(
            command,
            env={**os.environ, "NOTES": str(notes)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(N_PROCESSES)
    ]
    results = []
    for process in processes:
        out, err = process.communicate(timeout=100)
        assert process.returncode == 0, err
        results.append(json.loads(out))
    sent = Counter(notes.read_text().split())
    assert sorted(sent) == sorted(map(str, range(N_EXAMPLES)))
    assert sent.total() == N_EXAMPLES, "every request was sent once"
    assert [result["told"] for result in results] == [N_EXAMPLES] * N_PROCESSES
    assert sum(result["spent"]["calls"] for result in results) == N_EXAMPLES
    assert all(result["best"]["total"] == N_EXAMPLES for result in results)
