"""UCB-E: pull the candidate whose optimistic mean is highest.

Zhou et al. 2024, "On Speeding Up Language Model Evaluation", Algorithm 1. Strong where two
finalists stand far above the rest. Several close, correlated candidates need too many pulls, since
the paper compares them on different examples; ``common_examples`` mends that.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import Choice, Pair, Problem, State
from bestarm_agent.stats.arrays import BoolArray, FloatArray


class UcbE(Rule):
    """Upper confidence bound exploration.

    In flight: a pending pull counts in the width, so concurrent asks spread out. A candidate with
    pending pulls but no score yet is taken to score 1, one with void pulls only to score 0 (else a
    candidate whose provider is down would draw every pull). With one call in flight the rule is the
    paper's, step by step.

    Args:
        eta: uncertainty scaling, > 0; the paper uses 1, and small values multiply the error.
        batch: pulls of the same candidate per decision, >= 1; the paper uses 1, its published
            program 32. Larger ones forgive an unlucky first score.
        common_examples: whether all candidates take their examples from one shared random order.

    Example:
        >>> from bestarm_agent.selectors import Problem, State, Tell, make_selector
        >>> pairs = make_selector("ucb-e", Problem(n_candidates=3, n_examples=20))
        >>> while asks := pairs.ask():  # candidate 2 is right everywhere, the others nowhere
        ...     right = float(asks[0].pair.candidate == 2)
        ...     pairs.tell([Tell(asks[0].seq, State.DONE, right)])
        >>> pairs.answer.best().best
        2
    """

    name: ClassVar[str] = "ucb-e"

    def __init__(
        self, problem: Problem, *, eta: float = 1.0, batch: int = 1, common_examples: bool = False
    ) -> None:
        if not eta > 0:
            raise ValueError(f"eta must be > 0, got {eta}")
        if batch < 1:
            raise ValueError(f"batch must be at least 1, got {batch}")
        self.common_examples = common_examples
        self.heeds_costs = not common_examples
        super().__init__(problem)
        self.eta = eta
        self.batch = batch

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        """Lines 3 and 4 of the paper's algorithm."""
        candidate = self.table.latest
        if not (left_of_batch(self.table, self.batch) and allowed[candidate]):
            # line 3: argmax B_i, ties uniformly
            candidate = highest(np.where(allowed, self._index(), -np.inf), rng)
        example = self.draw_unseen(candidate, rng)  # line 3: j in [m] \ S_i
        return Choice(Pair(candidate, example), "ucb")

    def _index(self) -> FloatArray:
        """(K,) upper confidence bounds; infinite for candidates that were never pulled (line 1)."""
        with np.errstate(divide="ignore"):
            width = np.sqrt(self.eta / self.table.n_trials)
        # line 5: B_i = mean_i + sqrt(eta / |S_i|), with pulls weighed by cost
        # NaN is a candidate without a score: 1 if its pulls are pending, 0 if some came back void.
        means = self.belief().mean
        means = np.where(np.isnan(means), self.table.count(State.VOID) == 0, means)
        width = width if self.problem.costs is None else width / np.sqrt(self.weights)
        return np.asarray(means + width)


def left_of_batch(table: ScoreTable, size: int, since: int = 0) -> int:
    """Return how many pulls of the latest candidate are still due in its batch of ``size``.

    Asks of one candidate in a row make up batches, the first of which begins no earlier than with
    the ask of number ``since``.
    """
    # Minus n modulo size is what is missing to the next multiple of size: 0 where the batch is
    # full.
    return -min(table.n_in_a_row, table.n_asked - since) % size


def highest(values: FloatArray, rng: np.random.Generator) -> int:
    """Return the place of the largest value; ties are broken at random."""
    ties = np.flatnonzero(values == values.max())
    return int(ties[rng.integers(len(ties))])
