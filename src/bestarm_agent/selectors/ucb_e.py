"""UCB-E: pull the candidate whose optimistic mean is highest.

Zhou et al. 2024, "On Speeding Up Language Model Evaluation", Algorithm 1. Strong where two
finalists stand far above the rest; needs too much where several close candidates are correlated,
since it compares them on different examples. A small ``eta`` multiplies the error.
"""

from __future__ import annotations

from math import sqrt
from typing import ClassVar

import numpy as np

from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import Ask, BoolArray, Choice, FloatArray, Pair, Problem, Tell


class UcbE(Selector):
    """Upper confidence bound exploration.

    In flight: a pending pull counts as seen in the width and leaves the mean alone, so concurrent
    asks spread out; a candidate that has pending pulls but no score yet is taken to score 1. With
    one call in flight nothing is ever pending at ``ask`` and the rule is the paper's, step by step.
    A void pull counts in the width too, and a candidate with void pulls only is taken to score 0:
    else one whose provider is down would draw every pull.

    Args:
        problem: K, N, seed and the rest.
        eta: uncertainty scaling, > 0; the paper uses 1.
        batch: pulls of the same candidate per decision, >= 1; the paper uses 1, its published
            program 32. Larger ones forgive an unlucky first score, and cost more where a few
            pulls would do.

    Raises:
        ValueError: ``eta`` is not positive, or ``batch`` is below 1.

    Example:
        >>> from bestarm_agent.selectors.types import Problem, State, Tell
        >>> selector = UcbE(Problem(n_candidates=3, n_examples=10))
        >>> [ask] = selector.ask()
        >>> selector.tell([Tell(ask.seq, State.DONE, score=1.0)])
        >>> selector.best().best == ask.pair.candidate
        True
    """

    name: ClassVar[str] = "ucb-e"

    def __init__(self, problem: Problem, *, eta: float = 1.0, batch: int = 1) -> None:
        if not eta > 0:
            raise ValueError(f"eta must be > 0, got {eta}")
        if batch < 1:
            raise ValueError(f"batch must be at least 1, got {batch}")
        super().__init__(problem)
        self.eta = eta
        self.batch = batch
        self._levels = np.zeros(problem.n_candidates)
        self._widths = np.full(problem.n_candidates, np.inf)
        self._current, self._left = 0, 0  # the candidate of this batch, pulls left in it

    def _choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        if self._left and allowed[self._current]:
            candidate = self._current
        else:
            index = np.where(allowed, self._index(), -np.inf)
            ties = np.flatnonzero(index == index.max())
            candidate = int(ties[rng.integers(len(ties))] if len(ties) > 1 else ties[0])
        example, propensity = self.draw_unseen(candidate, rng)  # j_t uniform in [m] \ S_i
        return Choice(Pair(candidate, example), propensity, "ucb")

    def _asked(self, ask: Ask) -> None:
        candidate = ask.pair.candidate
        same = self._left > 0 and candidate == self._current
        self._current, self._left = candidate, (self._left if same else self.batch) - 1
        self._update(candidate)

    def _told(self, tell: Tell) -> None:
        self._update(int(self.table.candidate[tell.seq]))

    def _grown(self) -> None:
        self._levels = np.zeros(self.table.n_candidates)
        self._widths = np.full(self.table.n_candidates, np.inf)
        for candidate in range(self.table.n_candidates):
            self._update(candidate)

    def _index(self) -> FloatArray:
        """(K,) B_i = mean_i + sqrt(eta / |S_i|) (Algorithm 1, line 5), pulls weighed by cost."""
        widths = self._widths
        if self.problem.costs is not None:
            widths = widths / np.sqrt(self.weights)
        index: FloatArray = self._levels + widths
        return index

    def _update(self, candidate: int) -> None:
        scored, total, pending, void = self.table.tally(candidate)
        asked = scored + pending + void
        if asked == 0:  # B_i = +inf
            self._widths[candidate] = np.inf
            return
        mean = self._mean_of(candidate, total / scored) if scored else float(void == 0)
        self._levels[candidate] = mean
        self._widths[candidate] = sqrt(self.eta / asked)

    def _mean_of(self, candidate: int, seen: float) -> float:
        """The estimate behind the index, given the mean of the candidate's scores so far."""
        return seen
