"""Made-up lessons of past candidates."""

from __future__ import annotations

import numpy as np

from bestarm_agent.stats.history import Factors, HistoryModel, Validation


def lesson(factors: Factors | int, gain: float = 0.4) -> HistoryModel:
    """Return factors, of so many random examples if a number is given, said to predict so well."""
    if isinstance(factors, int):
        rng = np.random.default_rng([factors, 75])
        factors = Factors(rng.normal(size=factors), rng.normal(size=(factors, 2)))
    return HistoryModel(factors, Validation(factors.rank, 4.0, gain, 0.01, 50))
