"""Every rule against the conformance suite."""

from __future__ import annotations

from typing import ClassVar

import pytest

from bestarm_agent.preselection.rules.base import Preselector
from bestarm_agent.preselection.rules.registry import RULES, make_preselector
from bestarm_agent.preselection.rules.types import PreselectionProblem
from bestarm_agent.testing.preselector_suite import PROBLEM, PreselectorSuite


class TestCppl(PreselectorSuite):
    name: ClassVar[str] = "cppl"

    def make(self, problem: PreselectionProblem) -> Preselector:
        return make_preselector(self.name, problem)


class TestMaxTheta(TestCppl):
    name = "max-theta"


class TestEpsilonGreedy(TestCppl):
    name = "epsilon-greedy"


class TestMm(TestCppl):
    name = "mm"


class TestLinUcb(TestCppl):
    name = "linucb"


class TestThompson(TestCppl):
    name = "thompson"


class TestRandom(TestCppl):
    name = "random"
    learns = False


def test_every_rule_is_in_the_suite() -> None:
    suite: set[type[TestCppl]] = {TestCppl, *TestCppl.__subclasses__()}
    assert {case.name for case in suite} == set(RULES)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("cpl", {}, "no preselection rule 'cpl'; did you mean `cppl`"),
        ("cppl", {"omga": 1.0}, "takes no such parameter"),
        ("cppl", {"omega": -1.0}, "omega must be >= 0, got -1"),
        ("cppl", {"ridge": 0.0}, "ridge must be > 0, got 0"),
        ("max-theta", {"alpha": 0.5}, r"alpha must be in \(1/2, 1\), got 0.5"),
        ("max-theta", {"gamma": 0.0}, "gamma must be > 0"),
        ("max-theta", {"spread": -1.0}, "spread must be >= 0"),
        ("epsilon-greedy", {"epsilon": 1.5}, r"epsilon must be in \[0, 1\], got 1.5"),
        ("mm", {"steps": 0}, "steps must be at least 1"),
        ("linucb", {"width": -1.0}, "width must be >= 0"),
        ("linucb", {"ridge": 0.0}, "ridge must be > 0"),
        ("thompson", {"noise": 0.0}, "noise must be > 0"),
    ],
)
def test_bad_parameters_are_refused(name: str, params: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_preselector(name, PROBLEM, **params)
