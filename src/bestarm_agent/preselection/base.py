"""What every preselection rule has in common: choosing, counting, and a state to save."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.preselection.types import (
    BoolArray,
    Feedback,
    FloatArray,
    IntArray,
    PreselectionProblem,
)
from bestarm_agent.stats.keyed import KeyedRandom

Arrays = Mapping[str, NDArray[Any]]


class Preselector(ABC):
    """Chooses k arms for a context, and learns which of them was best.

    Feedback may come late or never: ``learn`` needs only the contexts that ``choose`` saw. All
    that was learnt is in ``state()``, so a process can end and another go on from there.

    Attributes:
        name: what users call the rule.
        problem: what it was made for.
        n_chosen: contexts seen by ``choose``.
        n_learnt: feedbacks given to ``learn``.
    """

    name: ClassVar[str]

    def __init__(self, problem: PreselectionProblem) -> None:
        self.problem = problem
        self.n_chosen = 0
        self.n_learnt = 0
        self._draws = KeyedRandom(problem.seed, "preselection choice")

    def choose(
        self,
        contexts: FloatArray,
        k: int,
        *,
        allowed: BoolArray | None = None,
        draw: int | None = None,
    ) -> IntArray:
        """Choose the arms to run.

        Args:
            contexts: (n, d) context vector of each arm.
            k: how many, 1 <= k <= arms allowed.
            allowed: (n,) arms that can be run; None if all can.
            draw: in [0, 2^64), decides the choice's random numbers; None counts up.

        Returns:
            (k,) distinct arms, the most promising first.

        Raises:
            ValueError: shapes do not fit, or fewer than k arms are allowed.
        """
        self._check_contexts(contexts)
        n_allowed = self.problem.n_arms if allowed is None else int(allowed.sum())
        if not 1 <= k <= n_allowed:
            raise ValueError(f"k must be in 1..{n_allowed}, the arms that can be run, got {k}")
        rng = self._draws.at(self.n_chosen if draw is None else draw)
        self.n_chosen += 1
        index = self._index(contexts, rng)
        if allowed is not None:
            index = np.where(allowed, index, -np.inf)
        return np.lexsort((rng.random(len(index)), -index))[:k]  # (line 6); ties at random

    def learn(self, feedback: Feedback) -> None:
        """Take what became of the arms that were run.

        Raises:
            ValueError: the contexts are of another shape than the problem's.
        """
        self._check_contexts(feedback.contexts)
        self.n_learnt += 1
        self._learn(feedback)

    def state(self) -> dict[str, NDArray[Any]]:
        """All that was learnt, as arrays that the rule does not share."""
        counts = np.array([self.n_chosen, self.n_learnt], dtype=np.int64)
        return {"counts": counts, **{key: value.copy() for key, value in self._arrays().items()}}

    def restore(self, state: Arrays) -> None:
        """Go on from a state that the same rule, made for the same problem, gave out.

        Raises:
            ValueError: the state is another rule's or another problem's.
        """
        present = self._arrays()
        self._check_complete(state)
        self.n_chosen, self.n_learnt = (int(count) for count in state["counts"])
        self._restore({key: np.array(state[key]) for key in present})

    def take_over(self, state: Arrays, places: IntArray) -> None:
        """Go on from a state of the same rule for fewer arms; nothing is known of the new ones.

        Args:
            state: what ``state`` gave out there. Its arms are the first of this problem's.
            places: (d',) which of this problem's features each of the state's is.

        Raises:
            ValueError: the state is another rule's.
        """
        self._check_complete(state)
        fresh = {key: array.copy() for key, array in self._arrays().items()}
        self.restore({**state, **self._merged(fresh, state, places)})

    def _merged(
        self, fresh: dict[str, NDArray[Any]], state: Arrays, places: IntArray
    ) -> dict[str, NDArray[Any]]:
        """Put a smaller state's arrays, which are over features, into fresh ones."""
        for key, array in fresh.items():
            array[np.ix_(*[places] * array.ndim)] = state[key]
        return fresh

    @abstractmethod
    def _index(self, contexts: FloatArray, rng: np.random.Generator) -> FloatArray:
        """(n,) how promising each arm is; the largest are chosen, equal ones at random."""

    @abstractmethod
    def _learn(self, feedback: Feedback) -> None:
        """Take one feedback; ``n_learnt`` counts it already."""

    @abstractmethod
    def _arrays(self) -> dict[str, NDArray[Any]]:
        """What ``state`` saves besides the counts."""

    @abstractmethod
    def _restore(self, arrays: Arrays) -> None:
        """Take over what ``_arrays`` gave out."""

    def _check_complete(self, state: Arrays) -> None:
        missing = {"counts", *self._arrays()} - set(state)
        if missing:
            raise ValueError(f"the state of {self.name} lacks {', '.join(sorted(missing))}")

    def _check_contexts(self, contexts: FloatArray) -> None:
        expected = (self.problem.n_arms, self.problem.n_features)
        if contexts.shape != expected:
            raise ValueError(f"contexts must have shape {expected}, got {contexts.shape}")
        if not np.isfinite(contexts).all():
            raise ValueError("contexts must be finite; they hold NaN or infinity")
