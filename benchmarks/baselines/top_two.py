"""Top-two Thompson sampling: compare the probable best with its probable rival.

Russo 2016, "Simple Bayesian Algorithms for Best Arm Identification", section 3.3 (TTTS).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors import BoolArray, Choice, Pair, Rule, State
from bestarm_agent.selectors.types import Belief
from bestarm_agent.stats.arrays import FloatArray

_REDRAWS = 16
_BETA = 0.5  # probability of pulling the leader rather than its rival


class TopTwo(Rule):
    """Pull the best of a posterior draw, or the first other best of further draws.

    A draw is of every candidate's mean over its N examples: seen scores as they are, unseen ones at
    a draw of their mean from Beta(1 + total, 1 + n - total). If 16 redraws bring no other best, the
    second of the last one is the rival. A candidate that may not be asked leaves its turn to the
    best that may. Pending and void pulls enter the posterior at its mean; of a candidate without
    any score, void pulls count as 0.
    """

    name: ClassVar[str] = "top-two"
    heeds_costs: bool = False

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        """Pick the leader or its rival."""
        draw = self._draw(rng)
        leader = candidate = int(draw.argmax())
        leads = rng.random() < _BETA
        if not leads:
            for _ in range(_REDRAWS):
                draw = self._draw(rng)
                if int(draw.argmax()) != leader:
                    break
            else:
                draw[leader] = -np.inf
            candidate = int(draw.argmax())
        if not allowed[candidate]:
            candidate = int(np.where(allowed, draw, -np.inf).argmax())
        example = self.draw_unseen(candidate, rng)
        return Choice(Pair(candidate, example), "lead" if leads else "rival")

    def _posterior(self) -> tuple[FloatArray, FloatArray]:
        """(K,) both parameters of every candidate's Beta posterior."""
        table, n = self.table, self.table.n_scored
        zeros = np.where(n > 0, 0, table.count(State.VOID))  # never worked: as good as wrong
        wins, losses = 1.0 + table.total, 1.0 + n + zeros - table.total
        guessed = (table.n_trials - n - zeros) / (wins + losses)
        return wins * (1.0 + guessed), losses * (1.0 + guessed)

    def _means(self, unseen: FloatArray) -> FloatArray:
        """(K,) means over all N examples, given those of the unseen ones."""
        share = 1.0 - self.table.n_scored / self.table.n_examples
        return np.asarray(self.table.total / self.table.n_examples + share * unseen)

    def _draw(self, rng: np.random.Generator) -> FloatArray:
        return np.where(self.answer.barred, -np.inf, self._means(rng.beta(*self._posterior())))

    def belief(self) -> Belief:
        """Return the posterior means: a single lucky score makes no candidate the best."""
        wins, losses = self._posterior()
        means = self._means(wins / (wins + losses))
        return Belief(np.where(self.table.n_scored > 0, means, np.nan))
