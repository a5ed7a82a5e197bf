"""Why a sitting of a run ends."""

from __future__ import annotations

from enum import StrEnum


class End(StrEnum):
    """Why a sitting ended."""

    SEPARATED = "separated"  # what was asked for is established at the asked confidence
    EXHAUSTED = "exhausted"  # every pair was evaluated
    INDIFFERENT = "indifferent"  # what is left cannot matter
    VERDICT = "verdict"  # a certification has its verdicts
    BUDGET = "budget"  # the budget cannot pay another pair
    INTERRUPTED = "interrupted"  # somebody asked to stop
    FAILURES = "failures"  # too many pairs could not be measured, or nothing can be called
    ERROR = "error"  # an unexpected error
