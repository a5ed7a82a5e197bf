"""The programs that were published with two of the papers, where they depart from the papers.

Figures of the papers were made with these programs, so that a comparison needs them. Each class
changes one of the package's rules into what the program does, faults included.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bestarm_agent.selectors.rules.pulse import Predictions, Pulse, Step
from bestarm_agent.selectors.rules.ucb_e_lrf import LowRankEnsemble, UcbELrf
from bestarm_agent.selectors.types import BoolArray, FloatArray, Problem, State
from bestarm_agent.stats.arrays import IndexArray


class PublishedEnsemble(LowRankEnsemble):
    """The ensemble of banditeval, which mixes up its members.

    Column j of member e is fitted to the rows of member (e N + j) mod K_ens, and rows alike. First
    factors are standard normal: without a ridge, members then diverge when few cells are seen.
    Standard deviations divide by K_ens - 1.
    """

    def _first_rows(self, shape: tuple[int, int, int], rng: np.random.Generator) -> FloatArray:
        return rng.standard_normal(shape)

    def _all(self, cells: csr_array, factors: FloatArray) -> FloatArray:
        sums = super()._all(cells, factors)
        items, members = np.arange(len(sums))[:, None], np.arange(self.n_members)
        partners = self._partner(items, members, len(sums))[:, :, None]
        return np.take_along_axis(sums, partners, axis=1)

    def _partner(self, item: IndexArray, member: IndexArray, n_items: int) -> IndexArray:
        return (member * n_items + item) % self.n_members

    def spreads(self, rows: slice | list[int] = slice(None)) -> FloatArray:
        """(rows, N) standard deviations of the members' predictions, over K_ens - 1."""
        return super().spreads(rows) * self._correction()

    def cell_spreads(self, rows: IndexArray, columns: IndexArray) -> FloatArray:
        """(n,) spreads of single cells."""
        return super().cell_spreads(rows, columns) * self._correction()

    def _correction(self) -> float:
        return float(np.sqrt(self.n_members / (self.n_members - 1)))


class ColdUcbELrf(UcbELrf):
    """UCB-E-LRF that begins every fit anew rather than where the last one ended."""

    def _refit(self) -> None:
        self._is_fitted = False
        self._ensemble = self._new_ensemble()
        super()._refit()


class PublishedUcbELrf(ColdUcbELrf):
    """UCB-E-LRF as banditeval has it: in its bonus, only unseen examples count.

    The program also has a ridge of 0.1, which the package's rule takes as a parameter.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        ridge: float = 0.1,
        **rule: Any,  # noqa: ANN401 - the base class says what they are
    ) -> None:
        super().__init__(problem, ridge=ridge, **rule)

    _model = PublishedEnsemble

    def _measure_spreads(self) -> None:
        super()._measure_spreads()
        rows, columns = np.nonzero(np.isin(self.table.cells, (int(State.DONE), int(State.FAILED))))
        seen = self._ensemble.cell_spreads(rows, columns)
        self._totals -= np.bincount(rows, seen, self.table.n_candidates)


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
