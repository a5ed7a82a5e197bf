"""Betting rules: the universal portfolio, and plug-in bets.

A round offers each of S factors an observation q_s in [m_s, M_s] of the same mean and a price c:
under the hypothesis that the mean is above the target, q_s is at least c in expectation. A bet
lambda in [0, 1/(M_s - c)) multiplies the factor's wealth by 1 - lambda (q_s - c). Bets are given
as shares b = lambda (M_s - c) of the largest one, with the span M_s - c, so wealth stays
nonnegative even where price and range differ from round to round.

References:
    Cover (1991), "Universal portfolios", Mathematical Finance 1(1); Cover and Ordentlich (2002).
    Park, Zecchin and Simeone (2025), "Adaptive prediction-powered AutoEval with reliability and
    efficiency guarantees", appendix C: equations 19 (portfolio), 20 and 21 (plug-in).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Protocol

import numpy as np

from bestarm_agent.certification.portfolio_prior import BetPrior, FloatArray, chebyshev_prior

_FOLD_EVERY = 32  # rounds between logarithms: so long, products stay in the range of floats
_MOST_AT_ONCE = 16_384  # strategies; with more, a block of rounds would not fit into a cache
_CAP = 0.75  # c of equation 20
_FIRST_MEAN, _FIRST_VARIANCE = 0.5, 0.25  # the guesses of equation 21


class Bets(Protocol):
    """A betting rule for S factors."""

    n_factors: int

    @property
    def log_wealths(self) -> FloatArray:
        """Return the (S,) logarithms of the factors' own wealths E_s (equation 12)."""

    @property
    def log_wealth(self) -> float:
        """Return the logarithm of the sum of w_s E_s (equation 25), 0 at the start."""

    def stakes(self) -> FloatArray:
        """Return the (S,) next bets, as shares in [0, 1] of the largest bet that cannot ruin."""

    def push(self, observations: FloatArray, fair: float, spans: FloatArray) -> None:
        """Bet and settle one round.

        ``observations`` and ``spans`` are (S,): what was observed, and the largest possible
        observation minus the price ``fair``, > 0.
        """

    def extend(self, observations: FloatArray, fair: float, spans: FloatArray) -> FloatArray:
        """Bet and settle many rounds of the same price: the same as pushing each, and faster.

        ``observations`` are (n, S). Return the (n,) ``log_wealth`` after each round.
        """


class UniversalPortfolio:
    """All bets of a prior at once, each with its share of the wealth.

    The bet of equation 19 is the prior's mean bet, weighted by wealth; the wealths it earns
    multiply to the mean wealth of all constant bets (Cover), so the bet itself need not be
    computed. Logarithms are taken every 32nd round, so that products neither overflow nor vanish.
    ``log_weights`` (S,) are logarithms of the factors' initial weights, which sum to 1.
    """

    def __init__(self, log_weights: FloatArray, prior: BetPrior | None = None) -> None:
        prior = prior or chebyshev_prior()
        self.n_factors = len(log_weights)
        self._nodes = prior.nodes
        with np.errstate(divide="ignore"):  # a node may have no mass
            self._log_masses = np.log(prior.masses)
        self._log_weights = log_weights
        shape = self.n_factors, len(prior.nodes)
        self._logs = np.zeros(shape)  # of every strategy's wealth at the last fold
        self._products = np.ones(shape)  # since then
        self._factors = np.empty(shape)
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
        """Return the (S,) mean bets, weighted by wealth (equation 19)."""
        held = self._own * self._products
        stakes: FloatArray = held @ self._nodes / held.sum(axis=1)
        return stakes

    def push(self, observations: FloatArray, fair: float, spans: FloatArray) -> None:
        """Bet and settle one round."""
        payoffs = (observations - fair) / spans
        np.multiply.outer(payoffs, self._nodes, out=self._factors)
        np.subtract(1.0, self._factors, out=self._factors)
        self._products *= self._factors
        self._rounds += 1
        if self._rounds == _FOLD_EVERY:
            self._fold()

    def extend(self, observations: FloatArray, fair: float, spans: FloatArray) -> FloatArray:
        """Bet and settle many rounds of the same price; return the log wealth after each."""
        path = np.empty(len(observations))
        if self._products.size > _MOST_AT_ONCE:
            for i, row in enumerate(observations):
                self.push(row, fair, spans)
                path[i] = self.log_wealth
            return path
        payoffs = (observations - fair) / spans
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
        own = self._logs + self._log_masses
        self._own_peaks = own.max(axis=1)
        shared = own + self._log_weights[:, None]
        self._peak = float(shared.max())
        self._own = np.exp(own - self._own_peaks[:, None])
        self._shared = np.exp(shared - self._peak)


class PlugInBets:
    """One bet per factor, from the variance seen so far (equations 20 and 21).

    With a ``horizon`` n the bet is sqrt(2 ln(1/delta) / (n variance)), as in the paper. Without
    one, n is replaced by t ln(1 + t) in round t (Waudby-Smith and Ramdas 2024, section 3.2).
    ``log_weights`` (S,) are logarithms of the factors' initial weights, which sum to 1.
    """

    def __init__(self, log_weights: FloatArray, delta: float, horizon: int | None = None) -> None:
        self.n_factors = len(log_weights)
        self._log_weights = log_weights
        self._effort = 2 * math.log(1 / delta)
        self._horizon = horizon
        self._rounds = 0
        self._sums = np.full(self.n_factors, _FIRST_MEAN)
        self._squares = np.full(self.n_factors, _FIRST_VARIANCE)
        self._log_wealths = np.zeros(self.n_factors)
        self._spans = np.ones(self.n_factors)

    @property
    def log_wealths(self) -> FloatArray:
        """Return the (S,) logarithms of the factors' own wealths."""
        return self._log_wealths.copy()

    @property
    def log_wealth(self) -> float:
        """Return the logarithm of the whole wealth."""
        logs = self._log_weights + self._log_wealths
        peak = float(logs.max())
        return peak + math.log(float(np.exp(logs - peak).sum()))

    def stakes(self) -> FloatArray:
        """Return the (S,) next bets, as shares of the largest, for the last round's spans."""
        return self._shares(np.array(self._rounds + 1.0), self._squares, self._spans)

    def push(self, observations: FloatArray, fair: float, spans: FloatArray) -> None:
        """Bet and settle one round."""
        self.extend(observations[None], fair, spans)

    def extend(self, observations: FloatArray, fair: float, spans: FloatArray) -> FloatArray:
        """Bet and settle many rounds of the same price; return the log wealth after each."""
        t: FloatArray = self._rounds + np.arange(1.0, len(observations) + 1)[:, None]
        sums = self._sums + np.cumsum(observations, axis=0)
        errors = (observations - sums / (t + 1)) ** 2  # about mu-hat_j of equation 21
        squares = self._squares + np.cumsum(errors, axis=0)
        before = np.concatenate([self._squares[None], squares[:-1]])  # a bet knows the past only
        gains = 1.0 - self._shares(t, before, spans) * (observations - fair) / spans
        paths = self._log_wealths + np.cumsum(np.log(gains), axis=0)
        self._rounds += len(observations)
        self._sums, self._squares, self._log_wealths = sums[-1], squares[-1], paths[-1]
        self._spans = spans
        shared = paths + self._log_weights
        peaks = shared.max(axis=1)
        path: FloatArray = peaks + np.log(np.exp(shared - peaks[:, None]).sum(axis=1))
        return path

    def _shares(self, t: FloatArray, squares: FloatArray, spans: FloatArray) -> FloatArray:
        """Return the bets of rounds t (from 1), given the sums of squared errors before them."""
        rounds = self._horizon if self._horizon is not None else t * np.log1p(t)
        variances = squares / t  # sigma-hat squared of equation 21
        return np.minimum(_CAP, spans * np.sqrt(self._effort / (rounds * variances)))
