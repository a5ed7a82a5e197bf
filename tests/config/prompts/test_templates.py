from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment, nodes

from bestarm_agent.config.prompts import MAX_CHARS, CompiledPrompt, check_prompt, prefix_of
from bestarm_agent.domain.values import Example, Json, Message, PromptTemplate
from bestarm_agent.errors import ConfigError


def text(source: str, **inputs: Json) -> str:
    rendered = CompiledPrompt(PromptTemplate("p", source)).render(inputs)
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
        ("{{ 0.1 }} {{ true }}", {}, "0.1 true"),
        ("a{# c #}b\r\n{% raw %}{{ x }}{% endraw %}", {}, "ab\n{{ x }}"),
        ("", {}, ""),
    ],
)
def test_fields_are_filled_in(source: str, inputs: dict[str, Json], expected: str) -> None:
    assert text(source, **inputs) == expected


NESTED: dict[str, Json] = {"b": [True, None, 1.0], "items": [1], "ä": "<'&日"}


@pytest.mark.parametrize(
    ("source", "inputs", "expected"),
    [
        ("{{ o }}", {"o": NESTED}, '{"b": [true, null, 1.0], "items": [1], "ä": "<\'&日"}'),
        (
            "{{ o | tojson }}",
            {"o": NESTED},
            '{"b": [true, null, 1.0], "items": [1], "ä": "<\'&日"}',
        ),
        ("{{ o | tojson(indent=1) }}", {"o": {"b": 1, "a": 2}}, '{\n "b": 1,\n "a": 2\n}'),
        ("{{ o.b | tojson }} {{ none | tojson }}", {"o": NESTED}, "[true, null, 1.0] null"),
        ("{{ xs }}", {"xs": ["x", "it's"]}, '["x", "it\'s"]'),
        ("{{ xs[:1] + ['y'] }}", {"xs": ["x", "z"]}, '["x", "y"]'),
        ("{{ yes }} {{ yes and not no }}", {"yes": True, "no": False}, "true true"),
        ("{{ 'a' ~ yes ~ xs ~ 1 }}", {"yes": True, "xs": ["x"]}, 'atrue["x"]1'),
        ("{{ xs | join(', ') }}", {"xs": [True, ["x"], {"a": 1}]}, 'true, ["x"], {"a": 1}'),
        ("{{ os | join(' ', attribute='items') }}", {"os": [{"items": 1}, {"items": 2}]}, "1 2"),
        ("{{ xs | map('string') | join }}", {"xs": [False, "x"]}, "falsex"),
        (
            "{{ yes | upper }} {{ xs | replace('x', 'y') | trim }}",
            {"yes": True, "xs": ["x"]},
            'TRUE ["y"]',
        ),
        ("{% filter upper %}{{ xs }}{% endfilter %}", {"xs": ["x"]}, '["X"]'),
        ("{{ o | dictsort }}", {"o": {"b": 1, "a": 2}}, '[["a", 2], ["b", 1]]'),
        # a field of an object comes before a method of the same name, unless it is called
        ("{{ o.items }}{{ o['items'] }}", {"o": NESTED}, "[1][1]"),
        ("{{ o.values.get }}", {"o": {"values": {"get": 7}}}, "7"),
        ("{% for k, v in o.items() %}{{ k }}{{ v }}{% endfor %}", {"o": {"items": 1}}, "items1"),
        ("{% for k, v in o | items %}{{ k }}{{ v }}{% endfor %}", {"o": {"items": 1}}, "items1"),
        ("{{ o.get('a') }}{{ o.keys() | list }}", {"o": {"a": 1, "keys": 2}}, '1["a", "keys"]'),
        ("{{ s.strip().upper() }}", {"s": " x "}, "X"),
        ("{% for x in xs %}{{ loop.last }} {% endfor %}", {"xs": "ab"}, "false true "),
        # columns of any name
        ('{{ row["User Question"] }}', {"User Question": "x"}, "x"),
        ("{{ row['a-b'] }} {{ row.q }}", {"a-b": "x", "q": "y"}, "x y"),
        ('{{ row["not"] }}{{ row["日本"] }}', {"not": "x", "日本": "y"}, "xy"),
        ("{{ row | tojson }}", {"q": "x", "n": 1}, '{"q": "x", "n": 1}'),
        ('{{ row["a"] }}', {"row": {"a": "own"}, "a": "other"}, "own"),
    ],
)
def test_data_is_shown_as_it_is(source: str, inputs: dict[str, Json], expected: str) -> None:
    assert text(source, **inputs) == expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "{{ o.items }}",
            "the function or method `items` is no data, and cannot stand",
        ),
        ("{{ o.keys }}!", r"to call it, write `keys\(\)`"),
        ("{{ q.upper }}", "method `upper`"),
        ("{{ [q.upper] }}", "method `upper`"),
        ("{{ 'a' ~ q.upper }}", "method `upper`"),
        ("{{ o.keys() }}", "the value `dict_keys` is no data"),
        ("{{ xs | map('upper') }}", r"write it out by `\| list`"),
        ("{{ range(3) }}", "the value `range` is no data"),
        ("{% macro f() %}x{% endmacro %}{{ f }}", "is no data"),
        ("{% for x in xs %}{{ loop }}{% endfor %}", "`LoopContext` is no data"),
        ("{{ namespace(a=1) }}", "the value `Namespace` is no data"),
        ("{{ [nope] | tojson }}", "there is no field `nope`"),
        ("{{ o.nope }}", "has no attribute 'nope'"),
        ("{{ 'a' ~ none }}", "a value is null"),
        ("{{ [none] | join }}", "a value is null"),
        ('{{ row["Nope"] }}', "there is no field `Nope`"),
    ],
)
def test_what_is_no_data_stands_in_no_prompt(source: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        text(source, o={"a": 1}, q="x", xs=["a"])


def test_columns_named_in_the_row_are_fields() -> None:
    prompt = CompiledPrompt(PromptTemplate("p", '{{ row["User Question"] }} {{ row.b }} {{ c }}'))
    assert prompt.fields == {"User Question", "b", "c", "row"}
    assert prompt.uses(["User Question", "d"]) == {"User Question"}
    assert not prompt.reads_row
    whole = CompiledPrompt(PromptTemplate("p", "{% for k in row %}{{ row[k] }}{% endfor %}"))
    assert whole.uses(["a", "b"]) == {"a", "b"}
    assert CompiledPrompt(PromptTemplate("p", "{{ q }}")).uses(["a"]) == set()


def test_a_name_of_two_words_is_told_how_to_be_written() -> None:
    with pytest.raises(ConfigError, match=r'is written \{\{ row\["its name"\] \}\}'):
        CompiledPrompt(PromptTemplate("p", "{{ User Question }}"))


def test_messages_are_filled_in_one_by_one() -> None:
    template = PromptTemplate(
        "chat", messages=(Message("system", "Be brief."), Message("user", "{{ q }}?"))
    )
    prompt = CompiledPrompt(template)
    assert prompt.fields == {"q"}
    assert prompt.render({"q": "Why"}) == (Message("system", "Be brief."), Message("user", "Why?"))


def test_the_fields_are_those_looked_up() -> None:
    source = "{% set x = a %}{% for b in c.d %}{{ b }}{{ range(2) }}{% endfor %}{{ e['f'] }}"
    assert CompiledPrompt(PromptTemplate("p", source)).fields == {"a", "c", "e"}


@pytest.mark.slow
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
        CompiledPrompt(PromptTemplate("p", source), origin="p.jinja")
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% for i in range(10 ** 9) %}{% endfor %}", "Range too big"),
        (
            "{% for i in range(50) %}{{ 'x' * 100000 }}{% endfor %}",
            f"longer than {MAX_CHARS:,} characters",
        ),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ],
)
def test_what_is_too_large_is_refused(source: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        text(source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ 'a' | center(5) }}|{{ 'a'.ljust(3) }}|", "  a  |a  |"),
        ("{{ '%05.1f %s %%' % (2.25, 'x') }}", "002.2 x %"),
        ("{{ '%s of %s' | format(1, 2) }}", "1 of 2"),
        ("{{ '{:>5}{b}'.format(1, b=12345678901) }}", "    112345678901"),
        ("{{ ', '.join(['a', 'b']) }} {{ [1, 2] | join('-') }}", "a, b 1-2"),
        ("{{ ', '.join(xs | map('string')) }}", "1, 2, 3"),
        ("{{ 'a\nb' | indent(2) }}", "a\n  b"),
        ("{{ xs | batch(2) | map('join', '+') | join(' ') }}", "1+2 3"),
        ("{{ 2.345 | round(2) }} {{ xs | tojson }}", "2.35 [1, 2, 3]"),
        ("{% for x in xs %}{{ loop.index }}/{{ loop.length }} {% endfor %}", "1/3 2/3 3/3 "),
        (
            "{% for x in [[1, [2]], [3]] recursive %}"
            "{{ loop(x) if x is iterable else x }}{% endfor %}",
            "123",
        ),
        (
            "{{ xs + [4] }} {{ 'a' ~ 1 ~ 0.5 }} {{ 7 % 4 }} {{ 'a' * 3 }}",
            "[1, 2, 3, 4] a10.5 3 aaa",
        ),
        ("{% macro f(x, context) %}{{ x }}{{ context }}{% endmacro %}{{ f(1, context=2) }}", "12"),
        (
            "{% call(x) g() %}{{ x }}{% endcall %}".replace(
                "{% call", "{% macro g() %}<{{ caller(1) }}>{% endmacro %}{% call"
            ),
            "<1>",
        ),
    ],
)
def test_templates_within_the_limits_render_as_in_jinja(source: str, expected: str) -> None:
    assert text(source, xs=[1, 2, 3]) == expected


def test_a_long_document_is_within_the_limits() -> None:
    document = "A line of text, of some length.\n" * 50_000  # 1.6 million characters
    source = "{{ d | trim | replace('text', 'prose') | indent(2) }}{{ d[:9] }}"
    assert len(text(source, d=document)) > len(document)


def test_every_render_has_all_its_rounds() -> None:
    prompt = CompiledPrompt(PromptTemplate("p", "{% for i in range(60000) %}{% endfor %}{{ a }}"))
    assert [prompt.render({"a": i}) for i in range(3)] == ["0", "1", "2"]


def test_equal_texts_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    compile_source = Environment.compile

    def counted(self: Environment, source: nodes.Template, *rest: object) -> object:
        compiled.append(source)
        return compile_source(self, source, *rest)  # type: ignore[call-overload] # as it is called

    monkeypatch.setattr(Environment, "compile", counted)
    for name in ("one", "two"):
        prompt = CompiledPrompt(PromptTemplate(name, "compiled once: {{ a }}"))
        assert (prompt.name, prompt.render({"a": name})) == (name, f"compiled once: {name}")
    assert len(compiled) == 1


def test_inputs_are_not_changed() -> None:
    inputs: dict[str, Json] = {"a": [1, 2], "b": {"c": 1}}
    prompt = CompiledPrompt(PromptTemplate("p", "{{ a | sort }}{% set a = 3 %}{{ b }}"))
    prompt.render(inputs)
    assert inputs == {"a": [1, 2], "b": {"c": 1}}


def check(source: str, *inputs: dict[str, Json]) -> None:
    examples = [Example(f"e{i}", fields) for i, fields in enumerate(inputs)]
    check_prompt(CompiledPrompt(PromptTemplate("qa", source), origin="qa.jinja"), examples)


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


LONG = "Be exact. " * 100  # 250 tokens
ROWS = [{"q": "one", "r": "two", "c": True}, {"q": "other", "r": "", "c": False}]


def prefix(template: PromptTemplate, *rows: dict[str, Any], keeps: int = 0) -> tuple[str, ...]:
    examples = [Example(f"e{i}", inputs) for i, inputs in enumerate(rows or ROWS)]
    return prefix_of(CompiledPrompt(template), examples, lambda tokens: tokens >= keeps)


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        ([f"{LONG}{{{{ q }}}}"], (f"{LONG}o",)),
        ([f"{{{{ r }}}}{LONG}{{{{ q }}}}"], ("",)),
        ([LONG, "R: {{ r }}", LONG], (LONG, "R: ")),
        (["a{# c #}b{% raw %}{{{% endraw %}{% if c %}x{% endif %}"], ("ab{{",)),
        ([f"{{% set n = 3 %}}{LONG}{{% for o in r %}}{{{{ o }}}}{{% endfor %}}"], (LONG,)),
        # what is set by a field differs, though it prints nothing
        (["{% set x = r | upper %}a{{ x }}" + LONG], ("a",)),
        (["{{ 2 * 'ab' }}{{ '-' * 3 }} {{ r }}"], ("abab--- ",)),
        ([LONG], (LONG,)),
    ],
)
def test_what_all_examples_begin_with_ends_where_one_differs(
    contents: list[str], expected: tuple[str, ...]
) -> None:
    template = PromptTemplate("p", messages=tuple(Message("user", one) for one in contents))
    assert prefix(template) == expected


def test_what_begins_alike_is_looked_for_in_all_examples_while_a_cache_keeps_it() -> None:
    template = PromptTemplate("p", f"{LONG}{{{{ q }}}}")
    assert prefix(template, {"q": "abc"}, {"q": "abd"}, {"q": "x"}) == (LONG,)
    assert prefix(template, keeps=250) == (f"{LONG}o",)
    assert prefix(template, {"q": ""}, keeps=251) == ()


@pytest.mark.parametrize(
    ("contents", "late"),
    [
        ([f"{LONG}{{{{ q }}}}"], ("q", 0)),
        ([f"{{{{ q }}}}{LONG}{{{{ r }}}}"], ("q", 250)),
        ([LONG, "Q: {{ q }}", LONG], ("q", 250)),
        ([f"{{% for o in r %}}{{{{ o }}}}{{% endfor %}}{{{{- q | upper }}}}{LONG}"], ("q", 250)),
        ([LONG], ("", 0)),
    ],
)
def test_constant_text_after_a_field_is_counted(contents: list[str], late: tuple[str, int]) -> None:
    template = PromptTemplate("p", messages=tuple(Message("user", one) for one in contents))
    assert CompiledPrompt(template).constant_text_after_first_field == late


SHOTS = tuple(Example(f"s{i}", {"q": f"{i}+1"}, str(i + 1)) for i in range(3))


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ({"text": "Add: {{ q }}="}, ("Add: 0+1= 1\n\nAdd: 1+1= 2\n\nAdd: ",)),
        (
            {"messages": (Message("system", "Add."), Message("user", "{{ q }}="))},
            ("Add.", "0+1=", "1", "1+1=", "2", ""),
        ),
        (
            {"text": "{% for one in shots %}{{ one.q }} is {{ one.target }}. {% endfor %}{{ q }}"},
            ("0+1 is 1. 1+1 is 2. ",),
        ),
    ],
)
def test_worked_examples_belong_to_what_all_examples_begin_with(
    template: dict[str, Any], expected: tuple[str, ...]
) -> None:
    prompt = PromptTemplate("p", **template, n_shots=2, shots=SHOTS)
    assert prefix(prompt, {"q": "7+7"}, {"q": "8+8"}) == expected


def test_a_conversation_or_tools_of_the_example_end_what_all_begin_with() -> None:
    talk = (Message("system", LONG), Message("conversation", "{{ talk }}"))
    rows = [{"talk": [{"role": "user", "content": one}]} for one in ("Hi", "What?")]
    assert prefix(PromptTemplate("p", messages=talk), *rows) == (LONG, "")
    tools = PromptTemplate("p", f"{LONG}{{{{ q }}}}", tools=("{{ tools }}",))
    assert prefix(tools, {"q": "a", "tools": []}, {"q": "b", "tools": []}) == ()
