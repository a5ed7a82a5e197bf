"""Selection rules: each decides which (candidate, example) pair to evaluate next."""

from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import Ask, Choice, Pair, Problem, State, Stop, Tell
from bestarm_agent.stats.arrays import BoolArray

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
