"""Find selection rules by name and make them from parameters that users give."""

from __future__ import annotations

import inspect
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeAlias, Union, get_args, get_origin

from bestarm_agent.errors import nearest
from bestarm_agent.plugins import Registry, is_path
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import Problem

_RULES = "bestarm_agent.selectors.rules"
SelectorName: TypeAlias = Literal[
    "auto", "opt-mai", "pulse", "racing", "sysrs", "ucb-e", "ucb-e-lrf", "uniform"
]
# Module and class of every rule; a module is imported when its rule is first used.
SELECTORS: Final = Registry[type[Rule]](
    "selector",
    "selectors",
    {
        "auto": "bestarm_agent.selectors.auto.rule:Auto",
        "opt-mai": f"{_RULES}.opt_mai:OptMai",
        "pulse": f"{_RULES}.pulse:Pulse",
        "racing": f"{_RULES}.racing:Racing",
        "sysrs": f"{_RULES}.rounds:SuccessiveRejects",
        "ucb-e": f"{_RULES}.ucb_e:UcbE",
        "ucb-e-lrf": f"{_RULES}.ucb_e_lrf:UcbELrf",
        "uniform": f"{_RULES}.racing:Uniform",
    },
    lambda plugin: isinstance(plugin, type) and issubclass(plugin, Rule),
    "a subclass of bestarm_agent.selectors.Rule",
)


def selector_names() -> tuple[str, ...]:
    """Return the names of all selection rules, built in and installed, sorted."""
    return SELECTORS.names()


def selector_class(rule: str | type[Rule]) -> type[Rule]:
    """Return the class of a rule, given by name, by a dotted path ``module:Class``, or itself.

    Raises:
        ValueError: there is no rule of that name; the nearest names are given.
        PluginError: it is a plug-in that cannot be imported.
    """
    if isinstance(rule, type):
        return rule
    if not is_path(rule) and rule not in SELECTORS.built_in and rule not in SELECTORS.names():
        raise ValueError(f"there is no selector {rule!r}; {nearest(rule, SELECTORS.names())}")
    return SELECTORS.load(rule)


def selector_params(rule: str | type[Rule]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a rule, given by name or class, besides the problem.

    A rule that passes keywords on (``**model``) takes those of its base class too.

    Raises:
        ValueError: there is no rule of that name; the nearest names are given.
    """
    named: dict[str, inspect.Parameter] = {}
    for base in selector_class(rule).__mro__:
        # The class itself comes first, so its own default wins over that of a base class; the walk
        # ends at the first ``__init__`` that passes nothing on.
        params = inspect.signature(base, eval_str=True).parameters.values()
        named |= {p.name: p for p in params if p.kind is p.KEYWORD_ONLY and p.name not in named}
        if "__init__" in vars(base) and not any(p.kind is p.VAR_KEYWORD for p in params):
            break
    return named


def make_selector(
    rule: SelectorName | str | type[Rule],
    problem: Problem,
    **params: Any,  # noqa: ANN401
) -> Pairs:
    """Make the pairs of a selection rule.

    Args:
        rule: one of ``selector_names()``, a dotted path ``module:Class``, or a class.
        problem: K, N, seed and the rest.
        params: the rule's own parameters; see its class.

    Raises:
        ValueError: unknown rule, unknown or ill-typed parameter, or a value that the rule refuses.

    Example:
        >>> make_selector("ucb-e", Problem(n_candidates=3, n_examples=10), eta=2.0).rule.eta
        2.0
        >>> make_selector("ucb_e", Problem(n_candidates=3, n_examples=10))
        Traceback (most recent call last):
        ValueError: there is no selector 'ucb_e'; did you mean `ucb-e`?
    """
    kind = selector_class(rule)
    name, known = kind.name, selector_params(kind)
    for key, value in params.items():
        if key not in known:
            raise ValueError(f"selector {name!r} has no parameter {key!r}; {nearest(key, known)}")
        parts = _parts(known[key].annotation)
        if not any(_fits(value, part) for part in parts):
            rule = f"must be {' or '.join(map(_spell, parts))}"
            raise ValueError(f"parameter {key!r} of selector {name!r} {rule}, got {value!r}")
    return Pairs(kind(problem, **params))


def _parts(kind: Any) -> list[Any]:  # noqa: ANN401 - a type or a typing construct
    """Return the types, and the values of a literal, of which one must fit."""
    if get_origin(kind) in (Union, UnionType, Literal):
        return [part for option in get_args(kind) for part in _parts(option)]
    return [kind]


def _fits(value: object, part: Any) -> bool:  # noqa: ANN401 - a type, or a value
    if not isinstance(part, type):
        return bool(value == part)
    # Python's bool is an int: without this, ``true`` would pass for a number of 1.
    if isinstance(value, bool):
        return part is bool
    return isinstance(value, int | float if part is float else part)


def _spell(part: Any) -> str:  # noqa: ANN401
    words = {int: "a whole number", float: "a number", bool: "true or false", NoneType: "null"}
    named = f"of type {part.__name__}" if isinstance(part, type) else repr(part)
    return words.get(part, named)
