"""Random arms: the baseline that every rule must beat."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.preselection.rules.base import Arrays, Preselector
from bestarm_agent.preselection.rules.types import Feedback, FloatArray


class RandomArms(Preselector):
    """Choose k arms at random and learn nothing."""

    name: ClassVar[str] = "random"

    def _index(self, contexts: FloatArray, rng: np.random.Generator) -> FloatArray:
        return np.zeros(len(contexts))  # all equal: ties are broken at random

    def _learn(self, feedback: Feedback) -> None:
        return None

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {}

    def _restore(self, arrays: Arrays) -> None:
        return None
