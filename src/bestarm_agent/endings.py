"""Why a sitting of a run ends, and by which rules."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bestarm_agent.domain.spend import Budget
from bestarm_agent.objectives import Aim
from bestarm_agent.roster import Roster
from bestarm_agent.schedule.ledger import Ledger
from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.table import ScoreTable
from bestarm_agent.selectors.types import State

_ENOUGH_TO_JUDGE_FAILURES = 20


class End(StrEnum):
    """Why a sitting ended."""

    SEPARATED = "separated"  # what was asked for is established at the asked confidence
    EXHAUSTED = "exhausted"  # every pair was evaluated
    INDIFFERENT = "indifferent"  # what is left cannot matter
    VERDICT = "verdict"  # a certification has its verdicts
    SERVED = "served"  # every prompt that came to a router was answered
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

    def end(self, seconds: float, budget: Budget, n_told: int, n_void: int) -> End | None:
        """Why nothing more may be asked, though the selector may want to; None if it may.

        Args:
            seconds: wall-clock seconds of the run.
            budget: its caps; all but ``seconds`` are the ledger's concern.
            n_told: pairs told.
            n_void: those of them that this sitting could not measure.
        """
        if budget.seconds is not None and seconds >= budget.seconds:
            return End.BUDGET
        if self.aim is not None and self.aim.is_reached:
            return End.SEPARATED
        if n_told >= _ENOUGH_TO_JUDGE_FAILURES and n_void > self.max_failed_share * n_told:
            return End.FAILURES
        return None

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


def end_of_silence(selector: Selector, roster: Roster, ledger: Ledger, *, put_off: bool) -> End:
    """Why a selector asks for nothing although nothing is in flight.

    Args:
        selector: the rule.
        roster: the candidates.
        ledger: the budget.
        put_off: whether pairs stay pending.
    """
    if (stop := selector.stopped()) is not None:
        return End(stop.value)
    if roster.broken():
        return End.FAILURES
    affordable = roster.affordable(ledger)
    cannot_pay = affordable is not None and not affordable.all()
    return End.BUDGET if put_off or cannot_pay else End.INDIFFERENT
