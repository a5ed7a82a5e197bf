"""Each part of the plug-in against its conformance suite, then all of them in a study."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent import Budget, ConfigError, Options, Study
from bestarm_agent.judges import Example, Reply
from bestarm_agent.providers import Request
from bestarm_agent.selectors import Problem, make_selector
from bestarm_agent.testing import (
    JudgeCase,
    JudgeSuite,
    ProviderCase,
    ProviderSuite,
    SelectorSuite,
)
from bestarm_example.judge import Nearby, NearbyOptions
from bestarm_example.provider import Calculator
from bestarm_example.rule import EpsilonGreedy


class TestRule(SelectorSuite):
    def make(self, problem: Problem) -> EpsilonGreedy:
        return EpsilonGreedy(problem)


class TestProvider(ProviderSuite):
    @pytest.fixture
    def case(self) -> ProviderCase:
        return ProviderCase(
            build=lambda: Calculator.create("calculator", {}, Path()),
            requests=[Request("0", text=f"{i}+{i}") for i in range(3)],
            failing=[Request("0", text="nothing to add")],
            nonsense=["no/such model"],
        )


class TestJudge(JudgeSuite):
    @pytest.fixture
    def case(self) -> JudgeCase:
        return JudgeCase(
            build=lambda: Nearby("nearby", NearbyOptions()),
            example=Example("e1", {}, "46"),
            scored=[(Reply("46"), 1.0), (Reply("41"), 0.5), (Reply("99"), 0.0)],
            failing=[Reply("forty-six")],
        )


def test_a_study_uses_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"sum": f"{i}+{2 * i}", "answer": 3 * i} for i in range(12)]
    Path("sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    study: dict[str, Any] = {
        "models": ["calculator/0", "calculator/1", "calculator/-7"],
        "prompts": [{"plain": "{{ sum }}="}],
        "dataset": {"path": "sums.jsonl", "target": "answer"},
        "scorer": {"name": "nearby", "within": 5},
        "selector": {"name": "epsilon-greedy", "params": {"epsilon": 0.5}},
    }
    options = Options(store="runs.sqlite")

    async def scene() -> tuple[str, float | None]:
        async with Study.open(study, options=options) as opened:
            await opened.run(Budget(answers=6))
        async with Study.resume(options=options) as resumed:
            best = (await resumed.run(Budget(answers=30))).best
        assert best is not None
        return best.candidate.model, best.estimate

    assert asyncio.run(scene()) == ("0", 1.0)


def test_a_wrong_parameter_is_refused() -> None:
    problem = Problem(3, 10)
    with pytest.raises(ValueError, match="epsilon must be in"):
        make_selector("epsilon-greedy", problem, epsilon=2.0)
    with pytest.raises(ValueError, match="has no parameter 'epsilom'; did you mean `epsilon`"):
        make_selector("epsilon-greedy", problem, epsilom=0.1)
    with pytest.raises(ConfigError, match="a model is a whole number"):
        Calculator.create("calculator", {}, Path()).check("gpt")
