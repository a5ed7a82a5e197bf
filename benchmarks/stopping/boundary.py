"""How often the best row is lost where a wrong answer is nearest: 2,000 runs for every setting.

    python -m benchmarks.stopping.boundary [--runs 2000]

Rows of 0/1 scores on 200 examples, seen to the end and judged at every place, each with the promise
of 5 %. All runs of a setting are worked out at once, by a second writing of
``stats.intervals.paired_sequences``. Prints one line of a table for every setting.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from bestarm_agent.stats.intervals.betting_bounds import bet_grid, log_factors

ALPHA, N = 0.05, 200
Array = NDArray[np.float64]


def coins(rng: np.random.Generator, runs: int, heads: tuple[int, ...]) -> Array:
    """(runs, K, N) independent rows with so many ones, in random order."""
    rows = (np.arange(N) < np.array(heads)[:, None]).astype(np.float64)
    return rng.permuted(np.broadcast_to(rows, (runs, len(heads), N)).copy(), axis=2)


def leaders(values: Array, delay: NDArray[np.int64]) -> NDArray[np.int64]:
    """(runs, N) rows of the highest mean of what was told ``delay`` (runs, K, N) places before."""
    sums = np.concatenate([np.zeros((*values.shape[:2], 1)), np.cumsum(values, axis=2)], axis=2)
    told = np.maximum(np.arange(N) - delay, 0)
    means = (np.take_along_axis(sums, told, axis=2) + 0.5) / (told + 1)
    means += 1e-9 * np.random.default_rng(0).random(means.shape)
    return np.asarray(means.argmax(axis=1))


def against(
    opponent: NDArray[np.int64],
    low: Array,
    high: Array,
    row: int,
    *,
    gap: Array | float = 0.0,
    odds: tuple[Array, Array] | None = None,
    alpha: float = ALPHA,
) -> NDArray[np.bool_]:
    """(runs,) whether a row was ever rejected, against (runs, N) opponents."""
    before = np.cumsum(low, axis=2) - low
    picked = opponent[:, None, :]
    theirs = np.take_along_axis(low, picked, axis=1)[:, 0]
    their_sum = np.take_along_axis(before, picked, axis=1)[:, 0]
    own_sum = np.cumsum(high[:, row], axis=1) - high[:, row]
    x = (1 + theirs - high[:, row]) / 2
    drawn = (np.arange(N) + their_sum - own_sum) / 2
    ratio, most = odds if odds is not None else (np.ones(x.shape), np.ones(x.shape))
    ratio = np.where(opponent == row, 0.0, ratio)
    mean = np.broadcast_to((1.0 - gap) / 2, x.shape)
    bets = bet_grid(N, alpha)
    logs = np.cumsum(log_factors(x, drawn, mean, bets, N, 0, (ratio, most)), axis=2)
    refuted = (drawn + x > N * mean + 1e-9) & (opponent != row)
    wealth = np.where(refuted, np.inf, np.exp(np.minimum(logs, 600.0)).mean(axis=0))
    return np.asarray(wealth.max(axis=1) >= 1 / alpha)


def lost(
    rng: np.random.Generator,
    runs: int,
    heads: tuple[int, ...],
    *,
    late: int = 0,
    void: float = 0.0,
) -> NDArray[np.bool_]:
    """(runs,) whether the first row was rejected.

    Values are told up to ``late`` places late; a wrong answer of the first row and a right one of
    the others are void with chance ``void``.
    """
    values = coins(rng, runs, heads)
    delay = rng.integers(late + 1, size=values.shape)
    hurts = values == (np.arange(len(heads)) > 0)[:, None]
    hidden = hurts & (rng.random(values.shape) < void)
    low, high = np.where(hidden, 0.0, values), np.where(hidden, 1.0, values)
    return against(leaders(low, delay), low, high, 0)


def lost_in_weighed_order(rng: np.random.Generator, runs: int) -> NDArray[np.bool_]:
    """(runs,) whether the first row was rejected where the others win on what comes early."""
    rows = np.zeros((3, N))
    rows[0, :100] = 1.0
    rows[1:, 101:] = 1.0
    weights = np.where(rows[0] == 0, 3.0, 1.0)
    order = np.argsort(rng.exponential(size=(runs, N)) / weights, axis=1)
    drawn = weights[order][:, ::-1]
    mean_left = np.cumsum(drawn, axis=1) / np.arange(1, N + 1)
    least = np.minimum.accumulate(drawn, axis=1)
    odds = (mean_left / drawn)[:, ::-1], (mean_left / least)[:, ::-1]
    values = rows[:, order].transpose(1, 0, 2)
    opponent = leaders(values, np.zeros(values.shape, dtype=np.int64))
    return against(opponent, values, values, 0, odds=odds)


def lost_margin(rng: np.random.Generator, runs: int) -> NDArray[np.bool_]:
    """(runs,) whether a row was ever said to be less far behind than it is, or the best lost."""
    heads = (110, 106, 100)
    values = coins(rng, runs, heads)
    opponent = leaders(values, np.zeros(values.shape, dtype=np.int64))
    wrong = np.zeros(runs, dtype=np.bool_)
    for row, ones in enumerate(heads):
        gap = np.where(opponent == row, (heads[0] - ones) / N, 0.0)
        wrong |= against(opponent, values, values, 0, gap=gap)
    return wrong


def lost_set(rng: np.random.Generator, runs: int) -> NDArray[np.bool_]:
    """(runs,) whether a pair erred that must err for a wrong best two of four."""
    values = coins(rng, runs, (101, 101, 100, 100))
    wrong = np.zeros(runs, dtype=np.bool_)
    for better, worse in ((2, 1), (3, 2), (1, 0)):
        opponent = np.full((runs, N), better)
        wrong |= against(opponent, values, values, worse, alpha=ALPHA / 3)
    return wrong


SETTINGS: Mapping[str, Callable[[np.random.Generator, int], NDArray[np.bool_]]] = {
    "two rows tie": lambda rng, n: lost(rng, n, (100, 100)),
    "best of two ahead by one success": lambda rng, n: lost(rng, n, (101, 100)),
    "best of ten ahead by one success": lambda rng, n: lost(rng, n, (101,) + 9 * (100,)),
    "rare successes": lambda rng, n: lost(rng, n, (4, 3, 3, 2)),
    "rare failures": lambda rng, n: lost(rng, n, (199, 198, 198, 197)),
    "told up to 32 places late": lambda rng, n: lost(rng, n, (101, 100, 100), late=32),
    "a fifth of what helps the best void": lambda rng, n: lost(rng, n, (101, 100, 100), void=0.2),
    "what the best loses comes early": lost_in_weighed_order,
    "how far a leader is behind": lost_margin,
    "best two of four": lost_set,
}


def main() -> None:
    """Print the share of runs that went wrong, for every setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000)
    runs = parser.parse_args().runs
    for number, (name, setting) in enumerate(SETTINGS.items()):
        parts = [min(500, runs - done) for done in range(0, runs, 500)]
        wrong = sum(
            int(setting(np.random.default_rng([19, number, part]), size).sum())
            for part, size in enumerate(parts)
        )
        p = binomtest(wrong, runs, ALPHA, alternative="greater").pvalue
        print(f"| {name} | {runs:,} | {wrong} | {wrong / runs:.2%} | {p:.2g} |", flush=True)


if __name__ == "__main__":
    main()
