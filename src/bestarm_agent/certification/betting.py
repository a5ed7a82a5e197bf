r"""R-AutoEval+: the test by betting that a risk is at most a target.

Algorithm 1 of the paper (its appendix B has no line numbers; these are ours). Somebody who doubts
that the risk R is above the target alpha bets against it, with S factors that rely on the guesses
of an autoevaluator to different degrees:

     1  E_0 = 1, E_{s,0} = 1, w_{s,1} = w_{s,0}, lambda_{s,1} = Alg()   for s = 1 ... S
     2  for i = 1 ... n
     3      for s = 1 ... S
     4          l_{s,i} = rho_s * (mean guess over r others) + loss_i - rho_s * guess_i    (10)
     5          E_{s,i} = E_{s,i-1} * (1 - lambda_{s,i} (l_{s,i} - alpha))                 (12)
     6          lambda_{s,i+1} = Alg(l_{s,1}, ..., l_{s,i})                     (19) or (20, 21)
     7      E_i = E_{i-1} * sum_s w_{s,i} (1 - lambda_{s,i} (l_{s,i} - alpha))             (11)
     8      w_{s,i+1} = w_{s,0} E_{s,i} / sum_t w_{t,0} E_{t,i}                            (13)
     9  return whether max_i E_i >= 1 / delta

An observation l_s has the mean R for every rho_s in [0, 1], and is at most M_s = 1 + rho_s, so a
bet lambda_s in [0, 1/(M_s - alpha)) keeps the wealth E_s above 0. Line 7 telescopes to

    E_i = sum_s w_{s,0} E_{s,i}                                                            (25)

which is what is computed here, with w_{s,0} = 1/S. If R is above alpha, E_i ever reaches 1/delta
with probability at most delta (Ville). So the test may be looked at after every label and stopped
at any time. R-Eval is the one factor 0, R-AutoEval the one factor 1.

Bets are stated as shares b = lambda_s (M_s - alpha) in [0, 1) of the largest one.

References:
    Park, Zecchin and Simeone (2025), "Adaptive prediction-powered AutoEval with reliability and
    efficiency guarantees". Cover (1991), "Universal portfolios", Mathematical Finance 1(1).
    Waudby-Smith and Ramdas (2024), "Estimating means of bounded random variables by betting",
    JRSS B 86(1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from bestarm_agent.errors import nearest
from bestarm_agent.stats.arrays import FloatArray

METHODS = ("r-eval", "r-autoeval", "r-autoeval+")

_FOLD_EVERY = 32  # rounds between logarithms: so long, products stay in the range of floats
_MOST_AT_ONCE = 16_384  # strategies; with more, a block of rounds would not fit into a cache
_CAP = 0.75  # c of equation 20
_FIRST_MEAN, _FIRST_VARIANCE = 0.5, 0.25  # the guesses of equation 21


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
    n_factors: int = 10  # S of R-AutoEval+, >= 2; 10 in the paper's experiments
    horizon: int | None = None  # number of labels that plug-in bets plan for

    def reliance(self) -> FloatArray:
        """Return the (S,) reliance factors rho_s (equation 9).

        Raises:
            ValueError: there is no such method, or there are too few factors.

        Example:
            >>> Method(n_factors=3).reliance().tolist()
            [0.0, 0.5, 1.0]
        """
        if self.name not in METHODS:
            raise ValueError(f"there is no method {self.name!r}; {nearest(self.name, METHODS)}")
        if self.name == "r-autoeval+" and self.n_factors < 2:
            raise ValueError(f"{self.name} needs 2 or more reliance factors, got {self.n_factors}")
        if self.name == "r-autoeval+":
            return np.linspace(0.0, 1.0, self.n_factors)
        return np.array([0.0 if self.name == "r-eval" else 1.0])

    def bets(self, goal: Goal, spans: FloatArray) -> BettingRule:
        """Make the betting rule for factors whose largest bets are 1 / ``spans``.

        Raises:
            ValueError: there is no such betting rule.
        """
        if self.betting == "portfolio":
            return UniversalPortfolio(goal.risk, spans)
        if self.betting == "plug-in":
            return PlugInBets(goal, spans, self.horizon)
        known = "portfolio", "plug-in"
        raise ValueError(
            f"there is no betting rule {self.betting!r}; {nearest(self.betting, known)}"
        )


class RiskTest:
    """Algorithm 1: the test that the mean loss over a population is at most ``goal.risk``.

    Rounds are independent draws from the population: a labelled example, and the autoevaluator's
    mean guess over r others.

    Attributes:
        reliance: (S,) the factors rho_s.
        n: number of rounds so far.
        log_peak: logarithm of the highest wealth so far, >= 0: the e-value of the test.

    Example:
        >>> test = RiskTest(Goal(risk=0.2, delta=0.1))
        >>> while not test.certified:
        ...     test.push(0.0, guess=0.0, others=0.05)
        >>> test.n
        22
    """

    def __init__(self, goal: Goal, method: Method | None = None) -> None:
        method = method or Method()
        self.goal = goal
        self.reliance = method.reliance()
        self.n = 0
        self.log_peak = 0.0
        # M_s is reached where the loss is 1, the others' mean guess 1 and the own guess 0; the
        # payoff l_s - alpha is then M_s - alpha, and a bet of its inverse loses everything.
        tops = 1.0 + self.reliance  # M_s
        self._bets = method.bets(goal, tops - goal.risk)  # line 1

    @property
    def log_wealth(self) -> float:
        """Return the logarithm of the present wealth E_i (equation 25)."""
        return self._bets.log_wealth

    @property
    def certified(self) -> bool:
        """Return whether the wealth ever reached 1/delta (line 9): the risk is at most alpha."""
        return self.log_peak >= self.goal.enough

    @property
    def weights(self) -> FloatArray:
        """Return the (S,) weights w_s of the next round (line 8, equation 13); they sum to 1."""
        logs = self._bets.log_wealths
        shares = np.exp(logs - logs.max())  # initial weights are equal
        weights: FloatArray = shares / shares.sum()
        return weights

    def stakes(self) -> FloatArray:
        """Return the (S,) next bets (line 6), as shares in [0, 1] of the largest."""
        return self._bets.stakes()

    def push(self, loss: float, guess: float = 0.0, others: float = 0.0) -> None:
        """Take the next labelled example: one pass through the loop of lines 2 to 8.

        A ``loss`` above the true one is safe. Raises ValueError if it, the ``guess`` of it or the
        mean guess over ``others`` is outside [0, 1].
        """
        for what, value in (("loss", loss), ("guess", guess), ("mean guess", others)):
            if not 0.0 <= value <= 1.0:  # NaN fails this too
                raise ValueError(f"a {what} must be in [0, 1], got {value}")
        self.n += 1
        # The wealth is settled with bets that were fixed before this round: ``push`` of a betting
        # rule settles first and learns afterwards, in this order.
        self._bets.push(loss + self.reliance * (others - guess))  # lines 4 to 6
        # By Ville's inequality the *highest* wealth ever reached is an e-value too, so a bad
        # stretch after the certificate does not undo it.
        self.log_peak = max(self.log_peak, self._bets.log_wealth)  # lines 7 and 9

    def extend(self, losses: ArrayLike, guesses: ArrayLike, others: ArrayLike) -> FloatArray:
        """Take many labelled examples: the same as pushing each, and faster.

        ``losses``, ``guesses`` and mean guesses over ``others`` are (n,), all in [0, 1], else
        ValueError. Return the (n,) ``log_wealth`` after each.
        """
        given = {"losses": losses, "guesses": guesses, "others": others}
        values = {name: np.asarray(array, dtype=np.float64) for name, array in given.items()}
        for name, array in values.items():
            if not ((array >= 0) & (array <= 1)).all():  # NaN fails this too
                raise ValueError(f"{name} must be in [0, 1]")
        apart = values["others"] - values["guesses"]
        path = self._bets.extend(values["losses"][:, None] + np.outer(apart, self.reliance))
        self.n += len(path)
        self.log_peak = max(self.log_peak, float(path.max(initial=0.0)))
        return path


class BettingRule(Protocol):
    """A betting rule for S factors of equal initial weight, and the wealth that it earned."""

    @property
    def log_wealths(self) -> FloatArray:
        """Return the (S,) logarithms of the factors' own wealths E_s (equation 12)."""

    @property
    def log_wealth(self) -> float:
        """Return the logarithm of the mean of E_s (equation 25), 0 at the start."""

    def stakes(self) -> FloatArray:
        """Return the (S,) next bets, as shares in [0, 1] of the largest bet that cannot ruin."""

    def push(self, observations: FloatArray) -> None:
        """Bet, and settle one round of (S,) observations."""

    def extend(self, observations: FloatArray) -> FloatArray:
        """Settle many rounds, (n, S): the same as pushing each; return (n,) ``log_wealth``."""


@dataclass(frozen=True, slots=True)
class BetPrior:
    """The distribution F of equation 19; any masses >= 0 that sum to 1 keep the test valid."""

    nodes: FloatArray  # (m,) bets in [0, 1], as shares of the largest bet that cannot ruin
    masses: FloatArray  # (m,) their probabilities; they sum to 1


def chebyshev_prior(count: int = 64) -> BetPrior:
    """Return the ``count`` Gauss-Chebyshev nodes of Beta(1/2, 1/2) on [0, 1], of equal mass.

    The wealth after n draws is a polynomial of degree n in the bet, so m nodes are exact for
    n < 2 m and close beyond. A uniform grid, as in the paper, needs thousands of points for the
    same, since the density is infinite at both ends.

    Example:
        >>> chebyshev_prior(2).nodes.round(4).tolist()
        [0.1464, 0.8536]
    """
    # The density of Beta(1/2, 1/2) is 1 / (pi sqrt(b (1 - b))): with b = (1 + cos t) / 2 it is
    # uniform in t, so nodes of equal mass lie at equal angles.
    angles = (2 * np.arange(count, 0, -1) - 1) * (math.pi / (2 * count))
    return BetPrior((1 + np.cos(angles)) / 2, np.full(count, 1 / count))


class UniversalPortfolio:
    """All bets of a prior at once, each with its share of the wealth (equation 19).

    The bet of equation 19 is the prior's mean bet, weighted by wealth. The wealths it earns
    multiply to the mean wealth of all constant bets (Cover), so the bet itself need not be
    computed. Logarithms are taken every 32nd round, so that products neither overflow nor vanish.
    """

    def __init__(self, risk: float, spans: FloatArray, prior: BetPrior | None = None) -> None:
        prior = prior or chebyshev_prior()
        self._risk, self._spans = risk, spans
        self._nodes = prior.nodes
        # Wealths of constant bets are kept as logarithm at the last fold times a plain product
        # since then: a multiplication per round and bet instead of a logarithm.
        with np.errstate(divide="ignore"):  # a node may have no mass
            self._log_masses = np.log(prior.masses)
        self._log_weight = -math.log(len(spans))  # of w_{s,0}
        shape = len(spans), len(prior.nodes)
        self._logs = np.zeros(shape)  # of every constant bet's wealth at the last fold
        self._products = np.ones(shape)  # since then
        self._factors = np.empty(shape)
        # With a block, ``extend`` settles up to 32 rounds by a few numpy calls; a block that does
        # not fit into the processor's cache is slower than one round at a time.
        n_block = _FOLD_EVERY if self._products.size <= _MOST_AT_ONCE else 0
        self._block = np.empty((n_block, *shape))
        self._rounds = 0
        self._rescale()

    @property
    def log_wealths(self) -> FloatArray:
        """Return the (S,) logarithms of the factors' own wealths."""
        logs: FloatArray = self._own_peaks + np.log((self._own * self._products).sum(axis=1))
        return logs

    @property
    def log_wealth(self) -> float:
        """Return the logarithm of the whole wealth."""
        return self._peak + math.log(np.vdot(self._shared, self._products))

    def stakes(self) -> FloatArray:
        """Return the (S,) mean bets, weighted by wealth."""
        held = self._own * self._products
        stakes: FloatArray = held @ self._nodes / held.sum(axis=1)
        return stakes

    def push(self, observations: FloatArray) -> None:
        """Bet, and settle one round."""
        payoffs = (observations - self._risk) / self._spans
        np.multiply.outer(payoffs, self._nodes, out=self._factors)
        np.subtract(1.0, self._factors, out=self._factors)
        self._products *= self._factors
        self._rounds += 1
        if self._rounds == _FOLD_EVERY:
            self._fold()

    def extend(self, observations: FloatArray) -> FloatArray:
        """Bet, and settle many rounds; return the log wealth after each."""
        path = np.empty(len(observations))
        if self._products.size > _MOST_AT_ONCE:
            for i, row in enumerate(observations):
                self.push(row)
                path[i] = self.log_wealth
            return path
        payoffs = (observations - self._risk) / self._spans
        done = 0
        while done < len(payoffs):
            block = payoffs[done : done + _FOLD_EVERY - self._rounds]
            path[done : done + len(block)] = self._extend(block)
            done += len(block)
        return path

    def _extend(self, payoffs: FloatArray) -> FloatArray:
        """Settle rounds of (n, S) payoffs up to the next fold."""
        paths = self._block[: len(payoffs)]
        np.multiply.outer(payoffs, -self._nodes, out=paths)
        paths += 1.0
        paths[0] *= self._products
        for before, now in pairwise(paths):
            now *= before
        self._products[:] = paths[-1]
        totals = paths.reshape(len(paths), -1) @ self._shared.ravel()
        path: FloatArray = self._peak + np.log(totals)
        self._rounds += len(payoffs)
        if self._rounds == _FOLD_EVERY:
            self._fold()
        return path

    def _fold(self) -> None:
        with np.errstate(divide="ignore"):  # a bet of everything can be lost
            self._logs += np.log(self._products)
        self._products.fill(1.0)
        self._rounds = 0
        self._rescale()

    def _rescale(self) -> None:
        # Each factor's wealths are scaled by their own highest, and the whole by the highest of
        # all, so that exponentials neither overflow nor all vanish after thousands of rounds.
        own = self._logs + self._log_masses
        self._own_peaks = own.max(axis=1)
        shared = own + self._log_weight
        self._peak = float(shared.max())
        self._own = np.exp(own - self._own_peaks[:, None])
        self._shared = np.exp(shared - self._peak)


class PlugInBets:
    """One bet per factor, from the variance seen so far (equations 20 and 21).

    With a ``horizon`` n the bet is sqrt(2 ln(1/delta) / (n variance)), as in the paper. Without
    one, n is replaced by t ln(1 + t) in round t (Waudby-Smith and Ramdas 2024, section 3.2).
    """

    def __init__(self, goal: Goal, spans: FloatArray, horizon: int | None = None) -> None:
        self._risk, self._spans = goal.risk, spans
        self._log_weight = -math.log(len(spans))  # of w_{s,0}
        self._effort = 2 * math.log(1 / goal.delta)
        self._horizon = horizon
        self._rounds = 0
        self._sums = np.full(len(spans), _FIRST_MEAN)
        self._squares = np.full(len(spans), _FIRST_VARIANCE)
        self._log_wealths = np.zeros(len(spans))

    @property
    def log_wealths(self) -> FloatArray:
        """Return the (S,) logarithms of the factors' own wealths."""
        return self._log_wealths.copy()

    @property
    def log_wealth(self) -> float:
        """Return the logarithm of the whole wealth."""
        logs = self._log_weight + self._log_wealths
        peak = float(logs.max())
        return peak + math.log(float(np.exp(logs - peak).sum()))

    def stakes(self) -> FloatArray:
        """Return the (S,) next bets, as shares of the largest."""
        return self._shares(np.array(self._rounds + 1.0), self._squares)

    def push(self, observations: FloatArray) -> None:
        """Bet, and settle one round."""
        self.extend(observations[None])

    def extend(self, observations: FloatArray) -> FloatArray:
        """Bet, and settle many rounds; return the log wealth after each."""
        t: FloatArray = self._rounds + np.arange(1.0, len(observations) + 1)[:, None]
        sums = self._sums + np.cumsum(observations, axis=0)
        errors = (observations - sums / (t + 1)) ** 2  # about mu-hat_j of equation 21
        squares = self._squares + np.cumsum(errors, axis=0)
        before = np.concatenate([self._squares[None], squares[:-1]])  # a bet knows the past only
        gains = 1.0 - self._shares(t, before) * (observations - self._risk) / self._spans
        paths = self._log_wealths + np.cumsum(np.log(gains), axis=0)
        self._rounds += len(observations)
        self._sums, self._squares, self._log_wealths = sums[-1], squares[-1], paths[-1]
        shared = paths + self._log_weight
        peaks = shared.max(axis=1)
        path: FloatArray = peaks + np.log(np.exp(shared - peaks[:, None]).sum(axis=1))
        return path

    def _shares(self, t: FloatArray, squares: FloatArray) -> FloatArray:
        """Return the bets of rounds t (from 1), given the sums of squared errors before them."""
        rounds = self._horizon if self._horizon is not None else t * np.log1p(t)
        variances = squares / t  # sigma-hat squared of equation 21
        return np.minimum(_CAP, self._spans * np.sqrt(self._effort / (rounds * variances)))


def risk_interval(
    losses: ArrayLike,
    guesses: ArrayLike,
    others: ArrayLike,
    *,
    delta: float,
    method: Method | None = None,
    tolerance: float = 1e-4,
) -> tuple[float, float]:
    """Return a (1 - ``delta``) confidence interval for the mean loss, valid at any stopping time.

    Appendix D.5 of the paper with epsilon = 1/2: the upper bound is the least target that the test
    certifies at level delta/2; the lower bound is 1 minus the upper bound of 1 - loss. With the
    universal portfolio the wealth rises with the target (so does each factor 1 - b (q - alpha) /
    (M - alpha)), so the bound is found by bisection, whatever betting the ``method`` names.

    ``losses``, ``guesses`` and mean guesses over ``others`` are (n,), in the order of labelling.
    The ends are in [0, 1], rounded outward by up to ``tolerance``.

    Example:
        >>> zeros = np.zeros(200)
        >>> lower, upper = risk_interval(zeros, zeros, zeros, delta=0.05)
        >>> lower, round(upper, 3)
        (0.0, 0.032)
    """
    name, n_factors = (method.name, method.n_factors) if method else (METHODS[-1], 10)
    portfolio = Method(name, n_factors=n_factors)
    rounds = [np.asarray(part, dtype=np.float64) for part in (losses, guesses, others)]

    def upper_bound(rounds: list[FloatArray]) -> float:
        def certifies(risk: float) -> bool:
            test = RiskTest(Goal(risk, delta / 2), portfolio)
            test.extend(*rounds)
            return test.certified

        return _least(certifies, tolerance)

    upper = upper_bound(rounds)
    lower = 1.0 - upper_bound([1.0 - part for part in rounds])
    return min(lower, upper), max(lower, upper)


def _least(certifies: Callable[[float], bool], tolerance: float) -> float:
    """Return the least target in (0, 1] that is certified, rounded up by at most ``tolerance``."""
    open_, closed = 0.0, 1.0  # not certified; certified, or the end of the range
    while closed - open_ > tolerance:
        middle = (open_ + closed) / 2
        if certifies(middle):
            closed = middle
        else:
            open_ = middle
    return closed
