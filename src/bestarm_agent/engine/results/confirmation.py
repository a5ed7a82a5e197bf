"""The winner's number on examples that had no say in the choice.

The mean of a candidate that was chosen for its mean is too high on average: the luck that helped it
to be chosen is in that mean. Scores on examples kept back have no such luck. Given the choice they
are like scores on new examples, so the interval is for the mean over such (draws with replacement,
``betting``), and holds at all times, also if the budget ends early.

It is not for the mean over the N examples of the study. Of N fixed examples, those kept back are
what the choice left over: a candidate chosen for its luck on the one part was unlucky on the other.

The error probability alpha has room for later winners, should the run go on: the j-th one confirmed
gets 0.8 * 0.2^(j-1) of it. With a baseline a third of alpha is for the baseline's mean, and the
winner's part is halved between its mean and its difference to the baseline.

References:
    Andrews, Kitagawa and McCloskey (2024), "Inference on winners", Quarterly Journal of Economics
    139(1), on the bias. Waudby-Smith and Ramdas (2024), JRSS B 86(1), section 4 (the intervals).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bestarm_agent.selectors.types import State
from bestarm_agent.stats.agreement import Measure
from bestarm_agent.stats.betting import bet_grid, bounds_on_new
from bestarm_agent.store.run_state import RunState

_FIRST = 0.8  # of what is left of alpha, for each further winner
_BASELINE = 1.0 / 3.0

Ranges = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Confirmed:
    """One candidate on the examples kept back."""

    label: str
    n: int  # scores
    void: int  # pairs that could not be measured
    mean: Measure  # for new examples of the same kind


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The winner on the examples kept back, and the baseline, if one is named."""

    held_back: int  # examples
    confidence: float  # of all that is stated here, and was of earlier winners, together
    winner: Confirmed | None = None  # None while it was not asked on any of them
    baseline: Confirmed | None = None
    difference: Measure | None = None  # winner minus baseline

    @property
    def is_complete(self) -> bool:
        """Return whether every example kept back was asked and answered."""
        shown = [one for one in (self.winner, self.baseline) if one is not None]
        return bool(shown) and all(one.n + one.void == self.held_back for one in shown)


def confirmation(
    state: RunState, winner: str, baseline: str | None, confidence: float
) -> Confirmation:
    """Work out what a run on the examples kept back says of the candidate that is the winner now.

    Its candidates are the baseline, if there is one, and all winners so far, by label, in the order
    in which they won.
    """
    size, alpha = len(state.example_ids), 1.0 - confidence
    labels = [candidate.label for candidate in state.candidates]
    winners = [label for label in labels if label != baseline]
    if winner not in labels or not (one := _answers(state, labels.index(winner))):
        return Confirmation(size, confidence)
    each = _FIRST * (1.0 - _FIRST) ** winners.index(winner) * alpha if winner in winners else alpha
    if baseline is None:
        return Confirmation(size, confidence, _confirmed(winner, one, size, each))
    two = _answers(state, labels.index(baseline))
    reference = _confirmed(baseline, two, size, _BASELINE * alpha)
    if winner == baseline:
        return Confirmation(size, confidence, reference, reference)
    each *= (1.0 - _BASELINE) / 2
    found = _confirmed(winner, one, size, each)
    return Confirmation(size, confidence, found, reference, _difference(one, two, size, each))


def widest(n_held: int, confidence: float) -> float:
    """Return half the width of the first winner's interval if half of its answers are right."""
    halves = tuple((float(i % 2),) * 2 for i in range(n_held))
    found = mean_of_new(halves, n_held, _FIRST * (1.0 - confidence))
    return (found.upper - found.lower) / 2


def _answers(state: RunState, row: int) -> Mapping[int, tuple[float, float]]:
    """Return the scores of a candidate by example, as ranges, up to the first one pending."""
    found: dict[int, tuple[float, float]] = {}
    for seq in np.flatnonzero(state.asks["candidate"] == row).tolist():
        told = state.told[seq]
        if told["state"] == State.PENDING:
            break
        score = float(told["score"])
        found[int(state.asks["example"][seq])] = (
            (0.0, 1.0) if told["state"] == State.VOID else (score, score)
        )
    return found


def _confirmed(
    label: str, answers: Mapping[int, tuple[float, float]], n_planned: int, alpha: float
) -> Confirmed:
    ranges = tuple(answers.values())
    void = sum(low != high for low, high in ranges)
    measure = mean_of_new(ranges, n_planned, alpha)
    return Confirmed(label, len(ranges) - void, void, measure)


@lru_cache(maxsize=16)
def mean_of_new(ranges: Ranges, n_planned: int, alpha: float) -> Measure:
    """Bound the mean of what (n,) values in [0, 1] are independent draws of, each known as a range.

    ``n_planned`` draws are planned. The value is the mean of the middles; NaN without a draw.
    """
    low, high = np.array(ranges).reshape(-1, 2).T
    known = low[low == high]
    value = float(known.mean()) if len(known) else float("nan")
    return Measure(value, *bounds_on_new(low, high, alpha, bet_grid(n_planned, alpha / 2)))


def _difference(
    one: Mapping[int, tuple[float, float]],
    two: Mapping[int, tuple[float, float]],
    n_planned: int,
    alpha: float,
) -> Measure:
    """Bound the mean difference on the examples that both answered."""
    pairs = [(one[example], two[example]) for example in one if example in two]
    gains = tuple(((1.0 + a[0] - b[1]) / 2, (1.0 + a[1] - b[0]) / 2) for a, b in pairs)
    return Measure(*(2.0 * end - 1.0 for end in mean_of_new(gains, n_planned, alpha)))
