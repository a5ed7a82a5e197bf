"""Widths of intervals for the mean of 500 values, few of them seen without replacement.

    OMP_NUM_THREADS=1 python -m benchmarks.stopping.widths [--runs 40] [--out docs/reproduction]

The package's intervals, those with equal bets that it had before, and three others for comparison:

- the hedged-capital sequence of Waudby-Smith and Ramdas 2024 (JRSS B 86(1), sections 4.4 and 5),
  with predictable plug-in bets truncated at 1/2, the wealth of each side against 2 / alpha;
- for scores of 0 and 1 only, the prior-posterior-ratio sequence of Waudby-Smith and Ramdas 2020
  ("Confidence sequences for sampling without replacement"), uniform prior of the number of ones;
- the same, at this n alone: the exact hypergeometric interval with equal tails. It does not hold
  when one looks more than once.

Sequences keep the narrowest ends seen so far. Writes the table into ``stopping.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from benchmarks.papers.reproduce import fill_report
from benchmarks.papers.stored_studies import markdown
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp
from scipy.stats import hypergeom

from bestarm_agent.stats.intervals.betting_bounds import bet_grid
from bestarm_agent.stats.intervals.confidence_sequences import PopulationSequences
from bestarm_agent.stats.intervals.lower_bound import LowerBound

N, SEEN = 500, (10, 20, 30, 50, 100, 200, 300)
POPULATIONS = (("0/1", 0.5), ("0/1", 0.8), ("0/1", 0.9), ("0/1", 0.95), ("graded", 0.8))
Array = NDArray[np.float64]


def population(kind: str, mean: float, rng: np.random.Generator) -> Array:
    """(N,) scores of this mean in random order; graded ones have a standard deviation of .15."""
    if kind == "0/1":
        return rng.permuted((np.arange(N) < round(mean * N)) * 1.0)
    return np.asarray(rng.beta(6 * mean, 6 * (1 - mean), N))


def package(values: Array, alpha: float) -> Array:
    """(len(SEEN),) widths of the package's intervals."""
    sequences, widths = PopulationSequences(1, [N], alpha), []
    for example, value in enumerate(values[: SEEN[-1]].tolist()):
        sequences.push(0, example, value, value)
        widths.append(float(sequences.upper[0] - sequences.lower[0]))
    return _at_seen(np.array(widths))


def equal_bets(values: Array, alpha: float) -> Array:
    """The same as the package, with the bets of ``bet_grid`` at equal shares."""
    return _two_sided(_equal_lower, values, alpha)


def _equal_lower(values: Array, alpha: float) -> Array:
    bound, ends = LowerBound(alpha, bet_grid(N, alpha), N), []
    for value in values[: SEEN[-1]].tolist():
        bound.push(value)
        ends.append(max(bound.lower, bound.total / N))
    return np.array(ends)


def hedged_capital(values: Array, alpha: float) -> Array:
    """Widths of the hedged-capital sequence, on a grid of means .001 apart."""
    return _two_sided(_hedged_lower, values, alpha)


def _hedged_lower(values: Array, alpha: float) -> Array:
    seen, means = np.arange(1, N + 1), np.arange(1, 1000)[:, None] / 1000
    centre = (0.5 + np.cumsum(values)) / (seen + 1)
    variance = (0.25 + np.cumsum((values - centre) ** 2)) / (seen + 1)
    before = np.concatenate([[0.25], variance[:-1]])
    bets = np.sqrt(2 * np.log(1 / alpha) / (before * seen * np.log1p(seen)))
    total = np.cumsum(values)
    fair = np.maximum((N * means - total + values) / (N - seen + 1), 1e-9)
    wealth = np.cumsum(np.log1p(np.minimum(bets, 0.5 / fair) * (values - fair)), axis=1)
    rejected = np.maximum.accumulate(wealth, axis=1) >= np.log(1 / alpha)
    lower = np.where(rejected.all(axis=0), 1.0, rejected.argmin(axis=0) / 1000)
    return np.asarray(np.maximum(np.maximum.accumulate(lower), total / N))


def prior_posterior(values: Array, alpha: float) -> Array:
    """Widths of the prior-posterior-ratio sequence, for scores of 0 and 1."""
    ones, possible, widths = np.arange(N + 1.0), np.full(N + 1, True), []
    for n, seen in enumerate(np.cumsum(values)[: SEEN[-1]].tolist(), start=1):
        likelihood = _log_choose(N - n, ones - seen) - _log_choose(N, ones)
        possible &= logsumexp(likelihood) - np.log(N + 1) - likelihood < np.log(1 / alpha)
        widths.append(float(np.ptp(ones[possible])) / N)
    return _at_seen(np.array(widths))


def _log_choose(n: int, k: Array) -> Array:
    inside = np.clip(k, 0, n)
    logs = gammaln(n + 1) - gammaln(inside + 1) - gammaln(n - inside + 1)
    return np.asarray(np.where(inside == k, logs, -np.inf))


def hypergeometric(values: Array, alpha: float) -> Array:
    """Widths of the exact interval at each n alone, for scores of 0 and 1."""
    ones, widths = np.arange(N + 1), []
    for n in SEEN:
        seen = values[:n].sum()
        above = hypergeom.sf(seen - 1, N, ones, n) > alpha / 2
        below = hypergeom.cdf(seen, N, ones, n) > alpha / 2
        widths.append(float(np.ptp(ones[above & below])) / N)
    return np.array(widths)


def _two_sided(lower: Callable[[Array, float], Array], values: Array, alpha: float) -> Array:
    return _at_seen(1.0 - lower(1.0 - values, alpha / 2) - lower(values, alpha / 2))


def _at_seen(widths: Array) -> Array:
    return np.asarray(widths[np.array(SEEN) - 1])


METHODS: dict[str, Callable[[Array, float], Array]] = {
    "package": package,
    "equal bets": equal_bets,
    "hedged capital": hedged_capital,
    "prior-posterior ratio": prior_posterior,
    "exact, at this n alone": hypergeometric,
}


def rows(alpha: float, runs: int) -> Iterator[list[str]]:
    """Yield the mean widths of each method on each population, on the same draws."""
    for number, (kind, mean) in enumerate(POPULATIONS):
        for name, widths in METHODS.items():
            if kind == "graded" and widths in (prior_posterior, hypergeometric):
                continue
            rngs = (np.random.default_rng([23, number, run]) for run in range(runs))
            found = np.mean([widths(population(kind, mean, rng), alpha) for rng in rngs], axis=0)
            yield [f"{kind}, mean {mean}", name, *[f"{width:.3f}" for width in found]]


def main() -> None:
    """Work the widths out and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--alpha", type=float, default=0.05)
    parser.add_argument("--out", type=Path, default=Path("docs/reproduction"))
    arguments = parser.parse_args()
    headers = ["scores", "interval", *[f"n = {n}" for n in SEEN]]
    table = markdown(headers, list(rows(arguments.alpha, arguments.runs)))
    fill_report(arguments.out / "stopping.md", {"widths": table})


if __name__ == "__main__":
    main()
