"""The program that was published with PULSE, where it departs from the paper, faults included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bestarm_agent.selectors.rules.pulse import Pulse, Step
from bestarm_agent.selectors.types import Problem
from bestarm_agent.stats.arrays import IntArray


class PublishedPulse(Pulse):
    """PULSE as published: predictions of examples seen before a refit stay in the sum.

    That makes its estimates too high.
    """

    def __init__(self, problem: Problem, **rule: Any) -> None:  # noqa: ANN401
        super().__init__(problem, **rule)
        self._seen_before: dict[int, IntArray] = {}  # examples asked before the last refit

    def _begin(self, candidate: int, position: int) -> Step:
        predictions = self._predictions[candidate]
        asked = self.table.example[self.table.row(candidate)[:position]].astype(np.int64)
        last = predictions.round
        step = super()._begin(candidate, position)
        if predictions.round != last:
            self._seen_before[candidate] = asked
        if candidate not in self._seen_before:
            return step
        stale = predictions.row[self._seen_before[candidate]].sum(dtype=float)
        return replace(step, predicted=step.predicted + float(stale))
