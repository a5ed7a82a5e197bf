"""The examples of docs/local-models.md run as they stand."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import pytest

from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.study import Study

ROOT = Path(__file__).parents[2]
ARITHMETIC = ROOT / "examples" / "arithmetic"
BLOCK = re.compile(r"^```\w+\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    text = (ROOT / "docs" / "local-models.md").read_text(encoding="utf-8")
    for name, content in BLOCK.findall(text):
        (tmp_path / name).write_text(content)
    shutil.copy(ARITHMETIC / "dataset.jsonl", tmp_path)
    for name, model in (("small", "sum-llama-113k"), ("large", "sum-llama-167k")):
        shutil.copytree(ARITHMETIC / "models" / model, tmp_path / "models" / name)
    return tmp_path


def run(path: Path) -> Standing:
    async def main() -> Standing:
        async with Study.open(path) as study:
            return await study.run()

    return asyncio.run(main())


@pytest.mark.slow
def test_chains_next_to_a_model(folder: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra hf")
    standing = run(folder / "study.yaml")
    means = {row.candidate.label.split("/")[0]: row.estimate for row in standing.rows}
    assert means["chains:exact"] == pytest.approx(1, abs=0.02), "a smoothed mean"
    assert standing.best is not None
    assert standing.best.candidate.model == "chains:exact"
    assert standing.spent.pulls == 60
    assert 0 < (means["chains:checked"] or 0) < 1, "the two models agree now and then"
    assert standing.spent.calls > 60, "a checked answer takes two calls"


@pytest.mark.slow
def test_a_program_is_started_for_each_answer(folder: Path) -> None:
    standing = run(folder / "commands.yaml")
    assert [row.estimate for row in standing.rows] == pytest.approx([1], abs=0.05)
