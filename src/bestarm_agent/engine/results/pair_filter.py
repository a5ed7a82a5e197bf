"""Conditions that choose pairs of a run, and the scores of one candidate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bestarm_agent.domain.outcome import RIGHT
from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.selectors.types import State
from bestarm_agent.store.export import labels
from bestarm_agent.store.run_state import RunState, ToldPairs


@dataclass(frozen=True, slots=True)
class PairFilter:
    """Conditions that pairs must all meet."""

    candidate: str | None = None  # label or id
    example: str | None = None  # id
    wrong: bool = False  # scored below one half
    failed: bool = False  # without an answer that could be scored

    def chosen(self, state: RunState) -> list[int]:
        """Return the numbers of the asks of a run that meet the conditions.

        Raises:
            ConfigError: there is no such candidate or example.
        """
        row = None if self.candidate is None else row_of(state, self.candidate)
        column = None if self.example is None else _column_of(state, self.example)
        is_chosen = np.full(len(state.asks), True)
        if row is not None:
            is_chosen &= state.asks.candidate == row
        if column is not None:
            is_chosen &= state.asks.example == column
        found = [s for s in np.flatnonzero(is_chosen).tolist() if _meets(state.told, s, self)]
        return found


def row_of(state: RunState, name: str) -> int:
    """Return the row of a candidate, by its label or id.

    Raises:
        ConfigError: there is none.
    """
    for known in (labels(state), [candidate.id for candidate in state.candidates]):
        if name in known:
            return known.index(name)
    raise ConfigError(f"the run has no candidate {name!r}; {nearest(name, labels(state))}")


def scores_of(state: RunState, row: int) -> dict[int, tuple[int, float]]:
    """Return ask number and score of every scored example of a candidate, by column."""
    found = {}
    for seq in np.flatnonzero(state.asks.candidate == row).tolist():
        score = state.told.score_at(seq)
        if score is not None:
            found[state.asks.pair(seq)[1]] = (seq, score)
    return found


def _column_of(state: RunState, example: str) -> int:
    if example not in state.example_ids:
        known = nearest(example, state.example_ids)
        raise ConfigError(f"the run has no example {example!r}; {known}")
    return state.example_ids.index(example)


def _meets(told: ToldPairs, seq: int, only: PairFilter) -> bool:
    score = told.score_at(seq)
    if only.wrong and (score is None or score >= RIGHT):
        return False
    return not only.failed or told.state_at(seq) in (State.FAILED, State.VOID)
