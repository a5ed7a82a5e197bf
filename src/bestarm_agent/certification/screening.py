"""One candidate's test in both directions, with its history.

Forward: "the risk is above the target" is to be refuted; then the candidate is certified. Backward:
the same test of 1 - loss against 1 - target; when it is convinced, the risk is above the target and
more labels would be wasted. Stopping for that reason (or any other) never costs validity.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from bestarm_agent.certification.evidence import Evidence, Goal, Method, RiskTest
from bestarm_agent.certification.labelling import ResidualChances
from bestarm_agent.certification.pool import LabelAsk, PoolTest
from bestarm_agent.certification.priors import FloatArray

Range: TypeAlias = tuple[float, float]  # lowest and highest

_HAIR = 1.0 - 1e-6


class Verdict(StrEnum):
    """What the labels so far say about one candidate."""

    CERTIFIED = "certified"  # the risk is at most the target
    REFUTED = "refuted"  # it is above the target, with the same error probability
    UNDECIDED = "undecided"


def _above(goal: Goal) -> Goal:
    """The goal of the backward test; by a hair stricter, since a risk of the target is good."""
    return Goal((1.0 - goal.risk) * _HAIR, goal.delta)


class Screen:
    """What screens of both kinds share.

    Attributes:
        log_wealths: logarithm of the forward wealth after each label.
        weights: (S,) weights of the factors before each label.
    """

    def __init__(self, forward: Evidence, backward: Evidence) -> None:
        self._evidence = forward
        self._against = backward
        self.log_wealths: list[float] = []
        self.weights: list[FloatArray] = []

    @property
    def n(self) -> int:
        """How many labels are settled."""
        return self._evidence.n

    @property
    def log_e_value(self) -> float:
        """Logarithm of the highest forward wealth so far."""
        return self._evidence.log_peak

    @property
    def verdict(self) -> Verdict:
        """What is shown so far; it never changes once it is in."""
        if self._evidence.certified:
            return Verdict.CERTIFIED
        return Verdict.REFUTED if self._against.certified else Verdict.UNDECIDED


class DrawScreen(Screen):
    """Screens a candidate on independent draws; see ``RiskTest``.

    Example:
        >>> screen = DrawScreen(Goal(risk=0.2, delta=0.1), Method("r-eval"))
        >>> while screen.verdict is Verdict.UNDECIDED:
        ...     screen.push(1.0, [1.0], [0.9])
        >>> screen.verdict.value, screen.n
        ('refuted', 2)
    """

    def __init__(self, goal: Goal, method: Method | None = None, n_autoevaluators: int = 1) -> None:
        self._forward = RiskTest(goal, method, n_autoevaluators)
        self._backward = RiskTest(_above(goal), method, n_autoevaluators)
        super().__init__(self._forward, self._backward)

    @property
    def reliance(self) -> FloatArray:
        """(S, A) reliance factors."""
        return self._forward.reliance

    def push(self, loss: float | None, guesses: ArrayLike = (), others: ArrayLike = ()) -> None:
        """Take the next labelled example; see ``RiskTest.push``.

        Args:
            loss: in [0, 1], or None if its label will never come: the worst in both directions.
            guesses: (A,) what the autoevaluators take its loss for.
            others: (A,) mean guesses over other examples.
        """
        losses = (0.0, 1.0) if loss is None else (loss, loss)
        self.push_ranges(losses, (guesses, guesses), (others, others))

    def push_ranges(
        self,
        losses: Range,
        guesses: tuple[ArrayLike, ArrayLike],
        others: tuple[ArrayLike, ArrayLike],
    ) -> None:
        """Take an example of which only ranges are known: the worst counts, in both directions.

        Understating evidence is sound however the ranges came about: the observation that is used
        is at least the true one, in every round.

        Args:
            losses: lowest and highest true loss, in [0, 1].
            guesses: lowest and highest guesses, (A,) each.
            others: lowest and highest mean guesses over other examples, (A,) each.
        """
        self.weights.append(self._forward.weights)
        self._forward.push(losses[1], guesses[0], others[1])
        self._backward.push(
            1.0 - losses[0], np.subtract(1.0, guesses[1]), np.subtract(1.0, others[0])
        )
        self.log_wealths.append(self._forward.log_wealth)


class PoolScreen(Screen):
    """Screens a candidate on a finite pool; see ``PoolTest``.

    Args:
        goal: what is to be shown.
        guesses: (A, N) guesses.
        method: how.
        choose: whether to prefer examples whose guess is likely to be wrong.
    """

    def __init__(
        self,
        goal: Goal,
        guesses: FloatArray,
        method: Method | None = None,
        *,
        choose: bool = False,
    ) -> None:
        self._forward = PoolTest(goal, guesses, method)
        self._backward = PoolTest(_above(goal), 1.0 - guesses, method)
        super().__init__(self._forward, self._backward)
        self._chances = ResidualChances(guesses) if choose else None
        self._examples: list[int] = []

    @property
    def reliance(self) -> FloatArray:
        """(S, A) reliance factors."""
        return self._forward.reliance

    @property
    def n_left(self) -> int:
        """How many examples were not asked for yet."""
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
        """Label this example next: the next one of a uniformly random order of the pool.

        Raises:
            ValueError: it was asked for before.
        """
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
