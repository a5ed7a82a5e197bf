from __future__ import annotations

import pytest

from bestarm_agent.errors import ConfigError
from bestarm_agent.selectors.rules.ucb_e import UcbE
from bestarm_agent.selectors.types import Problem
from bestarm_agent.simulation.rule_specs import Contender, parse_contenders


def test_names_options_and_labels() -> None:
    assert parse_contenders("uniform, ucb-e[eta=0.3,flag=true,n=4,word=soft],ucb-e") == (
        Contender("uniform", "uniform"),
        Contender(
            "ucb-e[eta=0.3,flag=true,n=4,word=soft]",
            "ucb-e",
            (("eta", 0.3), ("flag", True), ("n", 4), ("word", "soft")),
        ),
        Contender("ucb-e", "ucb-e"),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "name at least one selector"),
        ("ucb-e,,uniform", "cannot read the selectors .* from ',uniform' on"),
        ("ucb-e[eta=1", r"from '\[eta=1' on|cannot read the selectors"),
        ("ucb-e[eta=1]x", "cannot read the selectors"),
        ("[eta=1]", "cannot read the selectors"),
        ("ucb-e[eta]", "option 'eta' of selector 'ucb-e.eta.' must be written OPTION=VALUE"),
        ("ucb-e,uniform,ucb-e", "selector 'ucb-e' is named twice"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_contenders(text)


def test_a_contender_makes_its_selector() -> None:
    [contender] = parse_contenders("ucb-e[eta=0.25]")
    selector = contender.make(Problem(3, 4)).rule
    assert isinstance(selector, UcbE)
    assert selector.eta == 0.25


def test_only_rules_for_sets_are_told_the_size() -> None:
    [contender] = parse_contenders("ucb-e")
    assert contender.looking_for(3) is contender


def test_unknown_rules_and_options_are_refused_by_the_registry() -> None:
    with pytest.raises(ValueError, match="there is no selector 'ucbe'"):
        parse_contenders("ucbe")[0].looking_for(1)
    with pytest.raises(ValueError, match="no parameter 'beta'"):
        parse_contenders("ucb-e[beta=1]")[0].make(Problem(3, 4))
