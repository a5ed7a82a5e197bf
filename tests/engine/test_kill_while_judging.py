"""`kill -9` while judges are at work: neither an answer nor a judgement is bought twice."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from bestarm_agent.domain.events import Told
from bestarm_agent.engine.setup.parts import STORE_FILE
from bestarm_agent.stats.keyed_random import KeyedRandom
from tests.engine.test_kill_and_resume import bought, read, start
from tests.support.processes import kill_once

N_CANDIDATES, N_EXAMPLES = 4, 20
PULLS = N_CANDIDATES * N_EXAMPLES
CALLS = 3 * PULLS  # an answer, and a judgement in each order
KILLS = 4


def write_study(folder: Path) -> Path:
    """Recorded answers, and a recorded judge that takes longer than the answers."""
    folder.mkdir()
    rows: list[dict[str, object]] = []
    for i in range(N_CANDIDATES):
        for j in range(N_EXAMPLES):
            rows.append({"candidate": f"c{i}", "example": f"e{j}", "text": f"{i} {j}"})
            for place in ("first", "second"):
                said = json.dumps({"winner": place if (i * j) % 3 else "tie"})
                row = {"candidate": "judge", "example": f"c{i}/e{j}/{place}", "text": said}
                rows.append({**row, "seconds": 0.03, "input_tokens": 50, "output_tokens": 5})
    examples = [
        {"id": f"e{j}", "question": f"q{j}", "baseline_output": "b"} for j in range(N_EXAMPLES)
    ]
    for name, lines in (("calls", rows), ("examples", examples)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    study = {
        "models": [f"replay/c{i}" for i in range(N_CANDIDATES)],
        "prompts": [{"q": "{{ question }}"}],
        "dataset": "examples.jsonl",
        "scorer": {"name": "pairwise", "model": "replay/judge"},
        "providers": {"replay": {"path": "calls.jsonl"}},
        "limits": {"in_flight": 8},
        "selector": {"name": "ucb-e", "stop_when_separated": False},
    }
    path = folder / "study.json"
    path.write_text(json.dumps(study))
    return path


def has_begun(folder: Path, n: int) -> bool:
    """Return whether ``n`` calls were begun over all sessions."""
    return (folder / "bought.txt").exists() and len(bought(folder)) >= n


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_kills_while_judging_buy_nothing_again(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    path = write_study(folder)
    store = folder / "runs" / STORE_FILE
    moments = KeyedRandom(5, "kills").at(0).choice(CALLS - 20, size=KILLS, replace=False) + 10
    arguments: list[str | Path] = ["select", "--candidates", path]
    purchases: list[tuple[set[str | None], int]] = []
    for moment in sorted(int(m) for m in moments):
        process = start(folder, *arguments, "--quiet")
        kill_once(process, partial(has_begun, folder, moment))
        if store.exists():
            purchases.append(({r.request_id for r in read(store)[1]}, len(bought(folder))))
            arguments = ["resume", "--store", store]
    last = start(folder, *arguments, "--quiet")
    _, errors = last.communicate()
    assert last.returncode == 0, errors.decode()
    for paid_for, before in purchases:
        assert paid_for.isdisjoint(bought(folder)[before:]), "a stored reply was bought again"
    assert any(name and name.startswith("judge") for paid_for, _ in purchases for name in paid_for)
    events, replies = read(store)
    told = [event for event in events if isinstance(event, Told)]
    assert len({event.seq for event in told}) == len(told) == PULLS
    assert all(event.outcome.score for event in told)
    assert len(replies) == CALLS, "an answer and two judgements for every pair"
