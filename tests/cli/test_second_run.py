"""A second run that learns from the first, as its documentation shows it, at small size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import invoke

pytest.importorskip("torch", reason="needs the extra hf")
pytest.importorskip("transformers", reason="needs the extra hf")

EXAMPLE = Path(__file__).parents[2] / "examples" / "arithmetic"
N = 40  # of the example's 500 additions

Capsys = pytest.CaptureFixture[str]


def write_study(path: Path, temperatures: list[float], selector: dict[str, Any]) -> Path:
    """A part of the example: two models, two prompts, other temperatures."""
    study = {
        "name": path.stem,
        "models": [f"hf/{EXAMPLE}/models/{name}" for name in ("sum-llama-113k", "sum-llama-60k")],
        "prompts": [{"plain": "{{ a }}+{{ b }}="}, {"spaced": "{{ a }} + {{ b }} ="}],
        "params": {"temperature": temperatures, "max_tokens": 6},
        "dataset": {"path": str(EXAMPLE / "dataset.jsonl"), "target": "answer", "limit": N},
        "scorer": "numeric",
        "providers": {"hf": {"threads": 1, "completion": True}},
        "selector": {"stop_when_separated": False, **selector},
        "output_dir": str(path.parent / "runs"),
    }
    path.write_text(json.dumps(study), encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_second_run_learns_from_the_first(tmp_path: Path, capsys: Capsys) -> None:
    first = write_study(tmp_path / "first.json", [0, 0.5], {"name": "uniform"})
    done = invoke(capsys, "select", "-c", first, "--json", folder=tmp_path)
    assert done.code == 0, done.err
    learned = json.loads(done.out)
    pulse: dict[str, Any] = {"name": "pulse", "params": {"batch": 8}}
    second = write_study(tmp_path / "second.json", [0.1], pulse)
    again = invoke(
        capsys, "select", "-c", second, "--history", learned["run_id"], "--json", folder=tmp_path
    )
    assert again.code == 0, again.err
    assert f"history: 8 candidates on {N} of the {N} examples" in " ".join(again.err.split())
    found = json.loads(again.out)
    assert found["selector"] == "pulse"
    assert found["decision"]["take"] == "sum-llama-113k/plain"
