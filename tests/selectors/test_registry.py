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
    assert selector.rule.name == name
    assert len(selector.ask(2)) == 2


def test_parameters_are_known_and_reach_the_rule() -> None:
    selector = make_selector("ucb-e", PROBLEM, eta=3).rule
    assert isinstance(selector, UcbE)
    assert selector.eta == 3
    params = selector_params("opt-mai")
    assert list(params) == ["top_k", "beta"]
    assert (params["top_k"].default, params["top_k"].annotation) == (1, int)
    assert {"eta", "batch", "rank"} <= set(selector_params("ucb-e-lrf"))  # keywords of a rule
    make_selector("ucb-e-lrf", PROBLEM, batch=2, rank=2, members=4)
    assert make_selector("pulse", PROBLEM, history=None).rule.name == "pulse"


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("ucbe", {}, "no selector 'ucbe'; did you mean `ucb-e`"),
        ("zzz", {}, "no selector 'zzz'; there are `auto`, `opt-mai`"),
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
        ("ucb-e", {"eta": 0.0}, "eta must be > 0, got 0.0"),
        ("ucb-e", {"eta": float("nan")}, "eta must be > 0, got nan"),
        ("ucb-e", {"batch": 0}, "batch must be at least 1, got 0"),
        ("ucb-e-lrf", {"eta": 0.0}, "eta must be > 0, got 0.0"),
        ("ucb-e-lrf", {"warm_up": 1.0}, r"warm_up must be in \[0, 1\), got 1.0"),
        ("ucb-e-lrf", {"batch": 0}, "batch must be at least 1, got 0"),
        ("ucb-e-lrf", {"members": 1}, "members must be >= 2, got 1"),
        ("ucb-e-lrf", {"rank": 0}, "rank must be >= 1, got 0"),
        ("ucb-e-lrf", {"drop": 1.0}, r"drop must be in \[0, 1\), got 1.0"),
        ("pulse", {"a": 0.0}, "a must be > 0, got 0.0"),
        ("pulse", {"tau": 0}, "tau must be at least 1 step, got 0"),
        ("pulse", {"batch": 0}, "batch must be at least 1, got 0"),
        ("opt-mai", {"beta": 0.75}, r"beta must be in \(0.75, 1\), got 0.75"),
        ("opt-mai", {"beta": 1.0}, r"beta must be in \(0.75, 1\), got 1.0"),
        ("opt-mai", {"top_k": 0}, "top_k must be >= 1, got 0"),
        ("opt-mai", {"top_k": 9}, "top_k is 9, and there are 3 candidates: nothing is to be found"),
        ("auto", {"top_k": 2}, "selector 'auto' has no parameter 'top_k'"),
        ("ucb-e-lrf", {"membres": 4}, "no parameter 'membres'; did you mean `members`"),
    ],
)
def test_what_does_not_exist_is_refused_with_the_way_out(
    name: str, params: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_selector(name, PROBLEM, **params)


@pytest.mark.parametrize("name", ["opt-mai", "sysrs"])
def test_a_rule_that_plans_names_the_way_out_without_a_budget(name: str) -> None:
    with pytest.raises(ValueError, match=rf"'{name}'.*`budget` is not given; set it"):
        make_selector(name, Problem(4, 10))
