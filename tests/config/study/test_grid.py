from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bestarm_agent.config.candidates import expand, explicit_candidate
from bestarm_agent.config.load import study_from
from bestarm_agent.config.study import StudyConfig
from bestarm_agent.domain.values import Candidate, Json, Message, PromptTemplate
from bestarm_agent.errors import ConfigError

PROMPTS = {
    "plain": PromptTemplate("plain", "{{ a }}="),
    "chat": PromptTemplate("chat", messages=(Message("user", "{{ a }}"),)),
}


def study(**sections: Json) -> StudyConfig:
    content: dict[str, Json] = {
        "models": ["hf/models/big", "openai/gpt-x"],
        "prompts": [{"plain": "{{ a }}="}, {"chat": [{"role": "user", "content": "{{ a }}"}]}],
        "dataset": "d.jsonl",
        "scorer": "exact",
    }
    return study_from({**content, **sections}, environ={}).config


def everything(provider: str, model: str) -> None:
    """Say that it is not known what a model takes."""


def grown(
    config: StudyConfig,
    taken: Mapping[str, Sequence[str]] | None = None,
    prompts: Mapping[str, PromptTemplate] = PROMPTS,
) -> tuple[tuple[Candidate, ...], tuple[str, ...]]:
    """Return candidates and notices; ``taken`` lists the parameters that each model takes."""
    if taken is None:
        return expand(config, prompts, everything)
    return expand(config, prompts, lambda provider, model: frozenset(taken[f"{provider}/{model}"]))


def labels(candidates: Sequence[Candidate]) -> list[str]:
    return [candidate.label for candidate in candidates]


def test_the_grid_is_models_by_prompts_by_params_in_the_order_of_the_file() -> None:
    found, notices = grown(study(params={"temperature": [0, 0.5], "max_tokens": 4}))
    assert labels(found) == [
        "big/plain/t=0",
        "big/plain/t=0.5",
        "big/chat/t=0",
        "big/chat/t=0.5",
        "gpt-x/plain/t=0",
        "gpt-x/plain/t=0.5",
        "gpt-x/chat/t=0",
        "gpt-x/chat/t=0.5",
    ]
    first = found[0]
    assert (first.provider, first.model) == ("hf", "models/big")
    assert first.prompt is PROMPTS["plain"]
    assert first.params == {"temperature": 0, "max_tokens": 4}
    assert not notices


@pytest.mark.parametrize(
    ("sections", "prompts", "expected"),
    [
        ({"models": ["hf/a"]}, ("plain", "chat"), ["plain", "chat"]),
        ({"models": ["hf/a", "hf/b"]}, ("plain",), ["a", "b"]),
        ({"models": ["hf/a"], "params": {"top_p": [0.5, 1]}}, ("plain",), ["p=0.5", "p=1"]),
        ({"models": ["hf/a"]}, ("plain",), ["a"]),
        ({"models": ["openai/a", "azure/a"]}, ("plain",), ["openai/a", "azure/a"]),
        ({"models": [{"model": "hf/a", "label": "x"}, "hf/b"]}, ("plain",), ["x", "b"]),
        (
            {"models": ["python/c"], "params": {"planner": ["openai/o9", "azure/eu/s/"]}},
            ("plain",),
            ["planner=o9", "planner=s"],
        ),
        (
            {"models": ["hf/a"], "params": {"effort": [None, "low"], "stop": [["\n"], ["#"]]}},
            ("plain",),
            [r'stop=["\n"]', 'stop=["#"]', r'effort=low/stop=["\n"]', 'effort=low/stop=["#"]'],
        ),
        (
            {"models": ["hf/a"], "params": {"thinking": [{"type": "on", "n": 9}, {"type": "on"}]}},
            ("plain",),
            ["thinking.n=9", "a"],
        ),
        (
            {"models": ["hf/a"], "params": {"thinking": [{"type": "adaptive"}, None]}},
            ("plain",),
            ["thinking.type=adaptive", "a"],
        ),
    ],
)
def test_labels_hold_what_differs(
    sections: dict[str, Json], prompts: tuple[str, ...], expected: list[str]
) -> None:
    found, _ = grown(study(**sections), prompts={name: PROMPTS[name] for name in prompts})
    assert labels(found) == expected


def test_null_leaves_a_parameter_out_and_a_model_overrides_the_study() -> None:
    models = ["hf/a", {"model": "openai/b", "params": {"temperature": None, "effort": [1, 2]}}]
    found, _ = grown(study(models=models, params={"temperature": [0, 1]}))  # type: ignore[arg-type]
    assert [dict(candidate.params) for candidate in found[::2]] == [
        {"temperature": 0},
        {"temperature": 0},
        {"effort": 1},
        {"effort": 1},
    ]
    assert labels(found)[4:6] == ["b/plain/effort=1", "b/plain/effort=2"]


def test_exclusions_take_out_what_matches_all_their_keys() -> None:
    params: Json = {"temperature": [0, 0.5, 1.0]}
    rules: Json = [
        {"model": "big", "temperature": 1.0},
        {"model": "openai/gpt-x", "prompt": "chat", "temperature": [0, 0.5]},
        {"model": "models/big", "prompt": "plain", "temperature": 1},
    ]
    found, _ = grown(study(params=params, exclude=rules))
    assert labels(found) == [
        "big/plain/t=0",
        "big/plain/t=0.5",
        "big/chat/t=0",
        "big/chat/t=0.5",
        "gpt-x/plain/t=0",
        "gpt-x/plain/t=0.5",
        "gpt-x/plain/t=1",
        "gpt-x/chat/t=1",
    ]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"model": "bigg"}, '`exclude[0].model` is "bigg", which the grid does not hold; did you'),
        ({"temperatur": 0}, "`exclude[0].temperatur` is no axis of the grid; did you mean `temp"),
        ({"temperature": 0.7}, "`exclude[0].temperature` is 0.7, which the grid does not hold; d"),
        ({"prompt": "chatt"}, '`exclude[0].prompt` is "chatt", which the grid does not hold; did'),
        ({"model": "big", "effort": 1}, "`exclude[0]` matches nothing: no combination of the gri"),
        ({"prompt": ["plain", "chat"]}, "`exclude` leaves no candidate; take a rule away"),
    ],
)
def test_exclusions_that_cannot_be_meant_are_refused(rule: Json, message: str) -> None:
    models: Json = ["hf/big", {"model": "openai/b", "params": {"effort": 1}}]
    config = study(models=models, params={"temperature": [0, 0.5]}, exclude=[rule])
    with pytest.raises(ConfigError) as caught:
        grown(config)
    assert str(caught.value).startswith(f"the study: {message}")


def test_explicit_candidates_follow_the_grid_and_share_its_single_values() -> None:
    candidates: Json = [
        {"model": "big", "prompt": "plain", "params": {"temperature": 0.7}, "label": "base"},
        {"model": "hf/other", "prompt": "chat", "params": {"max_tokens": None, "stop": ["#"]}},
    ]
    found, _ = grown(study(params={"temperature": [0, 1], "max_tokens": 4}, candidates=candidates))
    assert len(found) == 10
    assert (found[8].label, found[8].params) == ("base", {"temperature": 0.7, "max_tokens": 4})
    assert (found[9].provider, found[9].model, found[9].params) == ("hf", "other", {"stop": ["#"]})
    assert found[9].label == 'other/chat/stop=["#"]'


def test_explicit_candidates_may_replace_the_grid() -> None:
    candidates: Json = [{"model": f"hf/m{i}", "prompt": "plain"} for i in range(3)]
    found, _ = grown(study(models=[], candidates=candidates))
    assert labels(found) == ["m0", "m1", "m2"]


def test_parameters_that_a_model_does_not_take_are_left_out_and_what_is_equal_merged() -> None:
    config = study(params={"temperature": [0, 0.5, 1], "max_tokens": 4, "seed": 1})
    taken = {"hf/models/big": ["temperature", "max_tokens", "seed"], "openai/gpt-x": ["max_tokens"]}
    found, notices = grown(config, taken)
    assert len(found) == 6 + 2
    assert labels(found)[6:] == ["gpt-x/plain", "gpt-x/chat"]
    assert found[6].params == {"max_tokens": 4}
    assert notices == (
        "gpt-x does not take `seed` and `temperature`: 6 combinations are 2 candidates "
        "(gpt-x/plain, gpt-x/chat)",
    )


def test_a_parameter_left_out_without_a_merge_is_told_too() -> None:
    taken = {"hf/models/big": ["temperature"], "openai/gpt-x": list[str]()}
    found, notices = grown(study(params={"temperature": 0}), taken)
    assert len(found) == 4
    assert notices == ("gpt-x does not take `temperature`: left out",)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"params": {"temperatur": 0}},
            "the study: no model takes the parameter `params.temperatur`; did you mean `temperatu",
        ),
        (
            {"models": ["hf/models/big", {"model": "openai/gpt-x", "params": {"top_p": 1}}]},
            "the study: openai/gpt-x does not take the parameter `top_p`; there are `max_tokens`,",
        ),
        (
            {"candidates": [{"model": "big", "prompt": "plain", "params": {"seeed": 1}}]},
            "the study: hf/models/big does not take the parameter `seeed`; did you mean `seed`?",
        ),
        (
            {"candidates": [{"model": "big", "prompt": "plain", "label": "again"}]},
            "the study: candidates `big/plain` and `again` are the same: equal model, prompt text",
        ),
        (
            {"params": {"max_tokens": list(range(1, 60_000))}},
            "the study: the grid has 239,996 combinations, more than 100,000; shorten an axis of",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(sections: dict[str, Json], message: str) -> None:
    taken = {
        "hf/models/big": ["temperature", "max_tokens", "seed"],
        "openai/gpt-x": ["temperature", "max_tokens"],
    }
    with pytest.raises(ConfigError) as caught:
        grown(study(**sections), taken)
    assert str(caught.value).startswith(message)


def test_prompts_with_one_text_are_one_candidate_twice() -> None:
    prompts = {name: PromptTemplate(name, "{{ a }}") for name in ("one", "two")}
    with pytest.raises(ConfigError, match="candidates `big/one` and `big/two` are the same"):
        grown(study(prompts=[{"one": "{{ a }}"}, {"two": "{{ a }}"}]), prompts=prompts)


def test_messages_name_the_line() -> None:
    loaded = study_from(
        {**study().model_dump(mode="json"), "exclude": [{"model": "x"}]}, environ={}
    )
    positions = loaded.positions.__class__("s.yaml", {("exclude", 0, "model"): 12})
    with pytest.raises(ConfigError, match=r"^s\.yaml, line 12: `exclude\[0\]\.model`"):
        expand(loaded.config, PROMPTS, everything, positions)


def test_a_candidate_may_join_with_a_prompt_of_its_own() -> None:
    config = study(params={"temperature": [0, 1], "max_tokens": 4})
    joined = explicit_candidate(config, {"model": "big", "prompt": "plain"}, PROMPTS)
    assert (joined.label, joined.params) == ("big/plain/max=4", {"max_tokens": 4})
    own: Json = {"name": "polite", "messages": [{"role": "user", "content": "Please: {{ a }}"}]}
    joined = explicit_candidate(
        config, {"model": "hf/x", "prompt": own, "params": {"temperature": 0.25}}, PROMPTS
    )
    assert joined.prompt.messages == (Message("user", "Please: {{ a }}"),)
    assert joined.label == "x/polite/max=4/t=0.25"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"prompt": "plain"}, "`model` is missing (label of one of `models`, or `provider/model`)"),
        ({"model": "big", "prompt": "plan"}, 'prompt "plan" is unknown; did you mean `plain`?'),
        ({"model": "bigg", "prompt": "plain"}, 'model "bigg" is unknown; did you mean `big`?'),
        ({"model": "hf/", "prompt": "plain"}, "`model` must be `provider/model`, such as openai/"),
        ({"model": "big", "prompt": {"text": "x"}}, "the study needs a name"),
        ({"model": "big", "prompt": {"file": "x"}}, "`prompt` must hold a `name`, and a `text`"),
        ({"model": "big", "promt": "plain"}, "unknown field `promt`; did you mean `prompt`?"),
    ],
)
def test_a_wrong_newcomer_is_refused(content: dict[str, Json], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        explicit_candidate(study(), content, PROMPTS)
    assert "the new candidate: " in str(caught.value)
    assert message in str(caught.value)


@st.composite
def grids(draw: st.DrawFn) -> dict[str, Any]:
    """A grid that no exclusion thins out, and which of its parameters the first model takes."""
    names = st.sampled_from(["temperature", "top_p", "seed", "effort"])
    axes = draw(
        st.dictionaries(names, st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True))
    )
    return {
        "models": [f"hf/m{i}" for i in range(draw(st.integers(1, 3)))],
        "params": axes,
        "taken": draw(st.sets(names)),
    }


@settings(max_examples=50)
@given(grids())
def test_the_size_of_an_expansion_is_the_product_of_its_axes(case: dict[str, Any]) -> None:
    models, axes, taken = case["models"], case["params"], case["taken"]
    everywhere = frozenset(axes)
    found, notices = expand(
        study(models=models, params=axes),
        PROMPTS,
        lambda _, model: frozenset(taken) if model == "m0" else everywhere,
    )
    full = math.prod(len(values) for values in axes.values())
    first = math.prod(len(values) for name, values in axes.items() if name in taken)
    assert len(found) == len(PROMPTS) * (first + full * (len(models) - 1))
    assert len({candidate.id for candidate in found}) == len(found)
    assert len(set(labels(found))) == len(found)
    assert bool(notices) == (not everywhere <= taken)
