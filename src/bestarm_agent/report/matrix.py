"""Candidates by examples, one character a cell: what was seen of each pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bestarm_agent.selectors.types import State
from bestarm_agent.store.run_state import RunState

NOT_ASKED, PENDING, VOID, FAILED = ".pvf"  # the other codes are scores, 0 to 9 for 0 to 1
_CODES = {State.PENDING: PENDING, State.VOID: VOID, State.FAILED: FAILED}
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
    row, example = state.asks.candidate, state.asks.example
    asked = np.isin(row, rows)
    columns = _sampled(_by_difficulty(state, set(example[asked].tolist())))
    column = {j: k for k, j in enumerate(columns)}
    cells = np.full((len(rows), len(columns)), NOT_ASKED)
    for seq in np.flatnonzero(asked & np.isin(example, columns)).tolist():
        i, j = state.asks.pair(seq)
        cells[place[i], column[j]] = _code(state, seq)
    return Matrix(rows, columns, ["".join(line) for line in cells.tolist()])


def _by_difficulty(state: RunState, examples: set[int]) -> list[int]:
    score = state.told.score
    seen, n = ~np.isnan(score), len(state.example_ids)
    example = state.asks.example[: len(score)][seen]
    total, count = np.bincount(example, score[seen], n), np.bincount(example, minlength=n)
    means = (total + 0.5) / (count + 1)  # an example that few saw is of middling difficulty
    return sorted(examples, key=lambda j: (-means[j], j))


def _sampled(columns: list[int]) -> list[int]:
    if len(columns) <= _MOST_COLUMNS:
        return columns
    return [columns[k] for k in np.linspace(0, len(columns) - 1, _MOST_COLUMNS).astype(int)]


def _code(state: RunState, seq: int) -> str:
    code = _CODES.get(state.told.state_at(seq))
    return str(round(9 * (state.told.score_at(seq) or 0.0))) if code is None else code
