from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.config.yaml import YamlProblem, parse_yaml


def test_every_key_and_item_has_its_line() -> None:
    value, lines = parse_yaml("a: 1\n\nb:\n  - x\n  - c: [y,\n       z]\n")
    assert value == {"a": 1, "b": ["x", {"c": ["y", "z"]}]}
    assert lines == {
        ("a",): 1,
        ("b",): 3,
        ("b", 0): 4,
        ("b", 1): 5,
        ("b", 1, "c"): 5,
        ("b", 1, "c", 0): 5,
        ("b", 1, "c", 1): 6,
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("1e-3", 0.001),
        ("-.5", -0.5),
        *(("010", "010"), ("-007", "-007"), ("00.5", "00.5"), ("0", 0), ("-0.5", -0.5)),
        ("0x1F", 31),
        ("0o17", 15),
        ("+3", 3),
        ("1_000", "1_000"),
        ("true", True),
        ("~", None),
        ("'5'", "5"),
        ("!!str 5", "5"),
        ("<<", "<<"),
        ("$5", "$5"),
        ("10%", "10%"),
        ("é", "é"),
    ],
)
def test_scalars_are_read_as_yaml_1_2_reads_them(text: str, value: object) -> None:
    read = parse_yaml(f"k: {text}")[0]
    assert isinstance(read, dict)
    assert read == {"k": value}
    assert type(read["k"]) is type(value)


def test_merges_let_the_own_key_win_then_the_first_mapping_named() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {x: 2, z: 2}\nc:\n  <<: [*a, *b]\n  y: 3\n"
    value, lines = parse_yaml(text)
    assert isinstance(value, dict)
    assert value["c"] == {"x": 1, "y": 3, "z": 2}
    assert lines["c", "x"] == 1
    assert lines["c", "z"] == 2
    assert lines["c", "y"] == 5


BOMB = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 10)}]\n"
    for old, new in zip("abcde", "bcdef", strict=True)
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 'x\nb: 2\n", 1, "the quote that opens here is never closed"),
        ('a: 1\nb: "x\n', 2, "the quote that opens here is never closed"),
        ("a:\n\t- b\n", 2, "indent with spaces, not with tabs"),
        ("a: b: c\n", 1, "a `:` is not expected here; put quotes around"),
        ("a:\n  b: 1\n c: 2\n", 3, "found a key that is indented differently in the mapping"),
        ("a: [1, 2\nb: 3\n", 2, "close every bracket that is opened"),
        ("{a: 1", 1, "expected ',' or '}', but got the end of the file"),
        ("- p: {{ a }}+{{ b }}=\n", 1, 'put quotes around a template: "{{ a }}"'),
        ("p: {{ a }}\n", 1, 'put quotes around a template: "{{ a }}"'),
        ("a: @x\n", 1, "put quotes around the text"),
        ("a: *x\n", 1, "found undefined alias 'x'"),
        ("a: 1\n---\nb: 2\n", 2, "found a second one after `---`"),
        ("a: 1\nb:\n  c: 2\n  c: 3\n", 4, "key `c` is written twice, first on line 3"),
        ("1: x\n", 1, "the key 1 is not a text; put it in quotes"),
        ("a: !!python/object:os.system x\n", 1, "python/object:os.system` is not supported"),
        ("a: !!set {b}\n", 1, "is not supported; leave it out"),
        ("<<: 3\n", 1, "`<<` merges mappings"),
        ("a: &x [*x]\n", 1, "stands inside its own anchor"),
        ("a: &x {<<: *x}\n", 1, "stands inside its own anchor"),
        (BOMB, 1, "expand to more than 200,000 values"),
        (f"a: {'9' * 5000}\n", 1, "too many digits"),
        ("a: 1\nb: \x00\n", 2, "special characters are not allowed"),
        (
            "a:\n" + "\n".join(f"{' ' * i}a:" for i in range(1, 60)),
            51,
            "nested deeper than 50 levels",
        ),
        ("[" * 5000, 1, "nested deeper than 50 levels"),
    ],
)
def test_malformed_text_is_explained(text: str, line: int | None, message: str) -> None:
    with pytest.raises(YamlProblem) as caught:
        parse_yaml(text)
    assert caught.value.line == line
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def refusal(text: str) -> YamlProblem | None:
    try:
        parse_yaml(text)
    except YamlProblem as problem:
        return problem
    return None


@given(st.text(alphabet="ab:-{}[]&*!|>'\"#%@\t \n0.", max_size=40))
def test_any_text_is_read_or_refused_at_one_of_its_lines(text: str) -> None:
    problem = refusal(text)
    if problem is not None and problem.line is not None:
        assert 1 <= problem.line <= text.count("\n") + 1
