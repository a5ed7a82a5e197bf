"""Preselection rules by name."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature

from bestarm_agent.errors import nearest
from bestarm_agent.preselection.averaged_sgd import EpsilonGreedy, MaxTheta
from bestarm_agent.preselection.base import Preselector
from bestarm_agent.preselection.cppl import Cppl
from bestarm_agent.preselection.linear_scores import LinUcb, ThompsonScores
from bestarm_agent.preselection.mm import Mm
from bestarm_agent.preselection.types import PreselectionProblem
from bestarm_agent.preselection.uniform import RandomArms

RULES: Mapping[str, type[Preselector]] = {
    rule.name: rule
    for rule in (Cppl, MaxTheta, EpsilonGreedy, Mm, LinUcb, ThompsonScores, RandomArms)
}


def make_preselector(name: str, problem: PreselectionProblem, **params: float | int) -> Preselector:
    """Make a preselection rule.

    Args:
        name: one of ``RULES``.
        problem: what it is for.
        params: the rule's own parameters.

    Raises:
        ValueError: there is no such rule or parameter, or a value is out of its range.

    Example:
        >>> make_preselector("cppl", PreselectionProblem(3, 2), omega=0.5).name
        'cppl'
    """
    if name not in RULES:
        raise ValueError(f"there is no preselection rule {name!r}; {nearest(name, RULES)}")
    rule = RULES[name]
    known = [key for key in signature(rule).parameters if key != "problem"]
    for key in params:
        if key not in known:
            close = nearest(key, known) if known else "it takes none"
            raise ValueError(f"the rule {name!r} takes no such parameter: {key}; {close}")
    return rule(problem, **params)
