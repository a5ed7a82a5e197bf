"""Processor time of a long PULSE run on one core.

    OMP_NUM_THREADS=1 python -m benchmarks.pulse.speed

1,000 candidates, 12,000 examples, 540,800 calls, refits every 1,000 steps; the published program is
said to take 60 seconds on a GPU. The scores are drawn from a logistic model of rank 16, whose
factors stand for a learned history. Prints the time of the rule itself, the drawing of scores left
out.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.selectors.rules.pulse import Pulse
from bestarm_agent.selectors.types import Problem, State, Tell
from bestarm_agent.stats.models.example_factors import Factors
from bestarm_agent.stats.models.history_validation import HistoryModel, Validation

BATCH = 64


def main() -> None:
    """Run and report."""
    arguments = _arguments()
    rng = np.random.default_rng(0)
    lesson = _lesson(arguments.examples, arguments.rank, rng)
    scores = _scores(lesson.factors, arguments.candidates, rng)
    problem = Problem(arguments.candidates, arguments.examples, track_intervals=arguments.intervals)
    start = time.process_time()
    selector = Pulse(problem, history=lesson, tau=arguments.tau, weight=arguments.weight)
    spent = time.process_time() - start
    while selector.table.n_asked < arguments.calls:
        start = time.process_time()
        asks = selector.ask(min(BATCH, arguments.calls - selector.table.n_asked))
        spent += time.process_time() - start
        tells = [Tell(ask.seq, State.DONE, float(scores[ask.pair])) for ask in asks]
        start = time.process_time()
        selector.tell(tells)
        spent += time.process_time() - start
        if not asks:
            break
    print(
        f"{selector.table.n_asked:,} calls on {arguments.candidates:,} x {arguments.examples:,},"
        f" rank {arguments.rank}, refits every {arguments.tau:,} steps: {spent:.1f} s of CPU,"
        f" {1e6 * spent / selector.table.n_asked:.1f} us a call"
    )


def _lesson(n_examples: int, rank: int, rng: np.random.Generator) -> HistoryModel:
    strength = 1.0 / np.sqrt(1.0 + np.arange(rank))
    factors = Factors(rng.normal(size=n_examples), rng.normal(size=(n_examples, rank)) * strength)
    return HistoryModel(factors, Validation(rank, 4.0, 0.5, 0.01, 0.4, 0.65, 300))


def _scores(factors: Factors, n_candidates: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    chances = (factors.predict(rng.normal(size=factors.rank)) for _ in range(n_candidates))
    return np.array([rng.random(factors.n_examples) < chance for chance in chances])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--examples", type=int, default=12_000)
    parser.add_argument("--calls", type=int, default=540_800)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--tau", type=int, default=1000)
    parser.add_argument("--weight", choices=["covariance", "plug-in"], default="covariance")
    parser.add_argument("--intervals", action="store_true", help="compute the betting intervals")
    return parser.parse_args()


if __name__ == "__main__":
    main()
