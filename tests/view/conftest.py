"""A stored run whose texts attack the page, and a PostgreSQL server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.store.conftest import new_database, postgres
from tests.support.studies import run_all, store_of, write_study

__all__ = ["new_database", "postgres"]

ATTACK = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
E0 = f"e0 {ATTACK}"  # an example's id
REPLIES = {
    ("c0", E0): "Paris",
    ("c0", "e1"): "Rome",
    ("c1", E0): f"Lyon {ATTACK}",
    ("c1", "e1"): "Rome",
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The store of a finished run: c0 is right twice, c1 once, by the reply that attacks."""
    path = write_study(
        tmp_path,
        n_candidates=2,
        n_examples=2,
        changes={
            "name": "capitals",
            "dataset": {"path": "questions.jsonl", "target": "capital"},
            "scorer": "contains",
            "selector": {"name": "uniform", "stop_when_separated": False},
        },
    )
    records = [
        {"candidate": candidate, "example": example, "text": text, "usd": 0.25}
        for (candidate, example), text in REPLIES.items()
    ]
    examples = [
        {"id": E0, "question": f"France? {ATTACK}", "capital": "Paris"},
        {"id": "e1", "question": "Italy?", "capital": "Rome"},
    ]
    (tmp_path / "scores.jsonl").write_text("\n".join(map(json.dumps, records)))
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, examples)))
    run_all(path)
    return store_of(path)
