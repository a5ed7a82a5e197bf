from __future__ import annotations

import pytest

from bestarm_agent.domain.candidate import PromptTemplate
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.example import Example
from bestarm_agent.errors import ConfigError
from bestarm_agent.prompts.checking import check_prompt
from bestarm_agent.prompts.rendering import compile_prompt


def check(source: str, *inputs: dict[str, Json]) -> None:
    examples = [Example(f"e{i}", fields) for i, fields in enumerate(inputs)]
    check_prompt(compile_prompt(PromptTemplate("qa", source), origin="qa.jinja"), examples)


def test_a_prompt_that_can_be_filled_in_passes() -> None:
    check("{{ question }}", {"question": "x", "id": 1}, {"question": "y"})
    check("{% if context is defined %}{{ context }}{% endif %}{{ q }}", {"q": "x"})
    check("{{ context or '' }}", {"context": None}, {"context": "x"})


def test_a_field_that_no_example_has_is_named_with_the_nearest() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^prompt `qa` \(qa\.jinja\): no example has the field `qestion`; did you mean "
        r"`question`\?$",
    ):
        check("{{ qestion }}", {"question": "x"}, {"question": "y", "answer": "z"})


def test_a_field_that_some_example_lacks_is_named_with_it() -> None:
    with pytest.raises(
        ConfigError, match=r"there is no field `context`; there are `q` \(example `e2`\)$"
    ):
        check("{{ context }}{{ q }}", {"q": 1, "context": 1}, {"q": 1, "context": 2}, {"q": 1})


def test_a_null_that_would_be_printed_is_found() -> None:
    with pytest.raises(ConfigError, match=r"a value is null.*\(example `e1`\)$"):
        check("{{ q }}", {"q": "x"}, {"q": None})
