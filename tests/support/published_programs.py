"""The program that was published with PULSE, where it departs from the paper, faults included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.selectors.rules.pulse import Predictions, Pulse, Step
from bestarm_agent.selectors.types import BoolArray, Problem, State


class PublishedPulse(Pulse):
    """PULSE as published: predictions of examples seen before a refit stay in the sum.

    That makes its estimates too high.
    """

    def __init__(self, problem: Problem, **rule: Any) -> None:  # noqa: ANN401
        super().__init__(problem, **rule)
        self._seen_before: dict[int, NDArray[np.bool_]] = {}  # cells asked before the last refit

    def _begin(self, predictions: Predictions, candidate: int, example: int) -> Step:
        asked: BoolArray = self.table.cells[candidate] != int(State.UNSEEN)
        asked[example] = False
        last = self._round[candidate]
        step = super()._begin(predictions, candidate, example)
        if self._round[candidate] != last:
            self._seen_before[candidate] = asked
        if candidate not in self._seen_before:
            return step
        stale = predictions.row(candidate)[self._seen_before[candidate]].sum(dtype=float)
        return replace(step, predicted=step.predicted + float(stale))

    def changed(self) -> None:
        self._seen_before.clear()
        super().changed()
