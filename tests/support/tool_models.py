"""Models that call tools, each right about a planted share of the cases of examples/tool-calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.fake_api import Call, Said
from tests.support.fake_api.calls import chance
from tests.support.tool_cases import cases

# share of right answers by model: with the bare prompt, and with the careful one
SHARES = {"gpt-6-luna": (0.5, 0.6), "gpt-6-sol": (0.7, 0.9), "claude-haiku-5-5": (0.65, 0.7)}


TARGETS = {
    (len(row["conversation"]), row["conversation"][-1]["content"]): row["calls"] for row in cases()
}


def answer(call: Call) -> Said:
    """Call the right tools, or err in one of four ways."""
    talk = [turn for role, turn in call.messages if role != "system"]
    calls = TARGETS[5 if len(talk) > 1 else 1, call.question]
    right = [(one["name"], one["arguments"]) for one in calls] if calls != "none" else []
    share = SHARES[call.model]["Call a tool only" in call.prompt]
    if chance(call.model, call.question, "errs") < share:
        return Said("" if right else "Gladly.", calls=tuple(right))
    way = int(4 * chance(call.model, call.question, "way")) if right else 0
    return Said("", calls=tuple(_wrong(right, way)))


def _wrong(right: list[tuple[str, Mapping[str, Any]]], way: int) -> list[tuple[str, Any]]:
    if way == 0:  # one call too many
        return [*right, ("get_weather", {"city": "Paris", "day": "today"})]
    if way == 1:  # one too few
        return [*right[1:]]
    (name, arguments), *others = right
    first = next(iter(arguments))
    changed = {**arguments, first: "Atlantis"} if way == 2 else {**arguments, "unit": "metric"}
    return [(name, changed), *others]
