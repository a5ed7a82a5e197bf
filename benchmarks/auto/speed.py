"""CPU time of decisions of ``auto``, those that refit its model among them.

    OMP_NUM_THREADS=1 python -m benchmarks.auto.speed

Scores and what history taught are made up. A decision is one ask and its tell; every so often it
fits the model, and now and then all candidates anew. Limits: a decision with its fit within 5 ms at
100 x 1,000 and within 30 ms at 1,000 x 10,000; the mean within 3 ms at 1,000 candidates and within
5 ms at 4,000, of a grid of three axes too. The largest of many decisions also counts the
garbage collector and whatever else the machine did.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from benchmarks.selectors.speed import scores_of

from bestarm_agent.selectors.rules.auto import Auto
from bestarm_agent.selectors.types import Problem, State, Tell
from bestarm_agent.stats.models.example_factors import Factors
from bestarm_agent.stats.models.history_validation import HistoryModel, Validation


def made_up_history(n_examples: int) -> HistoryModel:
    """A history strong enough to be used."""
    rng = np.random.default_rng(0)
    factors = Factors(rng.normal(0, 2, n_examples), rng.uniform(0.5, 2, (n_examples, 2)))
    return HistoryModel(factors, Validation(2, 4.0, 0.5, 0.02, 0.4, 0.6, 30))


def measure(
    shape: tuple[int, int], share: float, *, taught: bool = False, levels: tuple[int, ...] = ()
) -> None:
    """Print the mean, the refits' median and the largest CPU time of a decision.

    ``levels`` are the numbers of levels of the axes whose grid the candidates are, if any.
    """
    scores, n = scores_of(shape), round(share * shape[0] * shape[1])
    history = made_up_history(shape[1]) if taught else None
    axes = np.indices(levels).reshape(len(levels), -1).T if levels else None
    problem = Problem(*shape, budget=n, track_intervals=False, axes=axes)
    selector = Auto(problem, history=history)
    taken = np.empty(n)
    for at in range(n):
        began = time.thread_time()
        [ask] = selector.ask()
        selector.tell([Tell(ask.seq, State.DONE, float(scores[ask.pair]))])
        taken[at] = time.thread_time() - began
    refits = taken[taken > 20 * np.median(taken)]
    kind = "history" if taught else "axes" if levels else ""
    print(
        f"{shape[0]:>5} x {shape[1]:<6} {kind:7} {n:>8,} decisions: "
        f"mean {1e6 * taken.mean():.0f} us, "
        f"{len(refits)} with a fit: median {1e3 * np.median(refits):.1f} ms, "
        f"99 % within {1e3 * np.quantile(refits, 0.99):.1f} ms, largest {1e3 * taken.max():.1f} ms"
    )


def main() -> None:
    """Measure all sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer decisions")
    quick = parser.parse_args().quick
    for taught in (False, True):
        measure((100, 1000), 0.1 if quick else 0.3, taught=taught)
        measure((1000, 10_000), 0.002 if quick else 0.03, taught=taught)
    measure((1000, 300), 0.01, levels=(20, 50))
    measure((4000, 300), 0.0025, levels=(50, 80))
    measure((4000, 300), 0.0025, levels=(10, 20, 20))


if __name__ == "__main__":
    main()
