"""Random arms: the baseline that every rule must beat."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bestarm_agent.preselection.rules.base import Preselector
from bestarm_agent.preselection.rules.types import Feedback, FloatArray


class RandomArms(Preselector):
    """Choose k arms at random and learn nothing."""

    name: ClassVar[str] = "random"

    def _index(self, contexts: FloatArray, rng: np.random.Generator) -> FloatArray:
        return np.zeros(len(contexts))  # all equal: ties are broken at random

    def _learn(self, feedback: Feedback) -> None:
        return None
