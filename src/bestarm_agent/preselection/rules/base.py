"""The base of preselection rules: choosing, counting, and a state to save."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.preselection.rules.types import (
    BoolArray,
    Feedback,
    FloatArray,
    IntArray,
    PreselectionProblem,
)
from bestarm_agent.stats.keyed_random import KeyedRandom

Arrays = Mapping[str, NDArray[Any]]

_PATIENCE = 100  # ``n_ties`` from which a rule explores


class Preselector(ABC):
    """Chooses k arms for a context, and learns which of them was best.

    Feedback may come late or never: ``learn`` needs only the contexts that ``choose`` saw. All that
    was learned is in ``state()``, so that another process can continue.
    """

    name: ClassVar[str]
    saved: ClassVar[Mapping[str, str]] = {}  # attributes with what was learned, by key of ``state``

    def __init__(self, problem: PreselectionProblem) -> None:
        self.problem = problem
        self.n_chosen = 0  # contexts seen by ``choose``
        self.n_learnt = 0  # feedbacks that something was learned from
        self.n_ties = 0  # feedbacks that taught nothing; each that did takes a quarter off
        self.learns_ties = False
        self._draws = KeyedRandom(problem.seed, "preselection choice")

    def choose(
        self,
        contexts: FloatArray,
        k: int,
        *,
        allowed: BoolArray | None = None,
        draw: int | None = None,
    ) -> IntArray:
        """Return k distinct arms to run, the most promising first.

        Arms that always tie teach nothing, so a rule could run them for ever: while ``n_ties`` is
        100 or more, the last of the k arms is random.

        Args:
            contexts: (n, d) context vector of each arm.
            k: how many, 1 <= k <= arms allowed.
            allowed: (n,) arms that can be run; None if all can.
            draw: in [0, 2^64), decides the choice's random numbers; None counts up.

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
        ranked = np.lexsort((rng.random(len(index)), -index))  # (line 6); ties at random
        if self.n_ties >= _PATIENCE and n_allowed > k > 1:
            place = int(rng.integers(k, n_allowed))
            ranked[[k - 1, place]] = ranked[[place, k - 1]]
        return ranked[:k]

    def learn(self, feedback: Feedback) -> bool:
        """Learn from one feedback; return False if nothing was learned.

        From a tie of all, only rules with ``learns_ties`` learn. Raise ValueError if the contexts
        do not fit the problem.
        """
        self._check_contexts(feedback.contexts)
        if not feedback.n_ranked and not (self.learns_ties and feedback.scores is not None):
            self.n_ties += 1
            return False
        self.n_learnt += 1
        self.n_ties = self.n_ties * 3 // 4
        self._learn(feedback)
        return True

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that was learned, as arrays that the rule does not share."""
        counts = np.array([self.n_chosen, self.n_learnt, self.n_ties], dtype=np.int64)
        return {"counts": counts, **{key: value.copy() for key, value in self._arrays().items()}}

    def restore(self, state: Arrays) -> None:
        """Continue from a state of the same rule and problem; raises ValueError if incomplete."""
        present = self._arrays()
        self._check_complete(state)
        counts = [int(count) for count in state["counts"]]
        self.n_chosen, self.n_learnt = counts[:2]
        self.n_ties = counts[2] if len(counts) > 2 else 0  # states of version 0.1 lack it
        self._restore({key: np.array(state[key]) for key in present})

    def take_over(self, state: Arrays, places: IntArray) -> None:
        """Continue from a state of the same rule for fewer arms, the first of this problem's.

        Nothing is known of the new ones. ``places`` (d',) are the indices in this problem's
        features of each of the state's.
        """
        self._check_complete(state)
        fresh = {key: array.copy() for key, array in self._arrays().items()}
        self.restore({**state, **self._merged(fresh, state, places)})

    def _merged(
        self, fresh: dict[str, NDArray[Any]], state: Arrays, places: IntArray
    ) -> dict[str, NDArray[Any]]:
        """Copy a smaller state's arrays, which are over features, into fresh ones."""
        for key, array in fresh.items():
            array[np.ix_(*[places] * array.ndim)] = state[key]
        return fresh

    @abstractmethod
    def _index(self, contexts: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return (n,) indices; the arms of the largest are chosen, equal ones at random."""

    @abstractmethod
    def _learn(self, feedback: Feedback) -> None:
        """Learn from one feedback; ``n_learnt`` counts it already."""

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that ``state`` saves besides the counts."""
        return {key: getattr(self, name) for key, name in self.saved.items()}

    def _restore(self, arrays: Arrays) -> None:
        """Replace the arrays of ``_arrays``."""
        for key, name in self.saved.items():
            setattr(self, name, arrays[key])

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
