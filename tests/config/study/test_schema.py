from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bestarm_agent.config.candidates import Combination, label_all
from bestarm_agent.config.input_specs import ModelSpec, PromptSpec, model_labels
from bestarm_agent.config.load import study_from
from bestarm_agent.config.study import BudgetSpec
from bestarm_agent.domain.spend import Budget
from bestarm_agent.errors import ConfigError


def test_caps_are_converted_to_the_units_of_the_ledger() -> None:
    spec = BudgetSpec(usd=0.25, calls=9, tokens=8, minutes=1.5, gpu_minutes=2)
    assert spec.caps(cells=10) == Budget(
        usd_nanos=250_000_000, calls=9, tokens=8, seconds=90, gpu_seconds=120
    )
    assert BudgetSpec().caps(cells=10) == Budget()


@pytest.mark.parametrize(
    ("share", "answers", "cells", "expected"),
    [
        (0.1, None, 30_000, 3000),
        (0.29, None, 100, 29),  # 0.29 * 100 is 28.999... in binary
        (0.001, None, 10, 1),
        (1.0, None, 7, 7),
        (0.5, 3, 100, 3),
        (0.5, 80, 100, 50),
        (None, 80, 100, 80),
    ],
)
def test_a_share_becomes_pulls(
    share: float | None, answers: int | None, cells: int, expected: int
) -> None:
    assert BudgetSpec(share=share, answers=answers).caps(cells).answers == expected


@given(st.integers(1, 1000), st.integers(1, 10**7))
def test_a_share_is_never_exceeded_by_a_pair(permille: int, cells: int) -> None:
    answers = BudgetSpec(share=permille / 1000).caps(cells).answers
    assert answers == max(1, math.floor(Fraction(permille, 1000) * cells))


@pytest.mark.parametrize("value", ["$5", "5", "5 USD", " $ 5.0 ", 5, 5.0])
def test_dollars_may_be_written_as_people_write_them(value: object) -> None:
    assert BudgetSpec.model_validate({"usd": value}).usd == 5


@pytest.mark.parametrize("value", ["10%", "10 %", "0.1", ".1", 0.1])
def test_shares_may_be_written_as_people_write_them(value: object) -> None:
    assert BudgetSpec.model_validate({"share": value}).share == 0.1


@pytest.mark.parametrize("value", ["5 EUR", "-5", "1,000", "", "1e3"])
def test_other_amounts_are_refused(value: str) -> None:
    with pytest.raises(ValidationError, match="must be an amount of dollars"):
        BudgetSpec.model_validate({"usd": value})


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^the study: the study has nothing to compare; give"):
        study_from({"dataset": "d", "scorer": "exact"})


def test_whole_numbers_are_one_with_and_without_a_point() -> None:
    spec = ModelSpec(model="hf/a", params={"t": [1.0, 0.5], "nested": {"x": [2.0]}, "b": True})
    assert spec.params == {"t": [1, 0.5], "nested": {"x": [2]}, "b": True}
    assert isinstance(spec.params["t"], list)
    assert isinstance(spec.params["t"][0], int)
    with pytest.raises(ValidationError, match="must be finite, got nan"):
        ModelSpec(model="hf/a", params={"t": [math.nan]})


def test_models_are_called_by_the_shortest_ending_that_tells_them_apart() -> None:
    names = ["hf/a/x", "hf/b/x", "openai/y", "azure/y", "hf/deep/folder/z/"]
    labels = model_labels([ModelSpec(model=name) for name in names])
    assert labels == ("a/x", "b/x", "openai/y", "azure/y", "z")


@pytest.mark.parametrize(
    ("written", "label", "is_glob"),
    [
        ("qa", "qa", False),
        ("file://p/qa.jinja", "qa", False),
        ("file://p/*.jinja", None, True),
        ({"short": "{{ q }}"}, "short", False),
        ({"short": "file://p/x.txt"}, "short", False),
        ({"name": "chat", "messages": [{"role": "user", "content": "{{ q }}"}]}, "chat", False),
        ({"catalog": "qa", "name": "other"}, "other", False),
    ],
)
def test_prompts_know_their_names(written: object, label: str | None, is_glob: bool) -> None:
    spec = PromptSpec.model_validate(written)
    assert (spec.label, spec.is_glob) == (label, is_glob)
    assert PromptSpec.model_validate(spec.model_dump()) == spec


def test_labels_that_would_be_alike_get_a_digest() -> None:
    def combination(model: str, prompt: str, label: str | None = None) -> Combination:
        return Combination(ModelSpec(model=f"hf/{model}"), model, prompt, {}, {}, label)

    found = label_all(
        [combination("a", "b/c"), combination("a/b", "c"), combination("x", "y", "a/b/c")]
    )
    assert found[2] == "a/b/c"
    assert found[0].startswith("a/b/c#")
    assert found[1].startswith("a/b/c#")
    assert len(set(found)) == 3


def test_values_too_long_for_a_label_are_digested() -> None:
    combinations = [
        Combination(ModelSpec(model="hf/a"), "a", "p", {"stop": stop}, {})
        for stop in ("x" * 30, "\n", "/", "short", "a/b")
    ]
    labels = label_all(combinations)
    assert labels[3:] == ["stop=short", "stop=b"], "of a path, the last part is kept"
    assert all(len(label) == len("stop=") + 6 for label in labels[:3])
