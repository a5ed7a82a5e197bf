from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bestarm_agent.domain.candidate import Message, PromptTemplate
from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import ConfigError
from bestarm_agent.prompts.rendering import MOST_CHARS, compile_prompt


def text(source: str, **inputs: Json) -> str:
    rendered = compile_prompt(PromptTemplate("p", source)).render(inputs)
    assert isinstance(rendered, str)
    return rendered


@pytest.mark.parametrize(
    ("source", "inputs", "expected"),
    [
        ("{{ a }}+{{ b }}=", {"a": 12, "b": 34}, "12+34="),
        ("Q: {{ q }}\nA:", {"q": "x"}, "Q: x\nA:"),
        ("{{ q }}\n", {"q": "x"}, "x\n"),
        ("{{ q }}", {"q": "<b> & 'c'"}, "<b> & 'c'"),
        ("{{ q }}", {"q": "{{ a }} {% raw"}, "{{ a }} {% raw"),
        ("{{ q | upper }}", {"q": "x"}, "X"),
        ("{{ q.strip() }}", {"q": " x "}, "x"),
        ("{% for o in options %}{{ loop.index }}{{ o }} {% endfor %}", {"options": "ab"}, "1a 2b "),
        ("{% for i in range(3) %}{{ i }}{% endfor %}", {}, "012"),
        ("{% if c is defined %}{{ c }}{% endif %}x", {}, "x"),
        ("{{ c or '' }}x", {"c": None}, "x"),
        ("{{ r.name }}", {"r": {"name": "x"}}, "x"),
        ("{{ '-' * 3 }}{{ 2 ** 10 }}", {}, "---1024"),
        ("{% set ns = namespace(n=0) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}", {}, "1"),
        ("{{ self_ }}", {"self_": "x", "self": "y"}, "x"),
        ("{{ 0.1 }} {{ true }}", {}, "0.1 True"),
        ("a{# c #}b\r\n{% raw %}{{ x }}{% endraw %}", {}, "ab\n{{ x }}"),
        ("", {}, ""),
    ],
)
def test_fields_are_filled_in(source: str, inputs: dict[str, Json], expected: str) -> None:
    assert text(source, **inputs) == expected


def test_messages_are_filled_in_one_by_one() -> None:
    template = PromptTemplate(
        "chat", messages=(Message("system", "Be brief."), Message("user", "{{ q }}?"))
    )
    prompt = compile_prompt(template)
    assert prompt.fields == {"q"}
    assert prompt.render({"q": "Why"}) == (Message("system", "Be brief."), Message("user", "Why?"))


def test_the_fields_are_those_looked_up() -> None:
    source = "{% set x = a %}{% for b in c.d %}{{ b }}{{ range(2) }}{% endfor %}{{ e['f'] }}"
    assert compile_prompt(PromptTemplate("p", source)).fields == {"a", "c", "e"}


@settings(derandomize=True, deadline=None)
@given(st.text(st.characters(exclude_characters="{}#%\r")), st.text())
def test_any_text_passes_through_unchanged(plain: str, value: str) -> None:
    assert text(plain) == plain
    assert text(f"{plain}{{{{ v }}}}", v=value) == plain + value


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a\n{{ b", r"^prompt `p` \(p\.jinja\), line 2 of the template: unexpected end of temp"),
        ("{% if x %}", r"line 1 of the template: Unexpected end of template"),
        ("\n\n{{ x | nope }}", r"line 3 of the template: No filter named 'nope'"),
        ("{{ x | random }}", r"line 1 of the template: No filter named 'random'"),
        ("{% include 'x' %}", r"line 1 of the template: a template stands alone; write it out"),
        ("\n{% import 'x' as y %}", r"line 2 of the template: a template stands alone"),
        ("{% extends 'x' %}", r"line 1 of the template: a template stands alone"),
        ("{% for a in b %}" * 25 + "{% endfor %}" * 25, "nested too deeply"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "nested too deeply"),
    ],
)
def test_syntax_errors_name_prompt_file_and_line(source: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        compile_prompt(PromptTemplate("p", source), origin="p.jinja")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "inputs", "message"),
    [
        (
            "a\n{{ contxt }}",
            {"context": "x"},
            r"^prompt `p`, line 2 of the template: there is no field `contxt`; did you mean "
            r"`context`\?$",
        ),
        ("{{ r.b }}", {"r": {"a": 1}}, "'dict object' has no attribute 'b'$"),
        ("{{ a }}", {"a": None}, r"a value is null; write \{\{ field or '' \}\} if it may be"),
        ("{{ a + b }}", {"a": 1, "b": "x"}, "line 1 of the template: unsupported operand"),
        ("{{ 1 / a }}", {"a": 0}, "line 1 of the template: division by zero"),
        ("{{ a.__class__.__mro__ }}", {"a": 1}, "access to attribute '__class__' of 'int' obj"),
        ("{{ a.append(1) }}", {"a": []}, "access to attribute 'append' of 'list' object is unsafe"),
        ("{{ lipsum() }}", {}, "there is no field `lipsum`; there are none"),
    ],
)
def test_what_fails_on_an_example_names_prompt_and_line(
    source: str, inputs: dict[str, Json], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        text(source, **inputs)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% for i in range(10 ** 9) %}{% endfor %}", "loops over more than 100,000 numbers"),
        (
            "{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}",
            "loops over more than 100,000 numbers",
        ),
        ("{% for i in range(10 ** 40) %}{% endfor %}", "too large to convert"),
        ("{{ 'x' * 10 ** 9 }}", r"`\*` makes something too large"),
        ("{{ 10 ** 9 * 'x' }}", r"`\*` makes something too large"),
        ("{{ [1] * 10 ** 9 }}", r"`\*` makes something too large"),
        ("{{ 10 ** (10 ** 9) }}", r"`\*\*` makes something too large"),
        (
            "{% for i in range(50) %}{{ 'x' * 100000 }}{% endfor %}",
            f"longer than {MOST_CHARS:,} characters",
        ),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ],
)
def test_what_runs_away_is_stopped(source: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        text(source)


def test_every_render_has_all_its_rounds() -> None:
    prompt = compile_prompt(PromptTemplate("p", "{% for i in range(60000) %}{% endfor %}{{ a }}"))
    assert [prompt.render({"a": i}) for i in range(3)] == ["0", "1", "2"]


def test_inputs_are_not_changed() -> None:
    inputs: dict[str, Json] = {"a": [1, 2], "b": {"c": 1}}
    prompt = compile_prompt(PromptTemplate("p", "{{ a | sort }}{% set a = 3 %}{{ b }}"))
    prompt.render(inputs)
    assert inputs == {"a": [1, 2], "b": {"c": 1}}
