"""MM: the arms that win most, whatever the context; the baseline for a contextual rule."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.preselection.rules.base import Arrays, Preselector
from bestarm_agent.preselection.rules.types import (
    Feedback,
    FloatArray,
    IntArray,
    PreselectionProblem,
)


class Mm(Preselector):
    """Context-free Plackett-Luce utilities by the MM algorithm, ``steps`` steps per feedback.

    Each arm also has one win and one loss against an imaginary arm of utility 1, which keeps
    estimates finite. Equal sets of arms are counted, so a step costs at most the number of
    different sets met. Each step begins where the last ended.

    References:
        Hunter 2004, "MM algorithms for generalized Bradley-Terry models", section 5 (eq. 30).
    """

    name: ClassVar[str] = "mm"

    def __init__(self, problem: PreselectionProblem, *, steps: int = 2) -> None:
        if steps < 1:
            raise ValueError(f"steps must be at least 1, got {steps}")
        super().__init__(problem)
        self.steps = steps
        n = problem.n_arms
        self.utilities: FloatArray = np.ones(n)
        self._wins: FloatArray = np.ones(n)
        self._sets: FloatArray = np.zeros((0, n))  # (m, n) members of each stage met, 0 or 1
        self._counts: FloatArray = np.zeros(0)  # (m,) how often each was met
        self._row: dict[bytes, int] = {}

    def _index(self, contexts: FloatArray, rng: np.random.Generator) -> FloatArray:
        return self.utilities

    def _learn(self, feedback: Feedback) -> None:
        for stage in range(min(feedback.n_ranked, len(feedback.order) - 1)):
            self._wins[feedback.order[stage]] += 1
            self._count(feedback.order[stage:])
        for _ in range(self.steps):
            self._step()

    def _count(self, members: NDArray[np.intp]) -> None:
        row = np.zeros(self.problem.n_arms)
        row[members] = 1.0
        key = row.astype(np.uint8).tobytes()
        if key not in self._row:
            self._row[key] = len(self._counts)
            self._sets = np.vstack([self._sets, row])
            self._counts = np.append(self._counts, 0.0)
        self._counts[self._row[key]] += 1

    def _step(self) -> None:
        met = self._sets.T @ (self._counts / (self._sets @ self.utilities))
        imaginary = 2 / (self.utilities + 1)
        self.utilities = self._wins / (met + imaginary)  # (Hunter eq. 30)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "utilities": self.utilities,
            "wins": self._wins,
            "sets": self._sets.astype(np.uint8),
            "set_counts": self._counts,
        }

    def _restore(self, arrays: Arrays) -> None:
        self.utilities, self._wins = arrays["utilities"], arrays["wins"]
        self._sets, self._counts = arrays["sets"].astype(np.float64), arrays["set_counts"]
        self._row = {row.tobytes(): i for i, row in enumerate(arrays["sets"])}

    def _merged(
        self, fresh: dict[str, NDArray[Any]], state: Arrays, places: IntArray
    ) -> dict[str, NDArray[Any]]:
        """Copy arrays over arms; the new arms have met nobody."""
        n = len(state["utilities"])
        sets = np.zeros((len(state["sets"]), self.problem.n_arms), dtype=np.uint8)
        sets[:, :n] = state["sets"]
        fresh["utilities"][:n], fresh["wins"][:n] = state["utilities"], state["wins"]
        return {**fresh, "sets": sets, "set_counts": np.array(state["set_counts"])}
