"""The mode of a run whose answers people score: it collects them, some examples at a time.

    answers of all candidates to the first 20 examples   ->  the run ends; people label
    a resumed run: whom the labels rule out, leaves       ->  20 examples more of the others

The order of the examples is drawn before the first call, nobody chose who takes part, and a label
is asked for in that order: so the statement of ``stats.people`` holds, without a judge's scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from bestarm_agent.domain.values import Candidate
from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.engine.record import Size
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule, SharedOrder
from bestarm_agent.selectors.types import Choice, Pair, Problem, State, Stop
from bestarm_agent.stats.arrays import BoolArray
from bestarm_agent.stats.history import HistoryModel

BLOCK = 20  # examples whose answers are collected before people are asked


class CollectionPlan(Rule):
    """Asks every candidate the same examples, in one random order, up to the end of a block.

    What is collected in a sitting ends with the first block that was not complete when it began.
    """

    name: ClassVar[str] = "people"
    exogenous: ClassVar[bool] = False  # the scores in the log are none: nothing follows from them

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.order = SharedOrder(self.table, problem.seed)
        self._until = 0  # examples of each candidate; 0 before the first choice

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | Stop | None:
        """Pick the candidate that is furthest behind, and its next example."""
        if self.table.n_candidates > 1 and (~self.answer.barred).sum() < 2:
            return Stop.LABELS  # people have ruled out all others
        # A block ends where it would have ended had the run never been cut off: its end is a
        # multiple of the block's length, and follows from what was complete when this sitting
        # began.
        asked = self.table.n_trials
        if not self._until:
            done = int((asked - self.table.count(State.PENDING))[allowed].min())
            self._until = BLOCK * (done // BLOCK + 1)
        behind = allowed & (asked < self._until)
        if not behind.any():
            return Stop.LABELS
        row = int(np.where(behind, asked, self._until).argmin())
        return Choice(Pair(row, self.order.next_of(row)), "block")


@dataclass(frozen=True, slots=True)
class Collection:
    """Collects the answers that people score."""

    seed: int

    def pairs(
        self, size: Size, candidates: Sequence[Candidate] = (), history: HistoryModel | None = None
    ) -> Pairs:
        """Make what asks for the answers."""
        problem = size.problem(per_dollar=False)
        return Pairs(
            CollectionPlan(replace(problem, seed=self.seed, stop_when_separated=False, within=None))
        )

    def notices(self, pairs: Pairs, size: Size) -> tuple[str, ...]:
        """Say how the run goes on."""
        return (
            f"people score the answers: the run collects those to {min(BLOCK, size.n_examples)} "
            "examples and ends; then `bestarm-agent label`, and `bestarm-agent resume` for more",
        )

    def result(self, pairs: Pairs, standing: Standing) -> ModeResult | None:
        """Return None: the standing names the best, once there are labels."""
