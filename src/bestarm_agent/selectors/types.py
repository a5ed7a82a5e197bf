"""Values of selectors, exchanged with callers and rules: integers, floats and arrays only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from math import inf, isnan
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.arrays import BoolArray, FloatArray, IntArray


def both(first: BoolArray | None, second: BoolArray | None) -> BoolArray | None:
    """Combine two (K,) masks; None allows all."""
    if first is None or second is None:
        return second if first is None else first
    return first & second


class State(IntEnum):
    """State of one (candidate, example) cell."""

    UNSEEN = 0
    PENDING = 1  # asked, not told yet
    DONE = 2  # scored
    FAILED = 3  # the candidate's own failure: counts, with the floor score
    VOID = 4  # could not be measured: says nothing about quality, is never asked again


class Pair(NamedTuple):
    """One cell of the score matrix."""

    candidate: int
    example: int


@dataclass(frozen=True, slots=True)
class Ask:
    """A pair that the selector wants evaluated.

    Attributes:
        seq: the ask's number, 0, 1, 2, ... in the order of asking.
        pair: to evaluate.
        reason: one or two words for people ("ucb", "warm-up", ...).
    """

    seq: int
    pair: Pair
    reason: str


@dataclass(frozen=True, slots=True)
class Tell:
    """The outcome of an ask.

    Attributes:
        seq: the ask's number.
        state: DONE, FAILED or VOID.
        score: in [0, 1]; the floor score if FAILED, ignored if VOID.
        cost: >= 0, in any unit that is the same for all tells.
        gold: a trusted score in [0, 1], where ``score`` is an autoevaluator's and there is one.
    """

    seq: int
    state: State
    score: float = 0.0
    cost: float = 0.0
    gold: float | None = None


# An ask or an outcome, as a log has it. ``number``: of an ask its own, of an outcome the complement
# ``~number`` of its ask's. The pair counts for asks alone, the rest for outcomes alone and as
# ``Tell`` has it: ``score`` is NaN where the pair is void, ``gold`` where there is none.
MOVE: Final = np.dtype(
    {
        "names": ["number", "candidate", "example", "state", "score", "cost", "gold"],
        "formats": ["i8", "i4", "i4", "i1", "f8", "f8", "f8"],
    }
)
Moves: TypeAlias = NDArray[np.void]  # (moves,) of type ``MOVE``, in their order


def events_of(moves: Moves) -> Iterator[Ask | Tell]:
    """Yield the asks and outcomes of a log one by one."""
    for number, row, column, state, score, cost, gold in moves.tolist():
        if number >= 0:
            yield Ask(number, Pair(row, column), "")
        else:
            known, trusted = 0.0 if isnan(score) else score, None if isnan(gold) else gold
            yield Tell(~number, State(state), known, cost, trusted)


class Guarantee(StrEnum):
    """Grounds of the intervals of ``Estimates``."""

    EXACT = "exact"  # every example was seen
    ANYTIME_VALID = "anytime-valid"  # holds at every stopping time, finite sample
    HEURISTIC = "heuristic"  # a model's opinion


@dataclass(frozen=True, slots=True)
class Estimates:
    """Estimates of every candidate's mean score over all N examples.

    Attributes:
        mean: (K,) point estimates in [0, 1]; NaN where nothing is known.
        lower: (K,) lower ends of the intervals, in [0, 1].
        upper: (K,) upper ends of the intervals, in [0, 1].
        n: (K,) number of scores seen (DONE or FAILED).
        guarantee: grounds of the intervals, which hold together with ``Problem.confidence``.
    """

    mean: FloatArray
    lower: FloatArray
    upper: FloatArray
    n: IntArray
    guarantee: Guarantee


@dataclass(frozen=True, slots=True)
class Verdict:
    """The selector's answer to "which candidate is best?".

    Attributes:
        best: index of the candidate with the highest estimate.
        tied: the other candidates that ``best`` is not proved to beat.
        guarantee: grounds of the proof.
    """

    best: int
    tied: tuple[int, ...]
    guarantee: Guarantee

    @property
    def separated(self) -> bool:
        """Return whether ``best`` is proved to beat all others."""
        return not self.tied


class Stop(StrEnum):
    """Reason why a selector asks nothing more unless candidates, examples or budget are added."""

    SEPARATED = "separated"  # the best beats all others at the asked confidence
    EXHAUSTED = "exhausted"  # no cell is left to ask
    BUDGET = "budget"  # the rule has carried out its plan for the budget of pulls
    INDIFFERENT = "indifferent"  # the best are complete and equal; no other reaches them
    LEVEL = "level"  # the examples cannot tell the remaining candidates apart
    WITHIN = "within"  # the best is proved to be as near to the highest mean as was asked for
    LABELS = "labels"  # people score what was collected, before more is
    VERDICT = "verdict"  # the rule has answered a question other than "which is best"


class Choice(NamedTuple):
    """A rule's choice, without the number that makes it an ``Ask``."""

    pair: Pair
    reason: str


@dataclass(frozen=True, slots=True)
class Problem:
    """The size of the task, and what a selector may go by.

    Attributes:
        n_candidates: K >= 0; may grow later.
        n_examples: N >= 1; may grow later.
        seed: >= 0.
        confidence: joint level of the intervals, in (0, 1).
        budget: number of pairs that may be asked in all, if known. Fixed-budget rules need it.
        open_ended: whether no cap of any kind ends the run.
        stop_when_separated: whether to stop asking once the best is separated from the rest, or
            complete and apart from all but its equals; where ``within`` is not given, also once all
            that may be better are about equal to the leading one, or it is proved to be nearer to
            the best than the N examples can tell apart. False asks for all answers, where the rule
            has no plan of its own. It takes intervals.
        within: stop once the best is proved to be at most this far below the highest mean, in (0,
            1); None: do not.
        for_new: whether "the best" means the best on new examples drawn like the N: to stop, that
            must be proved.
        draws: number of columns of one example, >= 1: j, j + N / draws, ... are draws of one. They
            depend on each other, so of new examples only the first that is asked tells something.
        independent: one example of each cluster of examples that depend on each other, drawn
            whatever the scores and the sizes of clusters; empty: no example depends on another. Of
            new examples only these tell something.
        costs: (K,) expected cost of one pull of each candidate, > 0, in the unit of ``Tell.cost``.
            The rule then works per unit of cost, and ``budget`` stands for the cost of so many
            pulls at the mean of these. None: it works per pull.
        track_intervals: whether to compute intervals. Without them every interval is [0, 1] and
            tells are fast: for simulations that read point estimates only.
        axes: (K, A) number of each candidate's level on every axis (model, prompt, ...), >= 0; -1
            for a level that it shares with no other. None: candidates have nothing in common.
    """

    n_candidates: int
    n_examples: int
    seed: int = 0
    confidence: float = 0.95
    budget: int | None = None
    open_ended: bool = False
    stop_when_separated: bool = True
    within: float | None = None
    for_new: bool = False
    draws: int = 1
    independent: tuple[int, ...] = ()
    costs: tuple[float, ...] | None = None
    track_intervals: bool = True
    axes: IntArray | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Check the ranges given above; raises ValueError."""
        k, n, draws, costs = self.n_candidates, self.n_examples, self.draws, self.costs or ()
        budget, within, has_intervals = self.budget, self.within, self.track_intervals
        axes = np.zeros((max(0, k), 1), int) if self.axes is None else np.asarray(self.axes)
        is_grid = axes.ndim == 2 and len(axes) == k and axes.shape[1] > 0
        # of many, one that breaks the rule
        outside = next((column for column in self.independent if not 0 <= column < n), None)
        odd = next((cost for cost in costs if not 0 < cost < inf), None)
        rules = {
            f"n_candidates must be >= 0, got {k}": k >= 0,
            f"n_examples must be >= 1, got {n}": n >= 1,
            f"draws must divide n_examples, got {draws}": draws > 0 and not n % draws,
            f"independent examples are in 0..{n - 1}, got {outside}": outside is None,
            f"seed must be >= 0, got {self.seed}": self.seed >= 0,
            f"confidence must be in (0, 1), got {self.confidence}": 0 < self.confidence < 1,
            f"budget must be at least 1 answer, got {budget}": budget is None or budget >= 1,
            f"within must be in (0, 1), got {within}": within is None or 0 < within < 1,
            "within needs intervals; set track_intervals=True": within is None or has_intervals,
            f"{k} candidates need as many costs, got {len(costs)}": self.costs is None
            or len(costs) == k,
            f"costs must be finite and > 0, got {odd}": odd is None,
            f"axes must be {k} candidates x at least 1 axis, got {axes.shape}": is_grid,
            "axes must be integers >= 0, or -1 for a level of its own": axes.dtype.kind in "iu"
            and axes.min(initial=0) >= -1,
        }
        for rule, holds in rules.items():
            if not holds:
                raise ValueError(rule)
        # Stopping at a proof takes intervals. Without them it is switched off here, once, so that
        # no rule needs to ask for both.
        if not has_intervals:
            object.__setattr__(self, "stop_when_separated", False)  # nothing can be proved
        if self.axes is not None:
            object.__setattr__(self, "axes", axes.astype(np.int64))

    @property
    def seeks_proof(self) -> bool:
        """Return whether a run may stop at a guarantee, before its budget is spent."""
        return self.stop_when_separated or self.within is not None

    @property
    def ends_level(self) -> bool:
        """Return whether it is enough that the N examples cannot tell those that are open apart."""
        return self.stop_when_separated and self.within is None


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """A rule's estimates of its candidates."""

    mean: FloatArray  # (K,) point estimates; NaN where nothing is known
    tier: IntArray | None = None  # (K,) numbers that rank before the estimates, lowest first
