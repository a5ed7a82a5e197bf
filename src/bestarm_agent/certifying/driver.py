"""Drives a run towards a certificate: asks for what the next verdict needs, and for no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from bestarm_agent.certification.certificate import Certificate, Screened, certify
from bestarm_agent.certification.evidence import Goal, Method
from bestarm_agent.certification.reliance import METHODS
from bestarm_agent.certification.screening import DrawScreen, Range, Verdict
from bestarm_agent.certifying.audit import Audit
from bestarm_agent.errors import ConfigError
from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import (
    Ask,
    BoolArray,
    Choice,
    FloatArray,
    Pair,
    Problem,
    State,
    Stop,
    Tell,
)

LABEL, GUESS = "label", "guess"  # reasons of asks: for its label, or for its guess only
_ANYTHING: Range = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Cell:
    """What is known of one pair: ranges, wide where something could not be measured.

    Attributes:
        guess: the autoevaluator's loss.
        loss: the true loss; anything where there is no label.
    """

    guess: Range
    loss: Range


@dataclass(slots=True)
class Row:
    """What was asked and told of one candidate.

    Attributes:
        n_asked: pairs of its plan that were asked.
        cells: what was told, by place in the plan.
        rounds: rounds that are complete, from the first on: true loss, guess, mean other guess.
        screen: its test.
    """

    screen: DrawScreen
    n_asked: int = 0
    cells: dict[int, Cell] = field(default_factory=dict)
    rounds: list[tuple[Range, Range, Range]] = field(default_factory=list)


class CertifyingSelector(Selector):
    """Screens candidates in an order, each on the same labelled examples, until one fails.

    The plan of a candidate is its rounds, one after the other: a labelled example, then those that
    are only guessed. Rounds are settled in the order of asking once all of their pairs are told. A
    candidate that is certified gives way to the next of the order; at the first other verdict, or
    when its plan ends without one, the run is over. Candidates that join later are not looked at.

    Args:
        problem: the size of the run.
        audit: what is to be certified.
        order: candidates, from the most likely to be good to the nicest to have.

    Raises:
        ConfigError: a log is replayed that follows another plan.

    Attributes:
        audit: as given.
    """

    name: ClassVar[str] = "certify"
    exogenous: ClassVar[bool] = False  # tells are guesses: no interval of the true mean from them

    def __init__(self, problem: Problem, audit: Audit, order: Sequence[int]) -> None:
        super().__init__(problem)
        self.audit = audit
        self._order = tuple(order)
        rounds = audit.rounds
        self._plan = np.column_stack([rounds.labelled, rounds.others])
        self._flat = self._plan.ravel()
        self._rows = {candidate: Row(self._screen()) for candidate in order}
        self._places: dict[int, int] = {}  # of asks in their plans
        self._at = 0

    @property
    def labels_used(self) -> int:
        """How many examples needed their label so far."""
        return max((row.screen.n for row in self._rows.values()), default=0)

    def certificate(self, method: Method | None = None) -> Certificate:
        """What is certified so far, by the run's method or by another one on the same rounds."""
        goal = self.audit.goal
        looked_at = [i for i in self._order if self._rows[i].rounds]

        def screening(candidate: int, goal: Goal) -> Screened:
            screen = self._rows[candidate].screen
            if method is not None:
                screen = DrawScreen(goal, method, self.audit.n_autoevaluators)
                _settle(screen, self._rows[candidate].rounds)
            return self._summed_up(candidate, screen)

        return certify(looked_at, screening, goal)

    def alternatives(self) -> dict[str, Certificate]:
        """What each method would have found on the rounds of this run; by the method's name."""
        return {name: self.certificate(replace(self.audit.method, name=name)) for name in METHODS}

    def ranking(self) -> list[int]:
        """The chosen candidate, then the other certified ones, then the rest as usual."""
        certified = [i for i in reversed(self._order[: self._at]) if self._is_certified(i)]
        return [*certified, *(i for i in super().ranking() if i not in certified)]

    def stopped(self) -> Stop | None:
        """Say why nothing will be asked any more, or None while that may still happen."""
        return Stop.VERDICT if self._is_complete() else None

    def _choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        candidate = self._order[self._at]
        place = self._rows[candidate].n_asked
        if place == len(self._flat) or not allowed[candidate]:
            return None
        reason = LABEL if place % self._plan.shape[1] == 0 else GUESS
        return Choice(Pair(candidate, int(self._flat[place])), None, reason)

    def _asked(self, ask: Ask) -> None:
        row = self._rows[ask.pair.candidate]
        place = row.n_asked
        if place == len(self._flat) or self._flat[place] != ask.pair.example:
            raise ConfigError(
                "the plan of labels is not what it was when the run began: the labels or the "
                "`certify` section have changed; restore them, or begin a new run (equal requests "
                "are taken from the reply cache)"
            )
        self._places[ask.seq] = place
        row.n_asked += 1

    def _told(self, tell: Tell) -> None:
        candidate = int(self.table.candidate[tell.seq])
        row = self._rows[candidate]
        row.cells[self._places[tell.seq]] = _cell(tell)
        while self._has_next_round(row):
            row.rounds.append(self._next_round(row))
            if row.screen.verdict is Verdict.UNDECIDED:
                _settle(row.screen, row.rounds[-1:])
        while self._at < len(self._order) and self._is_certified(self._order[self._at]):
            self._at += 1

    def _is_complete(self) -> bool:
        if self._at == len(self._order):
            return True
        row = self._rows[self._order[self._at]]
        return row.screen.verdict is Verdict.REFUTED or len(row.rounds) == len(self._plan)

    def _is_certified(self, candidate: int) -> bool:
        return self._rows[candidate].screen.verdict is Verdict.CERTIFIED

    def _screen(self) -> DrawScreen:
        return DrawScreen(self.audit.goal, self.audit.method, self.audit.n_autoevaluators)

    def _has_next_round(self, row: Row) -> bool:
        width = self._plan.shape[1]
        start = len(row.rounds) * width
        return all(place in row.cells for place in range(start, start + width))

    def _next_round(self, row: Row) -> tuple[Range, Range, Range]:
        width = self._plan.shape[1]
        start = len(row.rounds) * width
        labelled, *others = (row.cells[place] for place in range(start, start + width))
        low = float(np.mean([cell.guess[0] for cell in others]))
        high = float(np.mean([cell.guess[1] for cell in others]))
        return labelled.loss, labelled.guess, (low, high)

    def _summed_up(self, candidate: int, screen: DrawScreen) -> Screened:
        used = self._rows[candidate].rounds[: screen.n]
        losses = [loss[1] for loss, _, _ in used]
        return Screened.of(candidate, screen, self._plan[:, 0].tolist(), losses)


def _cell(tell: Tell) -> Cell:
    """What a tell says: a candidate's own failure is a loss for both, a void pair says nothing."""
    if tell.state is State.VOID:
        return Cell(_ANYTHING, _ANYTHING)
    guess = 1.0 - tell.score
    if tell.state is State.FAILED:
        return Cell((guess, guess), (guess, guess))
    loss = _ANYTHING if tell.gold is None else (1.0 - tell.gold, 1.0 - tell.gold)
    return Cell((guess, guess), loss)


def _settle(screen: DrawScreen, rounds: Sequence[tuple[Range, Range, Range]]) -> None:
    """Feed rounds to a screen until it has a verdict."""
    for loss, guess, others in rounds:
        if screen.verdict is not Verdict.UNDECIDED:
            return
        screen.push_ranges(loss, _each(guess), _each(others))


def _each(values: Range) -> tuple[FloatArray, FloatArray]:
    """Lowest and highest as arrays of one autoevaluator."""
    return np.array([values[0]]), np.array([values[1]])
