"""Pairs that ``auto`` takes to establish the best, when it may wait with a new example or not.

    python -m benchmarks.stopping.open_ended --data ../shared/data

Replays whole matrices until the best is established at 95 %, with the same seeds and many calls in
flight. Wrong answers take three times as long.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from benchmarks.stopping.certificate import MATRICES

from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.rules.auto import Auto
from bestarm_agent.selectors.types import Problem
from bestarm_agent.simulation.replay import replay
from bestarm_agent.simulation.score_matrices import ScoreMatrix, load_matrix
from bestarm_agent.simulation.simulated_calls import Conditions, Latency, SimulatedCalls


def share(matrix: ScoreMatrix, seed: int, in_flight: int, *, open_ended: bool) -> float:
    """Return the share of the cells that were called."""
    world = SimulatedCalls(matrix, seed, Conditions(in_flight, latency=Latency(slowdown=3.0)))

    def make(problem: Problem) -> Selector:
        given = {"budget": None, "stop_when_separated": True, "open_ended": open_ended}
        return Auto(replace(problem, **given))  # type: ignore[arg-type]

    answer = replay(make, world, [matrix.scores.size], seed=seed, track_intervals=True).answers[0]
    return answer.evaluated / matrix.scores.size


def main() -> None:
    """Print the mean shares without and with the wait, and the paired difference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", type=int, default=12)
    arguments = parser.parse_args()
    for name, place in MATRICES.items():
        matrix = replace(load_matrix(str(arguments.data / place)), costs=None)
        for n in (16, 64):
            before, now = (
                np.array([share(matrix, s, n, open_ended=wait) for s in range(arguments.seeds)])
                for wait in (False, True)
            )
            error = (now - before).std(ddof=1) / arguments.seeds**0.5
            print(
                f"{name}, {n} in flight: {before.mean():.1%} of the cells, {now.mean():.1%} with"
                f" the wait; difference {now.mean() - before.mean():.1%} +- {error:.1%}"
            )


if __name__ == "__main__":
    main()
