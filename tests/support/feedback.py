"""Feedback for tests of preselection rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bestarm_agent.preselection.rule import FloatArray, RankedArms


def winner_feedback(contexts: FloatArray, shown: Sequence[int], winner: int) -> RankedArms:
    """Return feedback that names the best of the arms that were run."""
    others = [arm for arm in shown if arm != winner]
    return RankedArms(contexts, np.array([winner, *others], dtype=np.intp))
