"""The scorer of calls of tools, by a table of replies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.values import Example, Finish, Json, Reply, tool_call
from bestarm_agent.errors import ConfigError, JudgeError
from bestarm_agent.judges.base import Judge
from bestarm_agent.judges.registry import create_judge
from tests.judges.test_rules import ScoreNow


def weather(city: Json = "Paris", **more: Json) -> dict[str, Json]:
    return {"name": "get_weather", "arguments": {"city": city, **more}}


NOW: dict[str, Json] = {"name": "now"}
PARIS, ROME, OSLO = weather(), weather("Rome"), weather("Oslo")
DAYS: dict[str, Json] = {"name": "f", "arguments": {"days": 3, "at": {"x": [1, 2.0]}}}
SUBSET: dict[str, Any] = {"arguments": "subset"}
ORDERED: dict[str, Any] = {"ordered": True}
LOOSE: dict[str, Any] = {"fields": {"city": "exact"}}
INSIDE: dict[str, Any] = {"fields": {"city": {"name": "contains"}}}
NEAR: dict[str, Any] = {"fields": {"days": {"name": "numeric", "absolute_tolerance": 1}}}
SHARE: dict[str, Any] = {"fields": {"city": "token-f1"}}


def judge(**options: Any) -> Judge:  # noqa: ANN401
    return create_judge("tool-call", options, Catalog())


def said(*calls: Any, text: str = "") -> Reply:  # noqa: ANN401
    made = (tool_call(one["name"], one.get("arguments", {}), "id") for one in calls)
    return Reply(text, tool_calls=tuple(made))


def about(target: Any) -> Example:  # noqa: ANN401
    texts = [one if isinstance(one, str) else json.dumps(one) for one in target]
    return Example("e1", {}, texts[0] if len(texts) == 1 else tuple(texts))


def with_days(days: Json) -> dict[str, Json]:
    return {"name": "f", "arguments": {"days": days, "at": {"x": [1, 2]}}}


@pytest.mark.parametrize(
    ("options", "target", "calls", "score"),
    [
        ({}, PARIS, [PARIS], 1),
        ({}, [PARIS], [PARIS], 1),
        ({}, PARIS, [ROME], 0),
        ({}, PARIS, [{**PARIS, "name": "get_forecast"}], 0),
        ({}, PARIS, [], 0),
        ({}, PARIS, [PARIS, PARIS], 0),
        ({}, {"type": "function", "id": "c1", "function": PARIS}, [PARIS], 1),  # as OpenAI's
        ({}, PARIS, [PARIS, NOW], 0),
        ({}, PARIS, [weather("paris")], 0),
        ({}, PARIS, [weather(unit="C")], 0),
        ({}, weather(unit="C"), [PARIS], 0),
        ({}, PARIS, [{**PARIS, "arguments": "city=Paris"}], 0),
        ({}, PARIS, [{**PARIS, "arguments": '{"city": "Paris"}'}], 1),
        ({}, NOW, [NOW], 1),
        ({}, NOW, [{"name": "now", "arguments": {"zone": "UTC"}}], 0),
        # values of arguments: as JSON, numbers by their value
        ({}, DAYS, [with_days(3)], 1),
        ({}, DAYS, [with_days(3.0)], 1),
        ({}, DAYS, [with_days("3")], 0),
        ({}, weather(True), [weather(1)], 0),
        ({}, weather(["a", "b"]), [weather(["a", "b"])], 1),
        ({}, weather(["a", "b"]), [weather(["b", "a"])], 0),
        ({}, weather(None), [weather(None)], 1),
        # no call is right
        ({}, "none", [], 1),
        ({}, "[]", [], 1),
        ({}, "none", [PARIS], 0),
        # several calls
        ({}, [PARIS, ROME], [PARIS, ROME], 1),
        ({}, [PARIS, ROME], [ROME, PARIS], 1),
        ({}, [PARIS, ROME], [PARIS, PARIS], 0),
        ({}, [PARIS, ROME], [PARIS], 0),
        ({}, [PARIS, PARIS], [PARIS, PARIS], 1),
        ({}, [PARIS, ROME, OSLO, NOW], [NOW, OSLO, PARIS, ROME], 1),
        (ORDERED, [PARIS, ROME], [PARIS, ROME], 1),
        (ORDERED, [PARIS, ROME], [ROME, PARIS], 0),
        # subset
        (SUBSET, PARIS, [weather(unit="C")], 1),
        (SUBSET, weather(unit="C"), [PARIS], 0),
        (SUBSET, NOW, [{"name": "now", "arguments": {"zone": "UTC"}}], 1),
        (SUBSET, [PARIS, weather(unit="C")], [weather(unit="C"), weather(unit="F")], 1),
        # arguments by rules
        (LOOSE, PARIS, [weather("paris.")], 1),
        (LOOSE, PARIS, [weather("Rome")], 0),
        (LOOSE, PARIS, [weather("")], 0),
        (LOOSE, weather(["NYC", "New York"]), [weather("new york")], 1),
        (LOOSE, weather(["NYC", "New York"]), [weather("Boston")], 0),
        (LOOSE, DAYS, [with_days(3)], 1),
        (INSIDE, PARIS, [weather("Paris, France")], 1),
        (NEAR, DAYS, [with_days(4)], 1),
        (NEAR, DAYS, [with_days("about 4")], 1),
        (NEAR, DAYS, [with_days("soon")], 0),
        (SHARE, weather("New York City"), [weather("New York")], 0.8),
        (SHARE, [weather("New York City"), PARIS], [PARIS, weather("New York")], 0.8),
    ],
)
def test_calls_are_compared_with_the_target(
    score_now: ScoreNow, options: dict[str, Any], target: Json, calls: list[Any], score: float
) -> None:
    scorer, example = judge(**options), about([target])
    scorer.check(example)
    assert score_now(scorer, example, said(*calls)).value == pytest.approx(score)


def test_one_of_several_targets_is_enough(score_now: ScoreNow) -> None:
    example = about([PARIS, [PARIS, NOW], "none"])
    for calls, value in (([PARIS], 1), ([NOW, PARIS], 1), ([], 1), ([NOW], 0)):
        assert score_now(judge(), example, said(*calls)).value == value


def test_the_calls_are_what_was_read_and_text_is_no_call(score_now: ScoreNow) -> None:
    assert score_now(judge(), about([PARIS]), said(PARIS, text="Now:")).answer == (
        'get_weather(city="Paris")'
    )
    written = score_now(judge(), about([PARIS]), Reply('get_weather(city="Paris")'))
    assert (written.value, written.answer) == (0, "none")


def test_a_refusal_is_the_candidates_failure(score_now: ScoreNow) -> None:
    with pytest.raises(JudgeError, match="refused"):
        score_now(judge(), about(["none"]), Reply("No.", Finish.REFUSAL))


@pytest.mark.parametrize(
    ("options", "target", "complaint"),
    [
        ({}, "Paris", "cannot read the target 'Paris': must be a list of"),
        ({}, "[1]", "must be a list of objects"),
        ({}, {"city": "Paris"}, "call 1: `name` is missing"),
        ({}, {"name": "f", "args": {}}, "unknown field `args`"),
        ({}, [PARIS, {"name": "f", "arguments": 5}], "call 2: `arguments` must be a mapping"),
        ({}, {"name": ""}, "`name` must not be empty"),
        (NEAR, with_days("soon"), "cannot compare with reference 'soon'"),
        (LOOSE, weather(" "), "it is blank"),
    ],
)
def test_a_target_that_cannot_be_read_is_found_before_any_call(
    options: dict[str, Any], target: Json, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        judge(**options).check(about([target]))
    assert "example `e1`" in str(caught.value)


def test_an_example_needs_a_target() -> None:
    with pytest.raises(ConfigError, match="has no reference answer"):
        judge().check(Example("e1", {}))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"arguments": "some"}, "`arguments` must be 'exact' or 'subset'"),
        ({"fields": {"city": "recorded"}}, "`fields.city` must be a rule"),
        ({"fields": {"city": "exakt"}}, "exact"),
        ({"fields": {"city": {"name": "exact", "words": 1}}}, "words"),
        ({"order": True}, "unknown"),
    ],
)
def test_options_are_checked(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        judge(**options)


def test_options_decide_the_digest() -> None:
    others = (SUBSET, ORDERED, LOOSE, INSIDE)
    digests = {judge(**options).digest for options in ({}, *others)}
    assert len(digests) == 5
    assert judge(arguments="exact").digest == judge().digest


@pytest.mark.parametrize("given", [None, "null", "", "{}", {}])
def test_a_call_without_arguments_is_written_in_many_ways(score_now: ScoreNow, given: Json) -> None:
    judge = create_judge("tool-call", {}, Catalog())
    reply = Reply("", tool_calls=(tool_call("now", given),))
    assert score_now(judge, Example("1", {}, json.dumps([NOW])), reply).value == 1.0
