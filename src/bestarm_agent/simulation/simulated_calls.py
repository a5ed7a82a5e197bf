"""A score matrix that answers calls: shuffled, with virtual durations and failures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bestarm_agent.selectors.types import Ask, State, Tell
from bestarm_agent.simulation.score_matrices import ScoreMatrix
from bestarm_agent.stats.keyed_random import KeyedRandom

_DONE, _VOID = State.DONE, State.VOID  # looking a member up costs more than a score (Python 3.11)


@dataclass(frozen=True, slots=True)
class Latency:
    """Exponential call durations in virtual seconds, optionally longer for worse replies.

    A call of score s takes ``mean * (1 + (slowdown - 1) * (1 - s))`` seconds on average: wrong
    answers often come later (long reasoning, time-outs), which biases results that use finished
    calls only.
    """

    mean: float = 1.0  # average duration of a call of score 1, > 0
    # how many times longer a call of score 0 takes, > 0; 1: durations do not depend on scores
    slowdown: float = 1.0

    def __post_init__(self) -> None:
        if not self.mean > 0:
            raise ValueError(f"mean latency must be > 0 seconds, got {self.mean}")
        if not self.slowdown > 0:
            raise ValueError(f"slowdown must be > 0, got {self.slowdown}")

    def expected(self, score: float) -> float:
        """Return the average duration of a call of this score, in virtual seconds."""
        return self.mean * (1 + (self.slowdown - 1) * (1 - score))


@dataclass(frozen=True, slots=True)
class Conditions:
    """Concurrency, latency and failures of calls."""

    in_flight: int = 1  # number of concurrent calls, >= ``batch``
    batch: int = 1  # pairs asked for together, once that many slots are free, >= 1
    latency: Latency | None = None  # call durations; None: calls return in the order of asking
    # probability in [0, 1) that a call cannot be measured (it comes back void)
    failures: float = 0.0

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError(f"batch must be at least 1, got {self.batch}")
        if self.in_flight < self.batch:
            raise ValueError(
                f"in_flight must be at least the batch size {self.batch}, got {self.in_flight}:"
                " a batch is asked for once that many slots are free"
            )
        if not 0 <= self.failures < 1:
            raise ValueError(f"failures must be in [0, 1), got {self.failures}")

    @property
    def in_step(self) -> bool:
        """Return whether every batch is told before the next is asked: no clock is needed."""
        return self.latency is None and self.in_flight == self.batch


class SimulatedCalls:
    """The calls of one seed: rows and columns shuffled, outcomes drawn by ask number.

    Shuffling matters: rules break ties by index, and files are often sorted by score. A NaN cell
    comes back void. The same ``seed`` >= 0 gives the same calls.
    """

    def __init__(self, matrix: ScoreMatrix, seed: int, conditions: Conditions) -> None:
        n_rows, n_columns = matrix.scores.shape
        self.conditions = conditions
        self.rows = _permutation(n_rows, seed, "simulation rows")
        self.columns = _permutation(n_columns, seed, "simulation columns")
        self._scores = matrix.scores
        costs = np.zeros(n_rows) if matrix.costs is None else matrix.costs
        self._costs: list[float] = costs.tolist()
        self.costs = None if matrix.costs is None else tuple(self._costs[i] for i in self.rows)
        self.axes = None if matrix.axes is None else matrix.axes[self.rows]
        self._failing = KeyedRandom(seed, "simulation failures")
        self._waiting = KeyedRandom(seed, "simulation latency")

    @property
    def shape(self) -> tuple[int, int]:
        """Return (K, N)."""
        return len(self.rows), len(self.columns)

    def outcome(self, ask: Ask) -> Tell:
        """Evaluate a pair: its score and cost, or void."""
        row = self.rows[ask.pair.candidate]
        score = self._scores.item(row, self.columns[ask.pair.example])
        cost = self._costs[row]
        if score != score or self._fails(ask.seq):  # NaN differs from itself
            return Tell(ask.seq, _VOID, cost=cost)
        return Tell(ask.seq, _DONE, score, cost)

    def duration(self, tell: Tell) -> float:
        """Return the virtual seconds of a call; 0 without latency. Void counts as score 0."""
        latency = self.conditions.latency
        if latency is None:
            return 0.0
        return float(self._waiting.at(tell.seq).exponential(latency.expected(tell.score)))

    def _fails(self, seq: int) -> bool:
        share = self.conditions.failures
        return share > 0 and bool(self._failing.at(seq).random() < share)


def _permutation(n: int, seed: int, purpose: str) -> list[int]:
    order: list[int] = KeyedRandom(seed, purpose).at(0).permutation(n).tolist()
    return order
