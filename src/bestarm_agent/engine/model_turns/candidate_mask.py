"""Masks the candidates whose models have to wait for room in the memory that models share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

import numpy as np

from bestarm_agent.engine.limits.concurrency_gates import Gate
from bestarm_agent.engine.model_turns.judge_turns import JudgeTurns
from bestarm_agent.engine.model_turns.turns import ModelTurns
from bestarm_agent.providers.base import Provider, SharesMemory
from bestarm_agent.selectors.types import BoolArray

_Memory: TypeAlias = tuple[int, str]  # a provider and a part of its memory


@dataclass(frozen=True, slots=True)
class _Row:
    """A candidate's model and the turns of its memory; None where the memory is not shared."""

    turns: ModelTurns | None
    model: str
    holder: str = ""


class MemoryMask:
    """Masks candidates by the turns of their models, over all providers.

    Where no memory is shared, or all models fit into it, nothing is masked.
    """

    def __init__(self, judge_turns: JudgeTurns | None = None) -> None:
        self._judge_turns = judge_turns or JudgeTurns()
        self._rows: list[_Row] = []
        self._turns: dict[_Memory, ModelTurns] = {}
        self._gates: dict[_Memory, Gate] = {}

    def add(self, members: Sequence[tuple[Provider, str, Gate]]) -> None:
        """Let candidates join as the next rows, each with the gate of its provider's calls."""
        for provider, model, gate in members:
            turns = self._turns_of(provider, model, gate)
            if turns is None:
                self._rows.append(_Row(None, model))
                continue
            turns.add(model)
            self._rows.append(_Row(turns, model, turns.holder(model)))

    def mask(self) -> BoolArray | None:
        """Return (K,) whether it is a candidate's turn; None if all may be asked."""
        open_to = {key: self._open_to(key) for key in self._turns}
        if all(holders is None for holders in open_to.values()):
            return None
        by_turns = {id(self._turns[key]): holders for key, holders in open_to.items()}
        return np.array([_is_open(row, by_turns) for row in self._rows], dtype=np.bool_)

    def left(self) -> float:
        """Return how many asks, >= 1, may be made before ``mask`` changes."""
        return min((turns.left() for turns in self._turns.values()), default=inf)

    def note(self, candidate: int) -> None:
        """Note that a candidate was asked: turns are counted in asks."""
        row = self._rows[candidate]
        if row.turns is not None:
            row.turns.note(row.model)

    def end(self) -> bool:
        """End the turns of idle models; return False if that changes nothing."""
        idle = [key for key in self._turns if self._gates[key].inside == 0]
        return any(self._turns[key].end() for key in idle)

    def start_judging(self, *, at_once: bool) -> None:
        """Begin the judge's turn, if replies wait for it and no candidate's model is busy.

        ``at_once``: also if a candidate's turn is not over, since nothing is asked in it.
        """
        crowded = [key for key, turns in self._turns.items() if turns.is_crowded]
        if not self._judge_turns.waiting or self._judge_turns.is_judging:
            return
        if any(self._gates[key].inside for key in crowded):
            return
        if at_once or all(self._turns[key].open_to() is None for key in crowded):
            for key in crowded:
                self._turns[key].clear()
            self._judge_turns.open()

    def _open_to(self, key: _Memory) -> frozenset[str] | None:
        """Return what an ask may load now; nothing in the judge's turn or before it; None: all."""
        turns = self._turns[key]
        holders = turns.open_to()
        if not turns.is_crowded:
            return holders
        is_judges = holders is None and (self._gates[key].inside or self._judge_turns.waiting)
        return frozenset() if is_judges or self._judge_turns.is_judging else holders

    def _turns_of(self, provider: Provider, model: str, gate: Gate) -> ModelTurns | None:
        if not isinstance(provider, SharesMemory) or provider.loading_share is None:
            return None
        part = provider.footprint(model).part
        key = (id(provider), part)
        if key not in self._turns:
            judges = self._judge_turns.models_of(provider)
            near = [judge for judge in judges if provider.footprint(judge).part == part]
            self._turns[key] = ModelTurns(provider, provider.loading_share, near)
            self._judge_turns.watch(self._turns[key])
            self._gates[key] = gate
        return self._turns[key]


def _is_open(row: _Row, open_to: dict[int, frozenset[str] | None]) -> bool:
    if row.turns is None:
        return True
    holders = open_to[id(row.turns)]
    return holders is None or row.holder in holders
