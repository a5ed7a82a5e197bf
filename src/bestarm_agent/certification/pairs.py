"""The pairs of a certification: those that the next verdict needs, and no more.

1. All candidates follow one plan of rounds: an example to label, then r that are only guessed.
2. One candidate is tested at a time, in the order of the certification, or from its end.
3. Its pairs are asked along the plan, and may be told in any order. A round counts once all of it
   is told, and all before it.
4. A verdict, or the end of the plan, closes its trial. The correction says whether the next
   candidate is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import ClassVar, NamedTuple

import numpy as np

from bestarm_agent.certification.betting import METHODS, Goal, Method
from bestarm_agent.certification.certificate import (
    Certificate,
    Rounds,
    Screen,
    Screened,
    certify,
    gives_way,
    in_order_of_trying,
    single_goal,
)
from bestarm_agent.config.goal_specs import CertifySpec
from bestarm_agent.errors import ConfigError
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import Ask, Belief, Choice, Pair, Problem, State, Stop, Tell
from bestarm_agent.stats.arrays import BoolArray
from bestarm_agent.stats.non_inferiority import Conclusion

LABEL, GUESS = "label", "guess"  # reasons of asks: for its label, or for its guess only


def goal_of(spec: CertifySpec) -> Goal:
    """Return the goal of a study's certification, for all candidates together."""
    return Goal(spec.risk, 1.0 - spec.confidence)


def method_of(spec: CertifySpec) -> Method:
    """Return how a study gathers evidence."""
    return Method(spec.method, spec.betting, n_factors=spec.factors, horizon=spec.max_labels)


class PairLosses(NamedTuple):
    """Losses of one pair; the range of a guess is wide where it could not be measured."""

    lowest: float  # what the autoevaluator takes the loss for, at least
    highest: float  # and at most
    loss: float | None  # the true one; None without a label, or with one that was not measured

    @classmethod
    def of(cls, tell: Tell) -> PairLosses:
        """Convert an outcome: a candidate's own failure is a loss, a void pair says nothing."""
        # A void pair was not measured: its guess may be anything in [0, 1], and it has no label.
        # The screen takes each end of that range where it is worst for a certification.
        if tell.state is State.VOID:
            return cls(0.0, 1.0, None)
        guess = 1.0 - tell.score
        # A failure of the candidate itself (no parsable answer, a refusal) needs no judge: its loss
        # is known as exactly as a label would say it, so it counts as one.
        if tell.state is State.FAILED:
            return cls(guess, guess, guess)
        return cls(guess, guess, None if tell.gold is None else 1.0 - tell.gold)


class Trial:
    """The test of one candidate, fed by place in the plan, in any order."""

    def __init__(self, plan: Rounds, goal: Goal, method: Method) -> None:
        self._plan = plan
        self._goal = goal
        self._told: dict[int, PairLosses] = {}
        self._screen = Screen(goal, method)
        self._rounds = 0  # that are complete, each after all before it

    @property
    def verdict(self) -> Conclusion:
        """The verdict so far."""
        return self._screen.verdict

    @property
    def is_closed(self) -> bool:
        """Return whether no further label can change the verdict."""
        return self.verdict is not Conclusion.UNDECIDED or self._rounds == len(self._plan.labelled)

    def tell(self, place: int, losses: PairLosses) -> None:
        """Take what is known of the pair at a place of the plan."""
        # Calls end in any order, but the bets of a round may use only earlier rounds. So what comes
        # early waits here, and rounds enter the test in the order of the plan, each once it is
        # whole. Fast (often short, often right) answers therefore never enter before slow ones.
        self._told[place] = losses
        while self._is_told(self._rounds):
            self._push(self._screen, self._rounds)
            self._rounds += 1

    def screened(self, candidate: int, method: Method | None = None) -> Screened:
        """Sum up what was found; by another method, if one is given, on the same rounds."""
        screen = self._screen
        if method is not None:
            screen = Screen(self._goal, method)
            for number in range(self._rounds):
                self._push(screen, number)
        return screen.screened(candidate, self._plan.labelled.tolist())

    def _places(self, number: int) -> range:
        width = self._plan.width
        return range(number * width, (number + 1) * width)

    def _is_told(self, number: int) -> bool:
        return all(place in self._told for place in self._places(number))

    def _push(self, screen: Screen, number: int) -> None:
        # After a verdict nothing is pushed: the wealth that certified is kept, and what was in
        # flight when it fell cannot take it back.
        if screen.verdict is Conclusion.UNDECIDED:
            labelled, *others = (self._told[place] for place in self._places(number))
            means = fmean(pair.lowest for pair in others), fmean(pair.highest for pair in others)
            screen.push_ranges(labelled.loss, (labelled.lowest, labelled.highest), means)


class CertificationPlan(Rule):
    """Tests candidates one after the other, each on the same labelled examples; see above.

    Candidates that join later are not looked at.

    Args:
        order: candidates from the most likely to be good to the most desirable.

    Attributes:
        spec: what is to be certified, and how.
        plan: which examples are labelled, and which are only guessed.
    """

    name: ClassVar[str] = "certify"
    exogenous: ClassVar[bool] = False
    seeks_best: ClassVar[bool] = False

    def __init__(
        self, problem: Problem, spec: CertifySpec, plan: Rounds, order: Sequence[int]
    ) -> None:
        # The engine ends a run at a Stop only where the problem asks for one.
        super().__init__(replace(problem, stop_when_separated=True))  # a verdict ends the run
        self.spec = spec
        self.plan = plan
        self._order = tuple(order)
        self._trying = in_order_of_trying(self._order, spec.correction)
        self._sequence = plan.sequence.tolist()
        # The order is fixed before any label is seen, so the first bad candidate has a fixed place
        # in it: one test at the full level each, no union (see ``certify``).
        goal = single_goal(goal_of(spec), len(order), spec.correction)
        self._trials = {row: Trial(plan, goal, method_of(spec)) for row in order}
        self._at = 0

    def certificate(self, method: Method | None = None) -> Certificate:
        """Return what is certified so far, by the run's method or by another on the same labels."""

        def screening(candidate: int) -> Screened:
            return self._trials[candidate].screened(candidate, method)

        proof = certify(self._order, screening, self.spec.correction)
        return replace(proof, screened=tuple(trial for trial in proof.screened if trial.examples))

    def alternatives(self) -> dict[str, Certificate]:
        """Return what each method would have found on the same labels, by its name."""
        method = method_of(self.spec)
        return {name: self.certificate(replace(method, name=name)) for name in METHODS}

    def belief(self) -> Belief:
        """Rank the chosen candidate first, then the other certified ones, then the rest."""
        # The last certified one is the most desirable, so the tiers run backwards; all that are not
        # certified share the last tier, and their mean scores order them.
        certified = self.certificate().certified[::-1]
        tier = np.full(self.table.n_candidates, len(certified))
        tier[list(certified)] = np.arange(len(certified))
        return Belief(self.table.mean(), tier=tier)

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | Stop | None:
        """Pick the next pair of the candidate that is being tested; None if it must wait."""
        if self._at == len(self._trying) or self._trials[self._trying[self._at]].is_closed:
            return Stop.VERDICT
        candidate = self._trying[self._at]
        # The place in the plan is the number of the candidate's asks so far: pairs are asked along
        # the plan alone, so no pointer has to be kept, and a log that is replayed leads to the same
        # place.
        place = int(self.table.n_trials[candidate])
        if place == len(self._sequence) or not allowed[candidate]:
            return None
        reason = GUESS if place % self.plan.width else LABEL
        return Choice(Pair(candidate, self._sequence[place]), reason)

    def told(self, tell: Tell) -> None:
        """Record the outcome, and go on to the next candidate where a verdict allows it."""
        candidate, place = (int(of[tell.seq]) for of in (self.table.candidate, self.table.position))
        self._trials[candidate].tell(place, PairLosses.of(tell))
        while self._at < len(self._trying):
            trial = self._trials[self._trying[self._at]]
            if not trial.is_closed or not gives_way(trial.verdict, self.spec.correction):
                return
            self._at += 1


class CertificationPairs(Pairs):
    """The pairs of a certification; those that an earlier process asked must be the plan's."""

    rule: CertificationPlan

    def adopt(self, asks: Sequence[Ask]) -> None:
        """Mark pairs as pending; raise ConfigError if one is not the next of the plan."""
        for ask in asks:
            place = int(self.table.n_trials[ask.pair.candidate])
            # A resumed run draws its plan anew from labels, seed and section. If any of these
            # changed, the rounds that were bet on are others, and the e-value would no longer be
            # one.
            if self.rule.plan.sequence[place : place + 1].tolist() != [ask.pair.example]:
                raise ConfigError(
                    "the plan of labels is not what it was when the run began: the labels or the "
                    "`certify` section have changed; restore them, or begin a new run (equal "
                    "requests are taken from the reply cache)"
                )
            super().adopt([ask])
