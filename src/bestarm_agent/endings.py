"""Why a sitting of a run ends, and by which rules."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bestarm_agent.objectives import Aim
from bestarm_agent.selectors.table import ScoreTable
from bestarm_agent.selectors.types import State


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


_RUN_OUT = (End.EXHAUSTED, End.INDIFFERENT, End.BUDGET)


@dataclass(frozen=True, slots=True)
class Rules:
    """How a run treats failures, and what it aims at.

    Attributes:
        failed_score: score of a pair on which the candidate itself failed, in [0, 1].
        max_failed_share: share of void pairs, in [0, 1], above which the run stops.
        aim: an objective that depends on prices; None: the best candidate.
    """

    failed_score: float = 0.0
    max_failed_share: float = 0.5
    aim: Aim | None = None

    def reviewed(self, end: End, table: ScoreTable) -> End:
        """Name the end failures if too few pairs could be measured, however short the run was.

        What was established in spite of them is: intervals were widened by what is missing.

        Args:
            end: why nothing more is asked.
            table: all pairs of the run.
        """
        n_void = int(table.count(State.VOID).sum())
        n_told = table.n_asked - int(table.count(State.PENDING).sum())
        if n_void and n_void == n_told:
            return End.FAILURES if end is not End.INTERRUPTED else end
        if end in _RUN_OUT and n_void > self.max_failed_share * n_told:
            return End.FAILURES
        return end
