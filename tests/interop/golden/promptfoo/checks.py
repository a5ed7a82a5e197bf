"""Checks as promptfoo calls them."""

from __future__ import annotations

from typing import Any


def get_assert(output: str, context: dict[str, Any]) -> bool:
    return context["vars"]["said"] in output


def is_rome(output: str, context: dict[str, Any]) -> bool:
    return output == "Rome"


def share(output: str, context: dict[str, Any]) -> float:
    return sum(letter.islower() for letter in output) / len(output)


def graded(output: str, context: dict[str, Any]) -> dict[str, Any]:
    return {"pass": "d" in output, "score": 0.75, "reason": "looked for a letter"}
