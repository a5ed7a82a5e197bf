"""The test that a risk is at most a target, one labelled example at a time.

The wealth of bets against "the risk is above alpha" is an e-process: if the risk is above alpha, it
ever reaches 1/delta with probability at most delta (Ville). So the test may be looked at after
every label, and stopped at any time.

R-Eval, R-AutoEval and R-AutoEval+ differ in their reliance factors only. Factor s bets on its own
observations and has the wealth E_s; the whole wealth is their weighted sum (equation 25), which
equals moving weight to the factors that did well (equation 13) after every round.

References:
    Park, Zecchin and Simeone (2025), section 3.1 and algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bestarm_agent.certification.bets import Bets, PlugInBets, UniversalPortfolio
from bestarm_agent.certification.portfolio_prior import FloatArray
from bestarm_agent.certification.reliance_factors import DEFAULT_FACTORS, reliance_factors
from bestarm_agent.errors import nearest

BETTING = ("portfolio", "plug-in")


@dataclass(frozen=True, slots=True)
class Goal:
    """The statement to be shown."""

    risk: float  # alpha in (0, 1): the largest mean loss that is good enough
    delta: float  # in (0, 1): probability with which a worse risk may ever be taken for good enough

    def __post_init__(self) -> None:
        for name, value in (("risk", self.risk), ("delta", self.delta)):
            if not 0.0 < value < 1.0:
                raise ValueError(f"{name} must be in (0, 1), got {value}")

    @property
    def enough(self) -> float:
        """Return the logarithm of the wealth 1/delta that certifies."""
        return -math.log(self.delta)


@dataclass(frozen=True, slots=True)
class Method:
    """The reliance factors and the betting rule of a test."""

    name: str = "r-autoeval+"  # "r-eval", "r-autoeval" or "r-autoeval+"
    betting: str = "portfolio"  # "portfolio" (equation 19) or "plug-in" (equation 20)
    n_factors: int = DEFAULT_FACTORS  # S of R-AutoEval+, >= 2
    horizon: int | None = None  # number of labels that plug-in bets plan for

    def reliance(self, n_autoevaluators: int = 1) -> FloatArray:
        """Return the (S, A) reliance factors; raises ValueError if there is no such method."""
        return reliance_factors(self.name, n_autoevaluators, self.n_factors)

    def bets(self, n_factors: int, delta: float) -> Bets:
        """Make the betting rule for so many factors of equal initial weight; raises ValueError."""
        log_weights = np.full(n_factors, -math.log(n_factors))
        if self.betting == "portfolio":
            return UniversalPortfolio(log_weights)
        if self.betting == "plug-in":
            return PlugInBets(log_weights, delta, self.horizon)
        raise ValueError(
            f"there is no betting rule {self.betting!r}; {nearest(self.betting, BETTING)}"
        )


class Evidence:
    """The wealth of a test, and its highest value.

    ``log_peak`` >= 0, the logarithm of the highest wealth in ``n`` rounds, is the e-value of the
    test. The betting rule must be fresh.
    """

    def __init__(self, goal: Goal, bets: Bets) -> None:
        self.goal = goal
        self.n = 0
        self.log_peak = 0.0
        self._bets = bets
        self._certain: float | None = None

    @property
    def log_wealth(self) -> float:
        """Return the logarithm of the present wealth."""
        return self._bets.log_wealth if self._certain is None else self._certain

    @property
    def certified(self) -> bool:
        """Return whether the wealth ever reached 1/delta: the risk is at most the target."""
        return self.log_peak >= self.goal.enough

    @property
    def weights(self) -> FloatArray:
        """Return the (S,) weights of the factors in the next round (equation 13); they sum to 1."""
        logs = self._bets.log_wealths
        shares = np.exp(logs - logs.max())  # initial weights are equal
        weights: FloatArray = shares / shares.sum()
        return weights

    def stakes(self) -> FloatArray:
        """Return the (S,) next bets, as shares in [0, 1] of the largest bet that cannot ruin."""
        return self._bets.stakes()

    def settle(self, observations: FloatArray, fair: float, spans: FloatArray) -> None:
        """Bet and settle one round; see ``Bets.push``."""
        self.n += 1
        if self._certain is None:
            self._bets.push(observations, fair, spans)
            self.log_peak = max(self.log_peak, self._bets.log_wealth)

    def decide(self, *, refuted: bool) -> None:
        """End the test with certainty, when the labels left cannot change the answer.

        If ``refuted``, "the risk is above the target" is certainly false, else certainly true.
        """
        self._certain = math.inf if refuted else -math.inf
        self.log_peak = max(self.log_peak, self._certain)


class RiskTest(Evidence):
    """The test that the mean loss over a population is at most ``goal.risk``.

    Rounds are independent draws from the population: a labelled example, and for each of A >= 0
    autoevaluators the mean guess over r other examples. Fresh ``bets`` may replace the method's.

    Example:
        >>> test = RiskTest(Goal(risk=0.2, delta=0.1))
        >>> while not test.certified:
        ...     test.push(0.0, [0.0], [0.05])
        >>> test.n
        22
    """

    def __init__(
        self,
        goal: Goal,
        method: Method | None = None,
        n_autoevaluators: int = 1,
        bets: Bets | None = None,
    ) -> None:
        method = method or Method()
        self.reliance = method.reliance(n_autoevaluators)
        super().__init__(goal, bets or method.bets(len(self.reliance), goal.delta))
        self._spans = 1.0 + np.abs(self.reliance).sum(axis=1) - goal.risk  # M_s - alpha

    def push(self, loss: float, guesses: ArrayLike = (), others: ArrayLike = ()) -> None:
        """Take the next labelled example.

        A ``loss`` above the true one is safe; outside [0, 1] it raises ValueError. ``guesses`` (A,)
        of it and mean guesses over r ``others`` (A,) are not checked, for speed, although the
        guarantee needs them to lie in [0, 1].
        """
        if not 0.0 <= loss <= 1.0:
            raise ValueError(f"a loss must be in [0, 1], got {loss}")
        apart = np.subtract(others, guesses)
        self.settle(loss + self.reliance @ apart, self.goal.risk, self._spans)

    def extend(self, losses: ArrayLike, guesses: ArrayLike, others: ArrayLike) -> FloatArray:
        """Take many labelled examples: the same as pushing each, and faster.

        ``losses`` are (n,), ``guesses`` and mean guesses over ``others`` (n, A), all in [0, 1],
        else ValueError. Return the (n,) ``log_wealth`` after each.
        """
        for name, values in (("losses", losses), ("guesses", guesses), ("others", others)):
            array = np.asarray(values)
            if not ((array >= 0) & (array <= 1)).all():  # NaN fails this too
                raise ValueError(f"{name} must be in [0, 1]")
        observations = effective_observations(self.reliance, losses, guesses, others)
        path = self._bets.extend(observations, self.goal.risk, self._spans)
        self.n += len(path)
        self.log_peak = max(self.log_peak, float(path.max()))
        return path


def effective_observations(
    reliance: FloatArray, losses: ArrayLike, guesses: ArrayLike, others: ArrayLike
) -> FloatArray:
    """Return the (n, S) observations of equation 10 for n rounds at once.

    ``reliance`` is (S, A), ``losses`` (n,), ``guesses`` and mean guesses over ``others`` (n, A).
    """
    apart = np.subtract(others, guesses)
    observations: FloatArray = np.asarray(losses)[:, None] + apart @ reliance.T
    return observations
