"""Candidates by examples, one character a cell: what was seen of each pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bestarm_agent.domain.outcome import Failed
from bestarm_agent.store.run_state import RunState

NOT_ASKED, PENDING, VOID, FAILED = ".pvf"  # the other codes are scores, 0 to 9 for 0 to 1
_MOST_ROWS = 200
_MOST_COLUMNS = 400


@dataclass(frozen=True, slots=True)
class Matrix:
    """The cells of the candidates with the highest estimates and of examples of all difficulties.

    Attributes:
        rows: rows of the log, best first.
        columns: columns of the log, the example with the highest mean score first.
        cells: a string for each row.
    """

    rows: Sequence[int]
    columns: Sequence[int]
    cells: Sequence[str]


def matrix_of(state: RunState, ranking: Sequence[int]) -> Matrix:
    """Draw the pairs that were asked; large studies are sampled evenly over the difficulties."""
    rows = list(ranking[:_MOST_ROWS])
    place = {row: k for k, row in enumerate(rows)}
    asked = [ask for ask in state.asks if ask.candidate in place]
    columns = _sampled(_by_difficulty(state, {ask.example for ask in asked}))
    column = {j: k for k, j in enumerate(columns)}
    cells = np.full((len(rows), len(columns)), NOT_ASKED)
    for ask in asked:
        if ask.example in column:
            cells[place[ask.candidate], column[ask.example]] = _code(state, ask.seq)
    return Matrix(rows, columns, ["".join(line) for line in cells.tolist()])


def _by_difficulty(state: RunState, examples: set[int]) -> list[int]:
    total, count = np.zeros((2, len(state.example_ids)))
    for seq, told in state.told.items():
        if told.score is not None:
            total[state.asks[seq].example] += told.score
            count[state.asks[seq].example] += 1
    means = (total + 0.5) / (count + 1)  # an example that few saw is of middling difficulty
    return sorted(examples, key=lambda j: (-means[j], j))


def _sampled(columns: list[int]) -> list[int]:
    if len(columns) <= _MOST_COLUMNS:
        return columns
    return [columns[k] for k in np.linspace(0, len(columns) - 1, _MOST_COLUMNS).astype(int)]


def _code(state: RunState, seq: int) -> str:
    told = state.told.get(seq)
    if told is None:
        return PENDING
    if told.score is None:
        return VOID
    return FAILED if isinstance(told.outcome, Failed) else str(round(9 * told.score))
