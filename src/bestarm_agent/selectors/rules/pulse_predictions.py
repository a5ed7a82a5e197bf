"""Predicted scores of every candidate on every example, refitted as scores come in."""

from __future__ import annotations

from math import sqrt

import numpy as np

from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import BoolArray, FloatArray, State
from bestarm_agent.stats.arrays import SingleArray
from bestarm_agent.stats.models.example_factors import Factors

_DONE, _FAILED = int(State.DONE), int(State.FAILED)

_LEAST_VARIANCE = 1e-4  # of a predicted score: no example is out of reach of focused draws


class Rest:
    """The examples that a candidate has left: sums of its predictions, and focused draws.

    ``row`` (N,) holds the predicted scores, ``left`` (N,) marks the examples left. Focused draws go
    by the spread of the predictions.
    """

    def __init__(self, row: SingleArray, left: BoolArray, *, focused: bool = False) -> None:
        self.n = int(left.sum())
        guesses = row[left].astype(float)
        self.total, self.squares = float(guesses.sum()), float(guesses @ guesses)
        self._row, self._left = row, left
        self._reach = np.empty(0)
        if focused:  # now, not at the first draw: a resumed run must draw from the same numbers
            guesses = row.astype(float)
            spread = np.sqrt(np.maximum(guesses * (1.0 - guesses), _LEAST_VARIANCE))
            self._reach = np.cumsum(np.where(left, spread, 0.0))
        self._spread = float(self._reach[-1]) if focused else np.nan

    def drop(self, example: int) -> None:
        """Take one example away."""
        guess = float(self._row[example])
        self._left[example] = False
        self.n -= 1
        self.total -= guess
        self.squares -= guess * guess
        self._spread -= _spread(guess)

    def share(self, example: int) -> float:
        """Return the probability of a focused draw of this example, proportional to its spread."""
        return _spread(float(self._row[example])) / self._spread

    def draw(self, rng: np.random.Generator) -> int:
        """Draw an example by ``share``."""
        while True:  # what was dropped since ``_reach`` was summed up is refused
            at = int(np.searchsorted(self._reach, rng.random() * self._reach[-1], side="right"))
            if at < len(self._reach) and self._left[at]:
                return at


def _spread(guess: float) -> float:
    return sqrt(max(guess * (1.0 - guess), _LEAST_VARIANCE))


class Predictions:
    """Candidates' predicted scores from frozen example factors and what each has scored so far.

    A candidate stays at its last fit until ``refit``; before the first it is the average past
    candidate. Examples beyond those of the factors are taken to be average. Rows are worked out
    when they are first looked at.
    """

    def __init__(self, factors: Factors, table: ScoreTable) -> None:
        if factors.n_examples > table.n_examples:
            raise ValueError(
                f"history has factors of {factors.n_examples} examples, the problem has only"
                f" {table.n_examples}; align the history with the problem's examples"
            )
        self._learned = factors
        self._table = table
        self._positions: list[FloatArray] = []
        self._n_fitted: list[int] = []
        self._rows: dict[int, SingleArray] = {}
        self.grow()

    def grow(self) -> None:
        """Make room for candidates and examples that joined the table."""
        table, known = self._table, self._learned.n_examples
        columns = np.arange(table.n_examples)
        self._factors = self._learned.at(np.where(columns < known, columns, -1))
        n_new = table.n_candidates - len(self._positions)
        self._positions += [np.zeros(self._factors.rank) for _ in range(n_new)]
        self._n_fitted += [0] * n_new
        self._rows.clear()

    def row(self, candidate: int) -> SingleArray:
        """(N,) predicted scores in (0, 1); not to be changed."""
        row = self._rows.get(candidate)
        if row is None:
            row = self._rows[candidate] = self._factors.predict(self._positions[candidate])
        return row

    def refit(self, candidate: int) -> bool:
        """Fit a candidate to all its scores; return whether there were new ones."""
        table = self._table
        n_scored, _, _, _ = table.tally(candidate)
        if n_scored == self._n_fitted[candidate]:
            return False
        trials = np.asarray(table.row(candidate))
        state = table.state[trials]
        scored = trials[(state == _DONE) | (state == _FAILED)]
        self._positions[candidate] = self._factors.locate(
            table.example[scored], table.score[scored], self._positions[candidate]
        )
        self._n_fitted[candidate] = n_scored
        self._rows.pop(candidate, None)
        return True
