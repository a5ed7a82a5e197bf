from __future__ import annotations

import pytest

from bestarm_agent.selectors.registry import (
    make_selector,
    selector_class,
    selector_names,
    selector_params,
)
from bestarm_agent.selectors.rules.ucb_e import UcbE
from bestarm_agent.selectors.types import Problem

PROBLEM = Problem(3, 10, budget=20)


@pytest.mark.parametrize("name", selector_names())
def test_every_rule_is_made_by_its_name_with_its_defaults(name: str) -> None:
    selector = make_selector(name, PROBLEM)
    assert type(selector.rule) is selector_class(name)
    assert selector.name == name
    assert len(selector.ask(2)) == 2


def test_parameters_reach_the_rule() -> None:
    selector = make_selector("ucb-e", PROBLEM, eta=3).rule
    assert isinstance(selector, UcbE)
    assert selector.eta == 3


def test_keywords_that_a_rule_passes_on_are_known() -> None:
    known = selector_params("ucb-e-lrf")
    assert {"eta", "batch", "rank", "ridge"} <= set(known)
    make_selector("ucb-e-lrf", PROBLEM, batch=2, ridge=0.1, members=4)
    with pytest.raises(ValueError, match="no parameter 'membres'; did you mean `members`"):
        make_selector("ucb-e-lrf", PROBLEM, membres=4)


def test_a_number_may_be_left_out_where_null_is_allowed() -> None:
    assert make_selector("pulse", PROBLEM, history=None).name == "pulse"


def test_the_parameters_of_a_rule_are_known() -> None:
    params = selector_params("opt-mai")
    assert list(params) == ["top_k", "beta"]
    assert params["top_k"].default == 1
    assert params["top_k"].annotation is int


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("ucbe", {}, "no selector 'ucbe'; did you mean `ucb-e`"),
        ("zzz", {}, "no selector 'zzz'; there are `auto`, `filled-subset`"),
        ("opt-mai", {"topk": 2}, "no parameter 'topk'; did you mean `top_k`"),
        (
            "opt-mai",
            {"top_k": 2.0},
            "'top_k' of selector 'opt-mai' must be a whole number, got 2.0",
        ),
        ("ucb-e", {"common_examples": 1}, "must be true or false, got 1"),
        ("ucb-e", {"etta": 1.0}, "no parameter 'etta'; did you mean `eta`"),
        ("ucb-e", {"eta": "1"}, "'eta' of selector 'ucb-e' must be a number, got '1'"),
        ("ucb-e", {"eta": True}, "must be a number, got True"),
        ("ucb-e", {"eta": -1.0}, "eta must be > 0, got -1.0"),
        ("uniform", {"eta": 1.0}, "no parameter 'eta'; there are none"),
    ],
)
def test_what_does_not_exist_is_refused_with_the_way_out(
    name: str, params: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_selector(name, PROBLEM, **params)
