"""Reasons for a run to end, and the rules that decide."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bestarm_agent.domain.spend import Budget
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.results.objectives import ObjectiveTracker
from bestarm_agent.engine.run.candidate_pool import CandidatePool
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import BoolArray, State

_ENOUGH_TO_JUDGE_FAILURES = 20


class End(StrEnum):
    """The reason why a run ended."""

    SEPARATED = "separated"  # the answer is established at the confidence asked for
    EXHAUSTED = "exhausted"  # every pair that may be asked was evaluated
    INDIFFERENT = "indifferent"  # what is left cannot matter
    WITHIN = "within"  # the answer is shown to be good enough
    VERDICT = "verdict"  # a certification has its verdicts
    SERVED = "served"  # a router answered every prompt
    BUDGET = "budget"  # the budget cannot pay another pair
    INTERRUPTED = "interrupted"  # the user asked to stop
    FAILURES = "failures"  # too many pairs could not be measured, or nothing can be called
    ERROR = "error"  # an unexpected error


_RUN_OUT = (End.EXHAUSTED, End.INDIFFERENT, End.BUDGET)


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules about failures, and the objective."""

    failed_score: float = 0.0  # score of a pair on which the candidate itself failed, in [0, 1]
    max_failed_share: float = 0.5  # share of void pairs, in [0, 1], above which the run stops
    # an objective that depends on prices; None: the best candidate
    objective: ObjectiveTracker | None = None

    @property
    def worth(self) -> BoolArray | None:
        """(K,) candidates that it is worth asking; None means all."""
        return None if self.objective is None else self.objective.worth

    def end(self, seconds: float, budget: Budget, n_told: int, n_void: int) -> End | None:
        """Return why nothing more may be asked even if the selector wants to; None if it may.

        The ledger watches all caps but ``seconds``. ``n_void`` counts the pairs that could not be
        measured since the run began or was resumed.
        """
        if budget.seconds is not None and seconds >= budget.seconds:
            return End.BUDGET
        if self.objective is not None and self.objective.is_reached:
            return End.SEPARATED
        if n_told >= _ENOUGH_TO_JUDGE_FAILURES and n_void > self.max_failed_share * n_told:
            return End.FAILURES
        return None

    def reviewed(self, end: End, table: ScoreTable) -> End:
        """Return FAILURES in place of ``end`` if too few pairs could be measured.

        What was established in spite of them stands: intervals were widened by what is missing.
        """
        n_void = int(table.count(State.VOID).sum())
        n_told = table.n_asked - int(table.count(State.PENDING).sum())
        if n_void and n_void == n_told:
            return End.FAILURES if end is not End.INTERRUPTED else end
        if end in _RUN_OUT and n_void > self.max_failed_share * n_told:
            return End.FAILURES
        return end


def end_of_silence(selector: Pairs, pool: CandidatePool, ledger: Ledger, *, put_off: bool) -> End:
    """Return why a run is over whose selector asks for nothing while nothing is in flight."""
    if (stop := selector.stopped()) is not None:
        return End(stop.value)
    if pool.broken():
        return End.FAILURES
    affordable = pool.affordable(ledger)
    cannot_pay = affordable is not None and not affordable.all()
    return End.BUDGET if put_off or cannot_pay else End.INDIFFERENT
