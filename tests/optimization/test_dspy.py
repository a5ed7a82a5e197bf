"""DSPy calls models by a study: the engine of the docs, in dspy itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.optimization.gepa import Adapter
from tests.optimization.test_gepa import gepa_study

dspy = pytest.importorskip("dspy", reason="needs dspy")

DOCS = Path(__file__).parents[2] / "docs" / "interop.md"
ANSWERING = """
def answer(task):
    assert "capital" in task.prompt, task.prompt
    said = "Paris" if "France" in task.prompt else "I do not know"
    return f"[[ ## answer ## ]]\\n{said}\\n\\n[[ ## completed ## ]]"
"""


def code_of_the_docs() -> str:
    """Return the last Python block of the page."""
    return DOCS.read_text().rpartition("```python\n")[2].partition("```")[0]


def test_dspy_evaluates_on_the_budget_of_a_study(tmp_path: Path) -> None:
    (tmp_path / "answering.py").write_text(ANSWERING)
    path = gepa_study(tmp_path, budget={"pulls": 100, "calls": 3})
    facts = [("France", "Paris"), ("Chile", "Santiago"), ("France", "Paris"), ("Peru", "Lima")]
    examples = [
        dspy.Example(question=f"The capital of {place}?", answer=answer).with_inputs("question")
        for place, answer in [*facts, ("Kenya", "Nairobi")]
    ]
    program = dspy.Predict("question -> answer")

    with Adapter(path, model="python/answering:answer") as adapter:
        exec(code_of_the_docs(), {"adapter": adapter})
        evaluate = dspy.Evaluate(devset=examples, metric=is_right, num_threads=1)
        assert evaluate(program).score == pytest.approx(100 * 2 / 5)
        assert adapter.standing().spent.calls == 3, "the cache answers again, the cap holds"


def is_right(example: Any, prediction: Any, trace: object = None) -> bool:  # noqa: ANN401 - dspy's
    return bool(example.answer == prediction.answer)
