from __future__ import annotations

import pytest

from bestarm_agent.selectors.registry import (
    SELECTORS,
    make_selector,
    selector_names,
    selector_params,
)
from bestarm_agent.selectors.types import Problem
from bestarm_agent.selectors.ucb_e import UcbE

PROBLEM = Problem(3, 10, budget=20)


@pytest.mark.parametrize("name", selector_names())
def test_every_rule_is_made_by_its_name_with_its_defaults(name: str) -> None:
    selector = make_selector(name, PROBLEM)
    assert type(selector) is SELECTORS[name]
    assert selector.name == name
    assert len(selector.ask(2)) == 2


def test_parameters_reach_the_rule() -> None:
    selector = make_selector("ucb-e", PROBLEM, eta=3)
    assert isinstance(selector, UcbE)
    assert selector.eta == 3


def test_the_parameters_of_a_rule_are_known() -> None:
    params = selector_params("ucb-e")
    assert list(params) == ["eta"]
    assert params["eta"].default == 1.0


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("ucb", {}, "no selector 'ucb'; did you mean `ucb-e`"),
        ("zzz", {}, "no selector 'zzz'; there are `filled-subset`"),
        ("ucb-e", {"etta": 1.0}, "no parameter 'etta'; did you mean `eta`"),
        ("ucb-e", {"eta": "1"}, "'eta' of selector 'ucb-e' must be a number, got '1'"),
        ("ucb-e", {"eta": True}, "must be a number, got True"),
        ("ucb-e", {"eta": -1.0}, "eta must be > 0, got -1.0"),
        ("row-mean", {"eta": 1.0}, "no parameter 'eta'; there are none"),
    ],
)
def test_what_does_not_exist_is_refused_with_the_way_out(
    name: str, params: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_selector(name, PROBLEM, **params)
