"""A real vLLM server, where somebody has one: set BESTARM_VLLM_PYTHON to its interpreter.

docs/local-models.md says what was tried. Starting takes a minute or two.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from bestarm_agent.domain.values import Json
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.study import Study

PYTHON = os.environ.get("BESTARM_VLLM_PYTHON", "")
ARITHMETIC = Path(__file__).parents[3] / "examples" / "arithmetic"
ON_CPU: Mapping[str, Json] = {
    "args": ["--dtype", "float32", "--enforce-eager", "--max-model-len", "64"],
    "env": {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    },
}

pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="BESTARM_VLLM_PYTHON names no interpreter with vLLM"),
    pytest.mark.timeout(900),
]


def select(folder: Path, **serve: Json) -> Standing:
    models = {name: str(ARITHMETIC / "models" / f"sum-llama-{name}") for name in ("113k", "60k")}
    config: Mapping[str, Json] = {
        "name": "real",
        "models": [f"vllm/{name}" for name in models],
        "prompts": [{"plain": "{{ a }}+{{ b }}="}, {"spaced": "{{ a }} + {{ b }} ="}],
        "params": {"temperature": 0, "max_tokens": 6},
        "dataset": {"path": str(ARITHMETIC / "dataset.jsonl"), "target": "answer", "limit": 100},
        "scorer": "numeric",
        "selector": {"name": "uniform", "stop_when_separated": False},
        "providers": {
            "vllm": {
                "completion": True,
                "serve": {"python": PYTHON, "models": models, **ON_CPU, **serve},
            }
        },
        "output_dir": str(folder / "runs"),
    }

    async def main() -> Standing:
        async with Study.open(config) as study:
            return await study.run()

    return asyncio.run(main())


def test_it_answers_as_transformers_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accuracies over the whole set are known; these are the first 100 examples of it."""
    monkeypatch.chdir(tmp_path)
    standing = select(tmp_path)
    means = {row.candidate.label: row.estimate or 0.0 for row in standing.rows}
    assert standing.spent.calls == 400
    assert means["113k/plain"] == pytest.approx(0.91, abs=0.06)
    assert means["60k/spaced"] == pytest.approx(0.85, abs=0.08)
    assert means["60k/plain"] < 0.2
    assert standing.spent.gpu_seconds > 0
