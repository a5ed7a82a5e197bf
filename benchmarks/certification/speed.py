"""CPU time per observation of R-AutoEval+, beside the published way of computing it.

Usage: ``OMP_NUM_THREADS=1 python -m benchmarks.certification.speed [--observations 2000]``

The baseline holds, like the published class, the wealth of 10,000 bets for each of S reliance
factors, and works the bet of equation 19 out from all of them after every observation. Both sides
see the same data in the same process, in turns; the e-values are compared where both use the same
prior. "Stored" is what a table of losses costs, read at once (as the published class reads it);
"live" is one observation at a time, as labels come in. Target: at least 100 times less CPU per
observation at S = 10.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence

import numpy as np
from benchmarks.certification.priors import PublishedMethod, published_prior

from bestarm_agent.certification.evidence import Goal, Method, RiskTest

GOAL = Goal(risk=0.12, delta=1e-12)
Rounds = Sequence[tuple[float, float, float]]


class GridPortfolio:
    """Algorithm 1 with the bets of equation 19 on a uniform grid, as published."""

    def __init__(self, risk: float, n_factors: int, n_bets: int = 10_000) -> None:
        self.log_wealth = 0.0
        self._risk = risk
        self._factors = np.linspace(0.0, 1.0, n_factors)
        prior = published_prior(n_bets)
        self._bets, self._masses = prior.nodes[None], prior.masses[None]
        self._wealths = np.ones((n_factors, n_bets))
        self._own = np.ones(n_factors)
        self._next = self._next_bets()

    def push(self, loss: float, guess: float, others: float) -> None:
        """Take the next observation."""
        observations = self._factors * others + loss - self._factors * guess
        gains = 1 - self._next * (observations - self._risk)
        weights = self._own / self._own.sum()
        self.log_wealth += math.log(float((weights * gains).sum()))
        self._own *= gains
        spans = 1 + self._factors[:, None] - self._risk
        self._wealths *= 1 + (self._risk - observations[:, None]) * self._bets / spans
        self._next = self._next_bets()

    def _next_bets(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        held = (self._wealths * self._masses).sum(axis=1)
        means = (self._wealths * self._bets * self._masses).sum(axis=1) / held
        bets: np.ndarray[tuple[int], np.dtype[np.float64]] = means / (
            1 + self._factors - self._risk
        )
        return bets


def toy(n: int, flips: float = 0.1, risk: float = 0.1, seed: int = 0) -> Rounds:
    """The paper's Example 1: Bernoulli losses, guesses that are flipped now and then, r = 10."""
    rng = np.random.default_rng(seed)
    losses = rng.random(n) < risk
    guesses = losses ^ (rng.random(n) < flips)
    others = ((rng.random((n, 10)) < risk) ^ (rng.random((n, 10)) < flips)).mean(axis=1)
    columns = losses.astype(float), guesses.astype(float), others
    return list(zip(*(column.tolist() for column in columns), strict=True))


def microseconds(push: Callable[[float, float, float], object], rounds: Rounds) -> float:
    """CPU time of one observation."""
    began = time.process_time()
    for loss, guess, others in rounds:
        push(loss, guess, others)
    return 1e6 * (time.process_time() - began) / len(rounds)


def ours(n_factors: int, method: type[Method] = Method) -> RiskTest:
    """Make the package's test."""
    return RiskTest(GOAL, method(n_factors=n_factors))


def compare(n_factors: int, rounds: Rounds, turns: int = 5) -> tuple[float, float, float]:
    """CPU per observation of the baseline and of the package, stored and live: best of some."""
    losses, guesses, others = (np.array(column) for column in zip(*rounds, strict=True))
    slow, stored, live = [], [], []
    for _ in range(turns):
        slow.append(microseconds(GridPortfolio(GOAL.risk, n_factors).push, rounds[:300]))
        test = ours(n_factors)
        began = time.process_time()
        test.extend(losses, guesses[:, None], others[:, None])
        stored.append(1e6 * (time.process_time() - began) / len(rounds))
        live.append(microseconds(pusher(ours(n_factors)), rounds))
    return min(slow), min(stored), min(live)


def pusher(test: RiskTest) -> Callable[[float, float, float], None]:
    """Feed a test round by round."""
    return lambda loss, guess, others: test.push(loss, (guess,), (others,))


def main() -> None:
    """Print one line per number of factors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--observations", type=int, default=2000)
    rounds = toy(parser.parse_args().observations)
    print("microseconds of CPU per observation")
    print(f"{'S':>4}{'published way':>15}{'stored':>10}{'ratio':>8}{'live':>8}{'ratio':>8}")
    for n_factors in (2, 10, 100):
        slow, stored, live = compare(n_factors, rounds)
        ratios = f"{stored:>10.1f}{slow / stored:>8.0f}{live:>8.1f}{slow / live:>8.0f}"
        print(f"{n_factors:>4}{slow:>15.0f}{ratios}")
    grid, test, exact = GridPortfolio(GOAL.risk, 10), ours(10, PublishedMethod), ours(10)
    for loss, guess, other in rounds:
        grid.push(loss, guess, other)
        for one in (test, exact):
            one.push(loss, [guess], [other])
    print(
        f"log wealth after {len(rounds)} observations: baseline {grid.log_wealth:.9f}, package "
        f"with the same prior {test.log_wealth:.9f}, with 64 nodes {exact.log_wealth:.9f}"
    )


if __name__ == "__main__":
    main()
