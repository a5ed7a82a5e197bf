"""One candidate's test in both directions, with its history, and the choice of labels.

Forward: "the risk is above the target" is to be refuted; then the candidate is certified. Backward:
the same test of 1 - loss against 1 - target; once it is refuted, the risk is above the target and
more labels are useless. Stopping for that reason (or any other) never costs validity.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from bestarm_agent.certification.evidence import Evidence, Goal, Method, RiskTest
from bestarm_agent.certification.finite_pool import LabelAsk, PoolTest
from bestarm_agent.certification.portfolio_prior import FloatArray

Range: TypeAlias = tuple[float, float]  # lowest and highest
EvidenceT = TypeVar("EvidenceT", bound=Evidence)

_STRICTER = 1.0 - 1e-6
_GROUPS = 5
_UNIFORM = 0.5  # share of the chances
_PRIOR_WEIGHT = 4.0  # labels that the guess of a calibrated autoevaluator counts for


class Verdict(StrEnum):
    """The result of the labels so far for one candidate."""

    CERTIFIED = "certified"  # the risk is at most the target
    REFUTED = "refuted"  # it is above the target, with the same error probability
    UNDECIDED = "undecided"


def _above(goal: Goal) -> Goal:
    """Return the backward goal: slightly stricter, since a risk equal to the target is good."""
    return Goal((1.0 - goal.risk) * _STRICTER, goal.delta)


class Screen(Generic[EvidenceT]):
    """Common parts of screens on draws and on pools."""

    def __init__(self, forward: EvidenceT, backward: EvidenceT) -> None:
        self._forward = forward
        self._backward = backward
        self.log_wealths: list[float] = []  # of the forward test, after each label
        self.weights: list[FloatArray] = []  # (S,) of the factors before each label

    @property
    def n(self) -> int:
        """Return the number of settled labels."""
        return self._forward.n

    @property
    def log_e_value(self) -> float:
        """Return the logarithm of the highest forward wealth so far."""
        return self._forward.log_peak

    @property
    def verdict(self) -> Verdict:
        """Return the verdict so far; once decided it never changes."""
        if self._forward.certified:
            return Verdict.CERTIFIED
        return Verdict.REFUTED if self._backward.certified else Verdict.UNDECIDED


class DrawScreen(Screen[RiskTest]):
    """Screens a candidate on independent draws; see ``RiskTest``."""

    def __init__(self, goal: Goal, method: Method | None = None, n_autoevaluators: int = 1) -> None:
        super().__init__(
            RiskTest(goal, method, n_autoevaluators),
            RiskTest(_above(goal), method, n_autoevaluators),
        )

    def push(self, loss: float | None, guesses: ArrayLike = (), others: ArrayLike = ()) -> None:
        """Take the next labelled example; see ``RiskTest.push``.

        A loss of None, if its label will never come, is the worst in both directions.
        """
        losses = (0.0, 1.0) if loss is None else (loss, loss)
        self.push_ranges(losses, (guesses, guesses), (others, others))

    def push_ranges(
        self,
        losses: Range,
        guesses: tuple[ArrayLike, ArrayLike],
        others: tuple[ArrayLike, ArrayLike],
    ) -> None:
        """Take an example of which only ranges are known, at its worst value in both directions.

        Each range is (lowest, highest), (A,) each for guesses and others. Understating evidence is
        safe however the ranges came about: the observation used is at least the true one, in every
        round.
        """
        self.weights.append(self._forward.weights)
        self._forward.push(losses[1], guesses[0], others[1])
        self._backward.push(
            1.0 - losses[0], np.subtract(1.0, guesses[1]), np.subtract(1.0, others[0])
        )
        self.log_wealths.append(self._forward.log_wealth)


class PoolScreen(Screen[PoolTest]):
    """Screens a candidate on a finite pool; see ``PoolTest``.

    ``choose`` prefers examples whose guess is likely to be wrong.
    """

    def __init__(
        self,
        goal: Goal,
        guesses: FloatArray,
        method: Method | None = None,
        *,
        choose: bool = False,
    ) -> None:
        super().__init__(
            PoolTest(goal, guesses, method), PoolTest(_above(goal), 1.0 - guesses, method)
        )
        self._chances = ResidualChances(guesses) if choose else None
        self._examples: list[int] = []

    @property
    def n_left(self) -> int:
        """Return the number of examples not asked for yet."""
        return len(self._forward.left)

    def ask(self, rng: np.random.Generator) -> LabelAsk:
        """Draw the next example to label; raises ValueError if none is left."""
        left = self._forward.left
        chances = self._chances.of(left) if self._chances and len(left) else None
        ask = self._forward.ask(rng, chances)
        self._backward.adopt(ask, chances)
        self._examples.append(ask.example)
        return ask

    def take(self, example: int) -> LabelAsk:
        """Label this example next: the next one of a uniformly random order of the pool."""
        ask = LabelAsk(len(self._examples), example, 1.0 / max(1, self.n_left))
        self._forward.adopt(ask)
        self._backward.adopt(ask)
        self._examples.append(example)
        return ask

    def tell(self, seq: int, loss: float | None) -> None:
        """Take a label, in any order; None if there will never be one."""
        before, weights = self.n, self._forward.weights
        self._forward.tell(seq, loss)
        self._backward.tell(seq, None if loss is None else 1.0 - loss)
        if self._chances is not None and loss is not None:
            self._chances.learn(self._examples[seq], loss)
        for _ in range(self.n - before):
            self.weights.append(weights)
            self.log_wealths.append(self._forward.log_wealth)


class ResidualChances:
    """Chances of the next label: higher where the autoevaluators are likely to be wrong.

    The variance of a weighted draw is least with chances in proportion to the root mean square of
    the residual (loss minus guess). It is learned from the labels so far, in groups of examples
    with similar mean guesses. Half of the chances is uniform, which bounds the range of the
    observations.

    References:
        Zrnic and Candes (2024), "Active statistical inference", section 4.
    """

    def __init__(self, guesses: FloatArray) -> None:
        self._means = guesses.mean(axis=0) if len(guesses) else np.full(guesses.shape[1], 0.5)
        groups = np.minimum((self._means * _GROUPS).astype(int), _GROUPS - 1)
        self._groups = groups
        calibrated = self._means * (1.0 - self._means) + 0.01
        sizes = np.bincount(groups, minlength=_GROUPS)
        sums = np.bincount(groups, weights=calibrated, minlength=_GROUPS)
        self._squares = _PRIOR_WEIGHT * sums / np.maximum(sizes, 1)
        self._counts = np.full(_GROUPS, _PRIOR_WEIGHT)

    def learn(self, example: int, loss: float) -> None:
        """Take a label."""
        group = self._groups[example]
        self._squares[group] += (loss - self._means[example]) ** 2
        self._counts[group] += 1.0

    def of(self, examples: np.ndarray[tuple[int], np.dtype[np.intp]]) -> FloatArray:
        """Return the (n,) chances of the examples of these indices; they sum to 1."""
        spreads = np.sqrt(self._squares / self._counts)[self._groups[examples]]
        shares: FloatArray = spreads / spreads.sum()
        return _UNIFORM / len(examples) + (1.0 - _UNIFORM) * shares
