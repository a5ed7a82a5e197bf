"""Every selection rule by its name, made from user-given parameters."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from bestarm_agent.errors import nearest
from bestarm_agent.selectors.auto import Auto
from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.filled_subset import FilledSubset
from bestarm_agent.selectors.lrf import Lrf
from bestarm_agent.selectors.lucb import Lucb
from bestarm_agent.selectors.naive_pooling import NaivePooling
from bestarm_agent.selectors.opt_mai import OptMai
from bestarm_agent.selectors.pulse import Pulse
from bestarm_agent.selectors.racing import Racing
from bestarm_agent.selectors.row_mean import RowMean
from bestarm_agent.selectors.sar import Sar
from bestarm_agent.selectors.sequential_halving import SequentialHalving
from bestarm_agent.selectors.successive_rejects import (
    SuccessiveRejects,
    SynchronisedSuccessiveRejects,
)
from bestarm_agent.selectors.top_two import TopTwo
from bestarm_agent.selectors.types import Problem
from bestarm_agent.selectors.ucb_e import UcbE
from bestarm_agent.selectors.ucb_e_lrf import UcbELrf, UcbELrfScoreOnly
from bestarm_agent.selectors.uniform import Uniform

_RULES: tuple[type[Selector], ...] = (
    Auto,
    UcbE,
    TopTwo,
    Racing,
    Pulse,
    NaivePooling,
    SynchronisedSuccessiveRejects,
    SequentialHalving,
    SuccessiveRejects,
    OptMai,
    Sar,
    Lucb,
    UcbELrf,
    UcbELrfScoreOnly,
    Lrf,
    RowMean,
    FilledSubset,
    Uniform,
)

SELECTORS: Final[Mapping[str, type[Selector]]] = MappingProxyType(
    {rule.name: rule for rule in _RULES}
)


def selector_names() -> tuple[str, ...]:
    """Return the names of all selection rules, sorted."""
    return tuple(sorted(SELECTORS))


def selector_params(name: str) -> dict[str, inspect.Parameter]:
    """Return what a rule can be given besides the problem: name, default and annotation of each.

    A rule that passes keywords on (``**model``) takes those of its base class too.

    Raises:
        ValueError: there is no rule of that name; the nearest names are given.
    """
    found: dict[str, inspect.Parameter] = {}
    for rule in _rule(name).__mro__:
        params = inspect.signature(rule, eval_str=True).parameters.values()
        found |= {p.name: p for p in params if p.kind is p.KEYWORD_ONLY and p.name not in found}
        if "__init__" in vars(rule) and not any(p.kind is p.VAR_KEYWORD for p in params):
            break
    return found


def make_selector(name: str, problem: Problem, **params: Any) -> Selector:  # noqa: ANN401
    """Make a selection rule by name.

    Args:
        name: one of ``selector_names()``.
        problem: K, N, seed and the rest.
        params: the rule's own parameters; see its class.

    Raises:
        ValueError: unknown rule, unknown or ill-typed parameter, or a value that the rule refuses.

    Example:
        >>> make_selector("ucb-e", Problem(n_candidates=3, n_examples=10), eta=2.0).eta
        2.0
        >>> make_selector("row_mean", Problem(n_candidates=3, n_examples=10))
        Traceback (most recent call last):
        ValueError: there is no selector 'row_mean'; did you mean `row-mean`?
    """
    rule, known = _rule(name), selector_params(name)
    for key, value in params.items():
        if key not in known:
            raise ValueError(f"selector {name!r} has no parameter {key!r}; {nearest(key, known)}")
        kind = known[key].annotation
        if not _fits(value, kind):
            raise ValueError(
                f"parameter {key!r} of selector {name!r} must be {_spell(kind)}, got {value!r}"
            )
    return rule(problem, **params)


def _rule(name: str) -> type[Selector]:
    if name not in SELECTORS:
        raise ValueError(f"there is no selector {name!r}; {nearest(name, SELECTORS)}")
    return SELECTORS[name]


def _fits(value: object, kind: Any) -> bool:  # noqa: ANN401 - a type or a typing construct
    if get_origin(kind) in (Union, UnionType):
        return any(_fits(value, part) for part in get_args(kind))
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        return isinstance(value, int | float)
    return isinstance(value, kind)


def _spell(kind: Any) -> str:  # noqa: ANN401
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_spell(part) for part in get_args(kind))
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    words = {int: "a whole number", float: "a number", bool: "true or false", NoneType: "null"}
    return words.get(kind, f"of type {kind.__name__}")
