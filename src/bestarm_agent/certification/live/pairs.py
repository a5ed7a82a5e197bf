"""The pairs of a certification: those that the next verdict needs, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bestarm_agent.certification.certificate import Certificate, Screened, certify, single_goal
from bestarm_agent.certification.evidence import Goal, Method
from bestarm_agent.certification.live.setup import Audit
from bestarm_agent.certification.live.trials import Cell, new_trial
from bestarm_agent.certification.reliance_factors import METHODS
from bestarm_agent.certification.screening import Verdict
from bestarm_agent.engine.pair_source import PlannedPairs
from bestarm_agent.errors import ConfigError
from bestarm_agent.selectors.types import Ask, BoolArray, Choice, Pair, Problem, State, Stop, Tell

LABEL, GUESS = "label", "guess"  # reasons of asks: for its label, or for its guess only


class CertificationPairs(PlannedPairs):
    """Tests candidates one after the other, each on the same labelled examples.

    The plan of a candidate is a sequence of examples, some to be labelled and some only guessed. A
    candidate's trial is closed by its verdict, or when its plan ends without one. The correction
    says who comes next, and when the run is over:

    - "sequence": along the order, until the first that is not certified.
    - "bonferroni": from the end of the order, until the first that is.
    - "e-bh": all of them.

    Candidates that join later are not looked at.
    """

    name = "certify"

    def __init__(self, problem: Problem, audit: Audit, order: Sequence[int]) -> None:
        super().__init__(replace(problem, stop_when_separated=True))  # a verdict ends the run
        self.audit = audit
        self._order = tuple(order)
        self._trying = tuple(in_order_of_trying(order, audit.correction))
        self._flat = audit.plan.sequence
        goal = single_goal(audit.goal, len(order), audit.correction)
        self._trials = {
            candidate: new_trial(audit.plan, goal, audit.method, audit.n_autoevaluators)
            for candidate in order
        }
        self._places: dict[int, int] = {}  # of asks in their plans
        self._at = 0

    def certificate(self, method: Method | None = None) -> Certificate:
        """Return what is certified so far, by the run's method or by another on the same labels."""

        def screening(candidate: int, goal: Goal) -> Screened:
            return self._trials[candidate].summed_up(candidate, method)

        found = certify(self._order, screening, self.audit.goal, self.audit.correction)
        looked_at = tuple(one for one in found.screened if one.examples)
        return replace(found, screened=looked_at)

    def alternatives(self) -> dict[str, Certificate]:
        """Return what each method would have found on the same labels, by its name."""
        return {name: self.certificate(replace(self.audit.method, name=name)) for name in METHODS}

    def ranking(self) -> list[int]:
        """Order the candidates: the chosen one, then the other certified ones, then the rest."""
        certified = self.certificate().certified[::-1]
        return [*certified, *(i for i in super().ranking() if i not in certified)]

    def stopped(self) -> Stop | None:
        """Say why nothing will be asked any more, or None while that may still happen."""
        return Stop.VERDICT if self._is_complete() else None

    def next_choice(self, allowed: BoolArray | None = None) -> Choice | None:
        """Return the next pair of the candidate that is being tested; None if it must wait."""
        if self._is_complete():
            return None
        candidate = self._trying[self._at]
        place = self._trials[candidate].n_asked
        if place == len(self._flat) or (allowed is not None and not allowed[candidate]):
            return None
        reason = LABEL if self.audit.plan.is_label(place) else GUESS
        return Choice(Pair(candidate, int(self._flat[place])), None, reason)

    def adopt(self, asks: Sequence[Ask]) -> None:
        """Mark pairs as pending; raises ConfigError if they follow another plan."""
        super().adopt(asks)
        for ask in asks:
            self._place(ask)

    def tell(self, results: Sequence[Tell]) -> None:
        """Record outcomes, and go on to the next candidate where a verdict allows it."""
        for result in results:
            if self.table.tell(result):
                self._told(result)

    def _place(self, ask: Ask) -> None:
        trial = self._trials[ask.pair.candidate]
        place = trial.n_asked
        if place == len(self._flat) or self._flat[place] != ask.pair.example:
            raise ConfigError(
                "the plan of labels is not what it was when the run began: the labels or the "
                "`certify` section have changed; restore them, or begin a new run (equal requests "
                "are taken from the reply cache)"
            )
        self._places[ask.seq] = place
        trial.n_asked += 1

    def _told(self, tell: Tell) -> None:
        trial = self._trials[int(self.table.candidate[tell.seq])]
        trial.tell(self._places[tell.seq], self._cell(tell))
        while self._at < len(self._trying) and self._gives_way(self._trying[self._at]):
            self._at += 1

    def _is_complete(self) -> bool:
        return self._at == len(self._trying) or self._trials[self._trying[self._at]].is_closed

    def _gives_way(self, candidate: int) -> bool:
        trial = self._trials[candidate]
        is_certified = trial.verdict is Verdict.CERTIFIED
        match self.audit.correction:
            case "sequence":
                return is_certified
            case "bonferroni":
                return trial.is_closed and not is_certified
            case _:
                return trial.is_closed

    def _cell(self, tell: Tell) -> Cell:
        """Convert an outcome: a candidate's own failure is a loss, a void pair says nothing."""
        n = self.audit.n_autoevaluators
        if tell.state is State.VOID:
            return Cell(np.zeros(n), np.ones(n), None)
        if tell.state is State.FAILED:
            guesses = np.full(n, 1.0 - tell.score)
            return Cell(guesses, guesses, 1.0 - tell.score)
        said = tell.guesses or (tell.score,)
        lowest = np.array([0.0 if score is None else 1.0 - score for score in said])
        highest = np.array([1.0 if score is None else 1.0 - score for score in said])
        return Cell(lowest, highest, None if tell.gold is None else 1.0 - tell.gold)


def in_order_of_trying(order: Sequence[int], correction: str) -> Sequence[int]:
    """Turn the order of a certification into that in which it looks at candidates, or back."""
    return order[::-1] if correction == "bonferroni" else order
