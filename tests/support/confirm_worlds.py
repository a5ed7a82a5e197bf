"""Simulated choices of the best of K, whose true means are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.betting import Wealth, bet_grid

FloatArray = NDArray[np.float64]
_CHUNK = 500  # worlds in memory at once
_ENDLESS = 10**9  # draws from so many are as good as independent


@dataclass(frozen=True, slots=True)
class World:
    """A choice by the highest mean on ``n_seen`` of N examples; candidates are independent."""

    means: tuple[float, ...]  # (K,) true; the share of right answers over the N is exact
    n_examples: int = 200
    n_seen: int = 50
    n_held: int = 50  # further examples, drawn anew, that only the winner answers


class Found(NamedTuple):
    """What was said of the winner of each world."""

    naive: FloatArray  # (runs,) its mean on the examples seen, less its true mean
    confirmed: FloatArray  # (runs,) its mean on those kept back, less its true mean
    naive_missed: NDArray[np.bool_]  # a 95 % interval at every example, as if it was not chosen
    corrected_missed: NDArray[np.bool_]  # the same, jointly over the candidates
    confirmed_missed: NDArray[np.bool_]  # a 95 % interval on the examples kept back


def simulate(world: World, runs: int, rng: np.random.Generator, alpha: float = 0.05) -> Found:
    """Choose, confirm, and compare with the truth; intervals are looked at at every example."""
    parts = [
        _some(world, min(_CHUNK, runs - start), rng, alpha) for start in range(0, runs, _CHUNK)
    ]
    return Found(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _some(world: World, runs: int, rng: np.random.Generator, alpha: float) -> Found:
    truth, n = np.array(world.means), world.n_examples
    right = np.arange(n) < np.round(truth * n)[:, None]
    order = rng.random((runs, len(truth), n)).argsort(axis=-1)[..., : world.n_seen]
    seen = np.take_along_axis(np.broadcast_to(right, (runs, *right.shape)), order, -1) * 1.0
    means = seen.mean(axis=-1)
    winner = (means + 1e-9 * rng.random(means.shape)).argmax(axis=-1)
    rows = np.arange(runs)
    true = truth[winner]
    held = (rng.random((runs, world.n_held)) < true[:, None]) * 1.0
    one = seen[rows, winner]
    return Found(
        means[rows, winner] - true,
        held.mean(axis=-1) - true,
        missed(one, true, alpha, n),
        missed(one, true, alpha / len(truth), n),
        missed(held, true, alpha, _ENDLESS, world.n_held),
    )


def missed(
    values: FloatArray, true: FloatArray, alpha: float, size: int, planned: int | None = None
) -> NDArray[np.bool_]:
    """Return (runs,) whether the betting interval ever misses the (runs,) true mean.

    It does so once the wealth against that mean, of either side, reaches 2 / alpha.
    """
    bets = bet_grid(planned or size, alpha / 2)
    found = np.zeros(len(values), dtype=np.bool_)
    for mean in np.unique(true):
        of = true == mean
        for side, bar in ((values[of], mean), (1.0 - values[of], 1.0 - mean)):
            wealth = Wealth(len(side), float(bar), bets, size).extend(side)
            found[of] |= (wealth >= 2.0 / alpha).any(axis=-1)
    return found
