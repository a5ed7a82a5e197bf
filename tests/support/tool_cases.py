"""The cases of examples/tool-calls: 200 invented requests, each with the calls that are right.

``python -m tests.support.tool_cases`` writes the same dataset every time. A quarter of the requests
needs no call, a quarter two of them, and some are the last turn of a longer conversation.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.support.fake_api.calls import chance

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "tool-calls"
CITIES = ["Paris", "Oslo", "Lima", "Nairobi", "Osaka", "Quito", "Riga", "Tunis"]
DAYS = ["today", "tomorrow", "friday", "sunday"]
PEOPLE = ["Ana", "Bruno", "Chloe", "Deniz"]
CURRENCIES = ["EUR", "USD", "JPY", "GBP"]
CHAT = [
    "Thank you, that is all for {day}.",
    "Which tools do you have, {name}?",
    "Explain in one sentence why {city} is worth a visit.",
    "Write a line of verse about {city}.",
]

T = TypeVar("T")


class Draw:
    """Draws from lists, each time the same."""

    def __init__(self) -> None:
        self._n = 0

    def choice(self, items: Sequence[T]) -> T:
        """Return one of some things."""
        self._n += 1
        return items[int(len(items) * chance("tool cases", self._n))]

    def pair(self, items: Sequence[T]) -> tuple[T, T]:
        """Return two of some things, which differ."""
        first = self.choice(items)
        return first, self.choice([item for item in items if item is not first])


Case = tuple[str, list[dict[str, Any]]]  # a request and the calls that are right


def call(name: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """Return a call as a target holds it."""
    return {"name": name, "arguments": arguments}


def weather(draw: Draw) -> Case:
    """Ask for a forecast."""
    city, day = draw.choice(CITIES), draw.choice(DAYS)
    return f"What is the weather in {city} {day}?", [call("get_weather", city=city, day=day)]


def alarm(draw: Draw) -> Case:
    """Ask to be woken."""
    time = f"{draw.choice(range(5, 10)):02}:{draw.choice(['00', '15', '30'])}"
    return f"Wake me at {time}.", [call("set_alarm", time=time)]


def money(draw: Draw) -> Case:
    """Ask for an amount in another currency."""
    amount, (source, target) = draw.choice(range(2, 901)), draw.pair(CURRENCIES)
    right = call("convert", amount=amount, source=source, target=target)
    return f"How much is {amount} {source} in {target}?", [right]


def message(draw: Draw) -> Case:
    """Ask to tell somebody something."""
    name, day = draw.choice(PEOPLE), draw.choice(DAYS)
    text = f"I arrive {day}"
    return f"Tell {name}: {text}.", [call("send_message", to=name, text=text)]


def two(draw: Draw) -> Case:
    """Ask for two things at once."""
    (one, calls), (other, more) = (make(draw) for make in draw.pair(SINGLE))
    return f"{one} {other}", calls + more


def chat(draw: Draw) -> Case:
    """Say something that needs no tool."""
    words = {"city": draw.choice(CITIES), "day": draw.choice(DAYS), "name": draw.choice(PEOPLE)}
    return draw.choice(CHAT).format(**words), []


SINGLE = [weather, alarm, money, message]


def earlier(number: int, draw: Draw) -> list[dict[str, Any]]:
    """Return an earlier turn of a conversation, with a call and its result."""
    request, (made, *_) = weather(draw)
    function = {"name": made["name"], "arguments": json.dumps(made["arguments"])}
    calls = [{"id": f"call_{number}", "type": "function", "function": function}]
    return [
        {"role": "user", "content": request},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": "18 degrees, dry"},
        {"role": "assistant", "content": "It will be 18 degrees and dry."},
    ]


def cases() -> list[dict[str, Any]]:
    """Return the rows of the dataset."""
    draw, seen = Draw(), set[str]()
    rows: list[dict[str, Any]] = []
    while len(rows) < 200:
        number = len(rows)
        make = [*SINGLE, two, two, chat, chat][number % 8]
        request, calls = make(draw)
        before = earlier(number, draw) if number % 5 == 0 else []
        conversation = [*before, {"role": "user", "content": request}]
        if json.dumps(conversation) in seen:
            request = f"{draw.choice(PEOPLE)} here. {request}"
            conversation[-1]["content"] = request
        if json.dumps(conversation) not in seen:
            seen.add(json.dumps(conversation))
            kind = ["none", "one", "two"][len(calls)]
            rows.append({"conversation": conversation, "kind": kind, "calls": calls or "none"})
    return rows


if __name__ == "__main__":
    lines = [json.dumps(row) for row in cases()]
    (EXAMPLE / "dataset.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
