"""The test of one candidate of a certification, fed with outcomes in any order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bestarm_agent.certification.certificate import Screened
from bestarm_agent.certification.evidence import Goal, Method
from bestarm_agent.certification.label_plan import PoolPlan, Rounds
from bestarm_agent.certification.screening import DrawScreen, PoolScreen, Range, Verdict
from bestarm_agent.selectors.types import FloatArray

Plan = Rounds | PoolPlan


@dataclass(frozen=True, slots=True)
class Cell:
    """Ranges for the losses of one pair, wide where something could not be measured."""

    lowest: FloatArray  # (A,) the autoevaluators' losses, at least
    highest: FloatArray  # (A,) and at most
    # the true loss; None where there is no label, or none that could be measured
    loss: float | None


class Trial(ABC):
    """The test of one candidate, fed by place in the plan, in any order.

    Attributes:
        n_asked: pairs of the plan that were asked.
        screen: the test; None before it can begin.
    """

    def __init__(self, plan: Plan, goal: Goal, method: Method, n_autoevaluators: int) -> None:
        self._goal = goal
        self._method = method
        self._n_autoevaluators = n_autoevaluators
        self._labelled = [int(example) for example in plan.labelled]  # in the order of use
        self._cells: dict[int, Cell] = {}
        self.n_asked = 0
        self.screen: DrawScreen | PoolScreen | None = None

    @property
    @abstractmethod
    def is_exhausted(self) -> bool:
        """Return whether every label of the plan is in."""

    @property
    def n_labels(self) -> int:
        """Labels that the test has used."""
        return 0 if self.screen is None else self.screen.n

    @property
    def verdict(self) -> Verdict:
        """The verdict so far."""
        return Verdict.UNDECIDED if self.screen is None else self.screen.verdict

    @property
    def is_closed(self) -> bool:
        """Return whether nothing more can come of it."""
        return self.verdict is not Verdict.UNDECIDED or self.is_exhausted

    def tell(self, place: int, cell: Cell) -> None:
        """Take what is known of the pair at a place of the plan."""
        self._cells[place] = cell
        self._settle()

    def summed_up(self, candidate: int, method: Method | None = None) -> Screened:
        """Sum up what was found; by another method, if one is given, from the same labels."""
        screen = self.screen if method is None else self._replayed(method)
        if screen is None:
            return Screened(candidate, Verdict.UNDECIDED, (), 0.0, (), (), float("nan"))
        losses = [1.0 if loss is None else loss for loss in self._losses()[: screen.n]]
        return Screened.of(candidate, screen, self._labelled, losses)

    @abstractmethod
    def _settle(self) -> None:
        """Feed the test what has become complete."""

    @abstractmethod
    def _replayed(self, method: Method) -> DrawScreen | PoolScreen | None:
        """Run another method on the same data."""

    @abstractmethod
    def _losses(self) -> list[float | None]:
        """True losses in the order of use."""


class DrawTrial(Trial):
    """On independent draws: rounds are settled in their order, each once all of it is told."""

    def __init__(self, plan: Rounds, goal: Goal, method: Method, n_autoevaluators: int) -> None:
        super().__init__(plan, goal, method, n_autoevaluators)
        self._width = plan.width
        self._rounds: list[tuple[Cell, list[Cell]]] = []
        self._draws = self._new_screen(method)

    @property
    def is_exhausted(self) -> bool:
        """Return whether every round is complete."""
        return len(self._rounds) == len(self._labelled)

    def _settle(self) -> None:
        while not self.is_exhausted:
            start = len(self._rounds) * self._width
            places = range(start, start + self._width)
            if not all(place in self._cells for place in places):
                return
            labelled, *others = (self._cells[place] for place in places)
            self._rounds.append((labelled, others))
            _push(self._draws, labelled, others)
            self.screen = self._draws

    def _replayed(self, method: Method) -> DrawScreen:
        screen = self._new_screen(method)
        for labelled, others in self._rounds:
            _push(screen, labelled, others)
        return screen

    def _new_screen(self, method: Method) -> DrawScreen:
        return DrawScreen(self._goal, method, self._n_autoevaluators)

    def _losses(self) -> list[float | None]:
        return [labelled.loss for labelled, _ in self._rounds]


class PoolTrial(Trial):
    """On a finite pool: labels count once every example is guessed.

    Any numbers serve as guesses that are fixed before the order of the labels is looked at, so one
    that could not be measured is the middle of its range.
    """

    def __init__(self, plan: PoolPlan, goal: Goal, method: Method, n_autoevaluators: int) -> None:
        super().__init__(plan, goal, method, n_autoevaluators)
        self._sequence = plan.sequence

    @property
    def is_exhausted(self) -> bool:
        """Return whether every example is guessed: all labels are then in as well."""
        return len(self._cells) == len(self._sequence)

    def _settle(self) -> None:
        self.screen = self._replayed(self._method)

    def _replayed(self, method: Method) -> PoolScreen | None:
        if not self.is_exhausted:
            return None
        guesses = np.empty((self._n_autoevaluators, len(self._sequence)))
        for place, cell in self._cells.items():
            guesses[:, self._sequence[place]] = (cell.lowest + cell.highest) / 2
        screen = PoolScreen(self._goal, guesses, method)
        for example, loss in zip(self._labelled, self._losses(), strict=True):
            if screen.verdict is not Verdict.UNDECIDED:
                break
            screen.tell(screen.take(example).seq, loss)
        return screen

    def _losses(self) -> list[float | None]:
        return [self._cells[place].loss for place in range(len(self._labelled))]


def new_trial(plan: Plan, goal: Goal, method: Method, n_autoevaluators: int) -> Trial:
    """Make the trial that fits a plan."""
    if isinstance(plan, PoolPlan):
        return PoolTrial(plan, goal, method, n_autoevaluators)
    return DrawTrial(plan, goal, method, n_autoevaluators)


def _push(screen: DrawScreen, labelled: Cell, others: Sequence[Cell]) -> None:
    if screen.verdict is not Verdict.UNDECIDED:
        return
    losses: Range = (0.0, 1.0) if labelled.loss is None else (labelled.loss, labelled.loss)
    lowest = np.mean([cell.lowest for cell in others], axis=0)
    highest = np.mean([cell.highest for cell in others], axis=0)
    screen.push_ranges(losses, (labelled.lowest, labelled.highest), (lowest, highest))
