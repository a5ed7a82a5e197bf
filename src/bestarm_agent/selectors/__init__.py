"""Selection rules: each decides which (candidate, example) pair to evaluate next."""

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.registry import make_selector, selector_names, selector_params
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import (
    Ask,
    BoolArray,
    Choice,
    Estimates,
    Guarantee,
    Pair,
    Problem,
    State,
    Stop,
    Tell,
    Verdict,
)

__all__ = [
    "Ask",
    "BoolArray",
    "Choice",
    "Estimates",
    "Guarantee",
    "Pair",
    "Pairs",
    "Problem",
    "Rule",
    "State",
    "Stop",
    "Tell",
    "Verdict",
    "make_selector",
    "selector_names",
    "selector_params",
]
