from __future__ import annotations

import pytest

from bestarm_agent.domain.values import Example, Json, Slice
from bestarm_agent.engine.setup.examples import slices_of
from bestarm_agent.errors import ConfigError


def examples(field: str, *values: Json) -> list[Example]:
    return [Example(f"e{j}", {"question": "q", field: one}) for j, one in enumerate(values)]


def test_a_slice_for_each_value() -> None:
    found = slices_of(examples("language", "de", "en", "de", None, True), ["language"])
    assert found == (
        Slice("language=(none)", (3,)),
        Slice("language=de", (0, 2)),
        Slice("language=en", (1,)),
        Slice("language=true", (4,)),
    )


def test_a_number_written_in_two_ways_is_one_slice() -> None:
    found = slices_of(examples("turns", 1, 1.0, "1", 2.5, 2), ["turns"])
    assert [(one.name, one.examples) for one in found] == [
        ("turns=1", (0, 1, 2)),
        ("turns=2", (4,)),
        ("turns=2.5", (3,)),
    ]


def test_examples_are_in_a_slice_of_each_field_and_a_field_of_one_value_in_none() -> None:
    rows = [Example(f"e{j}", {"a": j % 2, "b": j // 2, "c": "x"}) for j in range(4)]
    found = slices_of(rows, ["a", "b", "c", "a"])
    assert [one.name for one in found] == ["a=0", "a=1", "b=0", "b=1"]
    assert [sum(j in one.examples for one in found) for j in range(4)] == [2] * 4


def test_quarters_by_length_unless_a_field_is_called_so() -> None:
    found = slices_of(examples("text", *("x" * j for j in range(8))), ["length_bucket"])
    assert [(one.name, one.examples) for one in found] == [
        ("length_bucket=1 shortest", (0, 1)),
        ("length_bucket=2", (2, 3)),
        ("length_bucket=3", (4, 5)),
        ("length_bucket=4 longest", (6, 7)),
    ]
    own = slices_of(examples("length_bucket", "a", "b"), ["length_bucket"])
    assert [one.name for one in own] == ["length_bucket=a", "length_bucket=b"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (examples("lang", "de", "en"), "no example has the field `language`; .*`?lang"),
        (examples("language", *map(str, range(51))), "51 different values, at most 50"),
        (examples("language", ["de"]), "holds lists or mappings"),
    ],
)
def test_fields_that_make_no_slices_are_refused(rows: list[Example], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        slices_of(rows, ["language"])
