"""Preselection rules by name."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature

from bestarm_agent.errors import nearest
from bestarm_agent.preselection.rules.averaged_sgd import EpsilonGreedy, MaxTheta
from bestarm_agent.preselection.rules.base import Preselector
from bestarm_agent.preselection.rules.cppl import Cppl
from bestarm_agent.preselection.rules.linear_bandits import LinUcb, ThompsonScores
from bestarm_agent.preselection.rules.mm_winrate import Mm
from bestarm_agent.preselection.rules.types import PreselectionProblem
from bestarm_agent.preselection.rules.uniform import RandomArms

RULES: Mapping[str, type[Preselector]] = {
    rule.name: rule
    for rule in (Cppl, MaxTheta, EpsilonGreedy, Mm, LinUcb, ThompsonScores, RandomArms)
}


def make_preselector(name: str, problem: PreselectionProblem, **params: float | int) -> Preselector:
    """Make the rule of this name; raise ValueError if a name or value is wrong."""
    if name not in RULES:
        raise ValueError(f"there is no preselection rule {name!r}; {nearest(name, RULES)}")
    rule = RULES[name]
    known = [key for key in signature(rule).parameters if key != "problem"]
    for key in params:
        if key not in known:
            close = nearest(key, known) if known else "it takes none"
            raise ValueError(f"the rule {name!r} takes no such parameter: {key}; {close}")
    return rule(problem, **params)
