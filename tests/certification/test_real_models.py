"""The command with real models: the tiny ones that ship with the example."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Command
from tests.support.processes import kill_once

pytest.importorskip("transformers", reason="needs the extra hf")

EXAMPLE = Path(__file__).parents[2] / "examples" / "arithmetic"
STUDY = {
    "name": "good-enough",
    "models": ["hf/models/sum-llama-113k", "hf/models/sum-llama-60k"],
    "prompts": [{"plain": "{{ a }}+{{ b }}="}],
    "params": {"temperature": 0, "max_tokens": 6},
    "dataset": {"path": "dataset.jsonl", "target": "answer"},
    "scorer": "numeric",
}
PROGRAM = "from bestarm_agent.cli.main import main; main()"
ASKED = (
    *("certify", "-c", "study.json", "--risk", "0.5", "--judge", "contains", "--quiet"),
    *("--labels", "labels.jsonl", "--set", "certify.order=given", "--store", "killed.sqlite"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example with 120 of its 500 additions labelled."""
    shutil.copytree(EXAMPLE / "models", tmp_path / "models")
    shutil.copy(EXAMPLE / "dataset.jsonl", tmp_path)
    rows = [json.loads(line) for line in (EXAMPLE / "dataset.jsonl").read_text().splitlines()]
    labels = [{"id": row["id"], "target": row["answer"]} for row in rows[::4][:120]]
    text = "".join(json.dumps(label) + "\n" for label in labels)
    (tmp_path / "labels.jsonl").write_text(text, encoding="utf-8")
    (tmp_path / "study.json").write_text(json.dumps(STUDY), encoding="utf-8")
    return tmp_path


def told(store: Path) -> int:
    if not store.exists():
        return 0
    with closing(sqlite3.connect(store, timeout=30)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'events'").fetchone():
            return 0
        count = connection.execute("SELECT count(*) FROM events WHERE kind = 'told'")
        return int(count.fetchone()[0])


def verdicts(found: dict[str, Any]) -> list[tuple[str, str, float]]:
    return [(c["name"], c["verdict"], c["log_e_value"]) for c in found["candidates"]]


@pytest.mark.slow
def test_certify_killed_and_resumed(folder: Path, command: Command) -> None:
    store = folder / "killed.sqlite"
    words = [sys.executable, "-c", PROGRAM, *ASKED, "--set", "limits.in_flight=4"]
    process = subprocess.Popen(
        words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    kill_once(process, lambda: told(store) >= 12)
    assert told(store) >= 12
    done = command("resume", "--store", store, "--json", "--quiet")
    assert done.code == 0, done.err
    resumed, undisturbed = done.json, command(*ASKED, "--json").json
    assert (resumed["chosen"], resumed["end"]) == ("sum-llama-113k", "verdict")
    assert verdicts(resumed) == verdicts(undisturbed)
    assert undisturbed["run_id"] != resumed["run_id"]
    assert undisturbed["labels"] < 120
    shown = command("show", "--store", store)
    assert "Chosen:      sum-llama-113k" in shown.out
    assert "more than" in shown.out or "labels for the same" in shown.out
