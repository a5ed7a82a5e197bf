"""The record of everything asked and told, on which every rule works."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.selectors.types import Ask, Moves, State, Tell
from bestarm_agent.stats.arrays import FloatArray, IntArray

_Scalar = TypeVar("_Scalar", bound=np.generic)
# (n,) rows, examples, lower and upper ends of the scores, the trials of one row beside each other
Told: TypeAlias = tuple[IntArray, IntArray, FloatArray, FloatArray]

# plain integers for the paths that every pull takes: looking an enum member up costs as much as
# reading an array (Python 3.11)
_UNSEEN, _PENDING, _DONE, _FAILED, _VOID = (int(state) for state in State)
_OUTCOMES = (_DONE, _FAILED, _VOID)
_MOST_COST = float(np.finfo(float).max)


def _with_room(old: NDArray[_Scalar], *shape: int) -> NDArray[_Scalar]:
    """Return ``old`` if it is at least as large as ``shape``, else a zero-padded larger copy.

    Every axis that must grow doubles at least, so growing one by one costs amortised constant time.
    """
    sizes = list(zip(old.shape, shape, strict=True))
    if all(need <= have for have, need in sizes):
        return old
    return np.pad(
        old, [(0, max(need, 2 * have) - have if need > have else 0) for have, need in sizes]
    )


def by_row(told: Told) -> Iterator[tuple[int, IntArray, FloatArray, FloatArray]]:
    """Yield each row with its trials' examples, lower and upper ends."""
    rows, examples, low, high = told
    starts = (rows[1:] != rows[:-1]).nonzero()[0] + 1
    for start, end in pairwise([0, *starts.tolist(), len(rows)] if len(rows) else []):
        yield int(rows[start]), examples[start:end], low[start:end], high[start:end]


class ScoreTable:
    """Scores of K >= 0 candidates on N >= 0 examples, most of them unseen, in the order of asking.

    Trials are stored by their ask number ``seq``; the (K, N) grid holds one byte per cell, so a
    study of 2,000 x 12,000 opens in 24 MB. Statistics must use ``row``, which yields a candidate's
    trials in ask order: completion order is biased when wrong answers come back later.

    Attributes:
        n_trials: (K,) number of asked trials, in any state.
        total: (K,) sum of the scores seen.
        spent: (K,) sum of the costs told, void trials included.
    """

    def __init__(self, n_candidates: int, n_examples: int) -> None:
        self.n_candidates = n_candidates
        self.n_examples = n_examples
        self.n_asked = 0
        self.n_told = 0  # trials with an outcome, of all candidates
        self.n_scores = 0  # DONE or FAILED ones
        self.n_in_a_row = 0  # latest asks that went to one candidate
        # Arrays by ask number for the log, one byte for each cell for "was it asked", and a list of
        # ask numbers for each row: each answers one question without a scan of the others.
        self._cells = np.zeros((n_candidates, n_examples), dtype=np.int8)
        self._candidate, self._example, self._position = np.zeros((3, 64), dtype=np.int32)
        self._state, self._score = np.zeros(64, dtype=np.int8), np.zeros(64)
        # Counts are kept up to date with every ask and tell, since rules look at them before every
        # pull.
        self._by_state = np.zeros((len(State), n_candidates), dtype=np.int64)
        self.n_trials: IntArray = np.zeros(n_candidates, dtype=np.int64)
        self._n_settled = np.zeros_like(self.n_trials)  # trials before the first pending one
        self.total, self.spent = np.zeros(n_candidates), np.zeros(n_candidates)
        self._mean = np.full(n_candidates, np.nan)
        self._rows = [array("i") for _ in range(n_candidates)]  # a tenth of the size of lists

    def ask(self, ask: Ask) -> None:
        """Mark a pair as pending."""
        i, j = ask.pair
        if ask.seq != self.n_asked:
            raise ValueError(
                f"ask numbers follow one another: expected {self.n_asked}, got {ask.seq}"
            )
        if not (0 <= i < self.n_candidates and 0 <= j < self.n_examples):
            raise ValueError(f"{ask.pair} lies outside {self.n_candidates} x {self.n_examples}")
        if self._cells[i, j] != _UNSEEN:
            raise ValueError(f"{ask.pair} was asked before; a pair is asked at most once")
        self._reserve(ask.seq + 1)
        self.n_in_a_row = self.n_in_a_row + 1 if self.n_asked and i == self.latest else 1
        self.n_asked += 1
        self._candidate[ask.seq], self._example[ask.seq] = i, j
        self._position[ask.seq] = len(self._rows[i])
        self._state[ask.seq] = self._cells[i, j] = _PENDING
        self._by_state[_PENDING, i] += 1
        self.n_trials[i] += 1
        self._rows[i].append(ask.seq)

    def check(self, tell: Tell) -> None:
        """Check the outcome of an ask before it is recorded.

        Raises ValueError for an unknown ask, one that has an outcome, or a value out of its range.
        """
        if not 0 <= tell.seq < self.n_asked:
            raise ValueError(f"nothing was asked under number {tell.seq} (asked: {self.n_asked})")
        if tell.state not in _OUTCOMES:
            raise ValueError(f"a told state is DONE, FAILED or VOID, got {tell.state!r}")
        if not 0.0 <= tell.score <= 1.0:  # NaN fails this too
            raise ValueError(f"score must be in [0, 1], got {tell.score} for ask {tell.seq}")
        if tell.gold is not None and not 0.0 <= tell.gold <= 1.0:
            raise ValueError(f"gold must be in [0, 1], got {tell.gold} for ask {tell.seq}")
        if not 0.0 <= tell.cost <= _MOST_COST:
            raise ValueError(f"cost must be finite and >= 0, got {tell.cost} for ask {tell.seq}")
        if self._state[tell.seq] != _PENDING:
            raise ValueError(f"ask {tell.seq} was told before: each has one outcome")

    def tell(self, tell: Tell) -> None:
        """Record the outcome of an ask, which ``check`` found to be one."""
        i = int(self._candidate[tell.seq])
        self._state[tell.seq] = self._cells[i, self._example[tell.seq]] = tell.state
        self._settle(i)
        self._by_state[_PENDING, i] -= 1
        self._by_state[tell.state, i] += 1
        self.spent[i] += tell.cost
        self.n_told += 1
        if tell.state != _VOID:
            self._score[tell.seq] = tell.score
            self.total[i] += tell.score
            self._mean[i] = self.total[i] / (self._by_state[_DONE, i] + self._by_state[_FAILED, i])
            self.n_scores += 1

    def accepts(self, moves: Moves) -> bool:
        """Return whether ``ask`` and ``check`` would pass all of these."""
        is_tell, first = moves["number"] < 0, self.n_asked
        asks, tells = moves[~is_tell], moves[is_tell]
        rows, columns, seqs = asks["candidate"], asks["example"], ~tells["number"]
        cells = rows.astype(np.int64) * self.n_examples + columns
        n_before = first + np.cumsum(~is_tell)[is_tell]  # asks before each outcome
        # NaN stands for a score that is void and for no gold, and is wrong elsewhere.
        scores = np.where(tells["state"] == _VOID, 0.0, tells["score"])
        ranges = ((scores, 1.0), (np.nan_to_num(tells["gold"]), 1.0), (tells["cost"], _MOST_COST))
        return bool(
            np.array_equal(asks["number"], np.arange(first, first + len(asks)))
            and ((rows >= 0) & (rows < self.n_candidates)).all()
            and ((columns >= 0) & (columns < self.n_examples)).all()
            and (self._cells[rows, columns] == _UNSEEN).all()
            and len(np.unique(cells)) == len(asks)
            and (seqs < n_before).all()
            and (self._state[seqs[seqs < first]] == _PENDING).all()
            and len(np.unique(seqs)) == len(seqs)
            and np.isin(tells["state"], _OUTCOMES).all()
            and all(((values >= 0.0) & (values <= most)).all() for values, most in ranges)
        )

    def take(self, moves: Moves) -> None:
        """Take in asks and outcomes that it ``accepts``, as ``ask`` and ``tell`` would each."""
        is_tell, first = moves["number"] < 0, self.n_asked
        asks, tells = moves[~is_tell], moves[is_tell]
        # All asks come first: whether an outcome came between two of them is nothing to the table.
        rows, latest, self.n_asked = asks["candidate"], self.latest, first + len(asks)
        self._reserve(self.n_asked)
        self.candidate[first:], self.example[first:] = rows, asks["example"]
        self.state[first:] = self._cells[rows, asks["example"]] = _PENDING
        for seq, row in enumerate(rows.tolist(), first):
            self.n_in_a_row = self.n_in_a_row + 1 if seq and row == latest else 1
            latest, mine = row, self._rows[row]
            self._position[seq] = len(mine)
            mine.append(seq)
        np.add.at(self.n_trials, rows, 1)
        np.add.at(self._by_state[_PENDING], rows, 1)
        seqs, state = ~tells["number"], tells["state"]
        candidates = self._candidate[seqs]
        self._state[seqs] = self._cells[candidates, self._example[seqs]] = state
        for row in np.unique(candidates).tolist():
            self._settle(row)
        np.subtract.at(self._by_state[_PENDING], candidates, 1)
        np.add.at(self._by_state, (state, candidates), 1)
        # ``add.at`` adds one after the other, as ``tell`` does: the sums round alike.
        np.add.at(self.spent, candidates, tells["cost"])
        scores = np.where(state == _VOID, 0.0, tells["score"])
        self._score[seqs] = scores
        np.add.at(self.total, candidates, scores)
        self.n_told += len(tells)
        scored = candidates[state != _VOID]
        self._mean[scored] = self.total[scored] / self.n_scored[scored]
        self.n_scores += len(scored)

    def add_candidates(self, count: int) -> None:
        """Add ``count`` >= 0 unseen rows."""
        self.n_candidates += count
        self._cells = _with_room(self._cells, self.n_candidates, self.n_examples)
        self._by_state = np.pad(self._by_state, ((0, 0), (0, count)))
        for name in ("n_trials", "_n_settled", "total", "spent"):
            setattr(self, name, np.pad(getattr(self, name), (0, count)))
        self._mean = np.append(self._mean, np.full(count, np.nan))
        self._rows.extend(array("i") for _ in range(count))

    def add_examples(self, count: int) -> None:
        """Add ``count`` >= 0 unseen columns."""
        self.n_examples += count
        self._cells = _with_room(self._cells, self.n_candidates, self.n_examples)

    @property
    def latest(self) -> int:
        """The candidate of the latest ask; 0 before the first."""
        return int(self._candidate[max(0, self.n_asked - 1)])

    @property
    def cells(self) -> NDArray[np.int8]:
        """(K, N) ``State`` of every cell; a view, not to be written."""
        return self._cells[: self.n_candidates, : self.n_examples]

    @property
    def candidate(self) -> NDArray[np.int32]:
        """(asked,) candidate of every trial, by ask number."""
        return self._candidate[: self.n_asked]

    @property
    def example(self) -> NDArray[np.int32]:
        """(asked,) example of every trial, by ask number."""
        return self._example[: self.n_asked]

    @property
    def position(self) -> NDArray[np.int32]:
        """(asked,) place of every trial in its ``row``, from 0, by ask number."""
        return self._position[: self.n_asked]

    @property
    def state(self) -> NDArray[np.int8]:
        """(asked,) ``State`` of every trial, by ask number."""
        return self._state[: self.n_asked]

    @property
    def score(self) -> FloatArray:
        """(asked,) scores in [0, 1] by ask number; 0 where pending or void."""
        return self._score[: self.n_asked]

    @property
    def n_scored(self) -> IntArray:
        """(K,) number of DONE or FAILED trials."""
        return np.asarray(self._by_state[_DONE] + self._by_state[_FAILED])

    def count(self, state: State) -> IntArray:
        """(K,) number of asked trials in ``state`` (not UNSEEN: see ``n_unseen``)."""
        counts: IntArray = self._by_state[state]
        return counts

    @property
    def n_unseen(self) -> IntArray:
        """(K,) number of cells that were never asked."""
        return self.n_examples - self.n_trials

    def mean(self) -> FloatArray:
        """(K,) mean of the scores seen, in [0, 1]; NaN where none was."""
        return self._mean.copy()

    def certain(self) -> tuple[FloatArray, FloatArray]:
        """(K,) least and (K,) highest means over all N that the scores seen leave possible."""
        least = self.total / self.n_examples
        return least, least + (self.n_examples - self.n_scored) / self.n_examples

    def row(self, candidate: int) -> array[int]:
        """The ask numbers of one candidate's trials, in ask order; not to be changed."""
        return self._rows[candidate]

    def told_since(self, length: IntArray, rows: IntArray | None = None) -> Told:
        """Return what is told of rows beyond their first ``length`` (K,) trials.

        They are in the order of asking, as far as all before them are told: in order of completion
        scores would be biased whenever wrong answers take longer. A void trial may be anything in
        [0, 1] for good. ``rows``, by default all, are those looked at.
        """
        settled = self._n_settled
        rows = (settled > length).nonzero()[0] if rows is None else rows[(settled > length)[rows]]
        ends = zip(rows.tolist(), length[rows].tolist(), settled[rows].tolist(), strict=True)
        parts = [memoryview(self._rows[row])[start:end] for row, start, end in ends]
        seqs = np.frombuffer(b"".join(parts), dtype=np.intc)
        low = self._score[seqs]
        void = self._state[seqs] == _VOID
        high = np.where(void, 1.0, low) if void.any() else low
        examples = self._example[seqs].astype(np.int64)
        return self._candidate[seqs].astype(np.int64), examples, low, high

    def draw_unseen(self, candidate: int, rng: np.random.Generator) -> int:
        """Draw one of a candidate's unseen examples, of which there are some, uniformly."""
        row = self.cells[candidate]
        # A row that is nearly full is scanned. Otherwise at least one draw in eight hits an unseen
        # example, so that a few draws do, and the row is not looked at.
        if 8 * (len(row) - len(self._rows[candidate])) <= len(row):
            return int(rng.choice(np.flatnonzero(row == _UNSEEN)))
        while row[example := int(rng.integers(len(row)))] != _UNSEEN:
            pass  # a few tries find one, without scanning the row
        return example

    def _settle(self, row: int) -> None:
        """Count a row's trials up to the first pending one, of which some may have been told."""
        # Trials after it are held back even if they are told: which outcomes come early may depend
        # on the scores, but which trials come first in the order of asking does not.
        mine, n = self._rows[row], int(self._n_settled[row])
        while n < len(mine) and self._state[mine[n]] != _PENDING:
            n += 1
        self._n_settled[row] = n

    def _reserve(self, n_trials: int) -> None:
        if n_trials > len(self._candidate):
            for name in ("_candidate", "_example", "_position", "_state", "_score"):
                setattr(self, name, _with_room(getattr(self, name), n_trials))
