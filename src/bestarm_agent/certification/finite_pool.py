"""The test on a finite pool of N examples, labelled without replacement, any of them next.

In round i, with the n examples left drawn with probabilities p,

    q_s = (l - rho_s g) / (n p) + rho_s gbar,   g the drawn example's guess, gbar the mean left  (1)

has the mean loss of the examples left as its expectation, for any p chosen before the label was
seen. If the risk is above alpha, that mean is above

    c = (N alpha - sum of earlier losses) / n                                                    (2)

which is the price of the round. Guesses are known for the whole pool, so what the autoevaluators
predict of the risk has no sampling error.

Labels may arrive in any order. They are settled in the order of asking, up to the first missing
one: the labels that came back first are no random sample. A label that never comes counts as a
loss of 1, which is safe.

References:
    Waudby-Smith and Ramdas (2024), JRSS B 86(1), section 5 (odds without replacement). Shekhar,
    Xu, Lipton, Liang and Ramdas (2023), "Risk-limiting financial audits via weighted sampling
    without replacement" (chosen examples). Neither is in the paper of R-AutoEval+.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.certification.evidence import Evidence, Goal, Method
from bestarm_agent.certification.portfolio_prior import FloatArray

_SLACK = 1e-9  # of sums of losses


@dataclass(frozen=True, slots=True)
class LabelAsk:
    """An example that is to be labelled."""

    seq: int  # its number, 0, 1, 2, ...
    example: int  # its index in the pool
    propensity: float  # probability of its draw among those left, in (0, 1]


@dataclass(frozen=True, slots=True)
class _Round:
    """Constants of a round, fixed when its example is drawn; S factors each."""

    scale: float  # 1 / (n p) of (1)
    offsets: FloatArray  # q_s = scale * loss + offset_s
    tops: FloatArray  # largest possible q_s
    n_left: int


class PoolTest(Evidence):
    """The test that the mean loss over a pool of N examples is at most ``goal.risk``.

    ``guesses`` (A, N) are what the autoevaluators take each loss for, in [0, 1]; A may be 0.
    ``left`` (n,) are the indices of the examples not asked for yet, rising.

    Example:
        >>> test = PoolTest(Goal(risk=0.2, delta=0.1), np.zeros((1, 100)))
        >>> rng = np.random.default_rng(0)
        >>> while not test.certified:
        ...     ask = test.ask(rng)
        ...     test.tell(ask.seq, loss=0.0)
        >>> test.n
        14
    """

    def __init__(self, goal: Goal, guesses: FloatArray, method: Method | None = None) -> None:
        if guesses.ndim != 2 or not guesses.shape[1]:
            raise ValueError(f"guesses must be (A, N) with N >= 1, got shape {guesses.shape}")
        if not ((guesses >= 0) & (guesses <= 1)).all():  # NaN fails this too
            raise ValueError("every guess must be in [0, 1]")
        method = method or Method()
        self.reliance = method.reliance(len(guesses))
        super().__init__(goal, method.bets(len(self.reliance), goal.delta))
        self.guesses = guesses
        self.left: NDArray[np.intp] = np.arange(guesses.shape[1])
        self._relied = self.reliance @ guesses  # (S, N): rho_s g
        self._total = 0.0
        self._rounds: list[_Round] = []
        self._losses: dict[int, float] = {}  # told, not settled

    @property
    def n_asked(self) -> int:
        """Return the number of labels asked for."""
        return len(self._rounds)

    def ask(self, rng: np.random.Generator, chances: FloatArray | None = None) -> LabelAsk:
        """Draw the next example to label.

        ``chances`` (n,) are relative, > 0, of the examples ``left`` (None: uniform), and may depend
        on everything told so far.

        Raises:
            ValueError: none is left, or the chances are not positive and finite.
        """
        if not len(self.left):
            raise ValueError(f"all {self.guesses.shape[1]} examples were asked for")
        p = self._propensities(chances)
        place = int(rng.choice(len(self.left), p=p))
        ask = LabelAsk(self.n_asked, int(self.left[place]), float(p[place]))
        self._note(place, p)
        return ask

    def adopt(self, ask: LabelAsk, chances: FloatArray | None = None) -> None:
        """Record an ask that was drawn elsewhere from the same pool, with the same chances.

        Raises ValueError on an ask that could not have been drawn next.
        """
        p = self._propensities(chances)
        place = int(np.searchsorted(self.left, ask.example))
        known = place < len(self.left) and self.left[place] == ask.example
        if ask.seq != self.n_asked or not known:
            raise ValueError(f"{ask} is not the next ask of this pool")
        if abs(p[place] - ask.propensity) > _SLACK:
            raise ValueError(f"{ask} was drawn with other chances: {p[place]} here")
        self._note(place, p)

    def tell(self, seq: int, loss: float | None) -> None:
        """Take a label, in any order; a second one for the same ask is ignored.

        A loss in [0, 1], or None if there will never be one: it then counts as 1.
        """
        if not 0 <= seq < self.n_asked:
            raise ValueError(f"no label was asked for under number {seq}")
        if loss is not None and not 0.0 <= loss <= 1.0:
            raise ValueError(f"a loss must be in [0, 1], got {loss}")
        if seq >= self.n:
            self._losses.setdefault(seq, 1.0 if loss is None else loss)
        while self.n in self._losses:
            self._settle_round(self._rounds[self.n], self._losses.pop(self.n))

    def _propensities(self, chances: FloatArray | None) -> FloatArray:
        if chances is None:
            return np.full(len(self.left), 1 / len(self.left))
        if chances.shape != self.left.shape or not (np.isfinite(chances) & (chances > 0)).all():
            raise ValueError(f"chances must be {len(self.left)} positive finite numbers")
        p: FloatArray = chances / chances.sum()
        return p

    def _note(self, place: int, p: FloatArray) -> None:
        relied = self._relied[:, self.left]
        scales = 1.0 / (len(self.left) * p)
        means = relied.mean(axis=1)
        self._rounds.append(
            _Round(
                scale=float(scales[place]),
                offsets=means - scales[place] * relied[:, place],
                tops=means + (scales * (1.0 - relied)).max(axis=1),
                n_left=len(self.left),
            )
        )
        self.left = np.delete(self.left, place)

    def _settle_round(self, round_: _Round, loss: float) -> None:
        n_left = round_.n_left
        fair = (self.guesses.shape[1] * self.goal.risk - self._total) / n_left  # (2)
        self._total += loss
        self.settle(round_.scale * loss + round_.offsets, fair, round_.tops - fair)
        allowed = self.guesses.shape[1] * self.goal.risk + _SLACK
        if self._total > allowed:
            self.decide(refuted=False)
        elif self._total + n_left - 1 <= allowed:
            self.decide(refuted=True)
