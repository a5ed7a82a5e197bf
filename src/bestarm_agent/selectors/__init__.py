"""Selection rules: each decides which (candidate, example) pair to evaluate next."""

from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import Ask, BoolArray, Choice, Pair, Problem, State, Stop, Tell

__all__ = [
    "Ask",
    "BoolArray",
    "Choice",
    "Pair",
    "Problem",
    "Rule",
    "State",
    "Stop",
    "Tell",
    "make_selector",
]
