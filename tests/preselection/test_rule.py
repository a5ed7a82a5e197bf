"""Every rule, and the baselines of the paper, against what all rules must do."""

from __future__ import annotations

from typing import ClassVar

import pytest
from benchmarks.preselection.rules import RULES

from bestarm_agent.preselection.rule import PreselectionProblem, Preselector
from tests.support.preselector_suite import PROBLEM, PreselectorSuite


class TestCppl(PreselectorSuite):
    name: ClassVar[str] = "cppl"

    def make(self, problem: PreselectionProblem) -> Preselector:
        return RULES[self.name](problem)


class TestMaxTheta(TestCppl):
    name = "max-theta"


class TestLinUcb(TestCppl):
    name = "linucb"


class TestRandom(TestCppl):
    name = "random"
    learns = False


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("cppl", {"omega": -1.0}, "omega must be >= 0, got -1"),
        ("cppl", {"ridge": 0.0}, "ridge must be > 0, got 0"),
        ("cppl", {"alpha": 0.5}, r"alpha must be in \(1/2, 1\), got 0.5"),
        ("cppl", {"gamma": 0.0}, "gamma must be > 0"),
        ("cppl", {"spread": -1.0}, "spread must be >= 0"),
        ("linucb", {"width": -1.0}, "width must be >= 0"),
        ("linucb", {"ridge": 0.0}, "ridge must be > 0"),
    ],
)
def test_bad_parameters_are_refused(name: str, params: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RULES[name](PROBLEM, **params)
