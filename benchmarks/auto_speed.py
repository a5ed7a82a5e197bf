"""CPU time of decisions of ``auto``, those that refit its model among them.

    OMP_NUM_THREADS=1 python benchmarks/auto_speed.py

Scores are made up. A decision is one ask and its tell; every so often it fits the model, and now
and then all candidates anew. Limits: a decision with its fit within 5 ms at 100 x 1,000 and within
30 ms at 1,000 x 10,000. The largest of many decisions also counts the garbage collector and
whatever else the machine did.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from bestarm_agent.selectors.auto import Auto
from bestarm_agent.selectors.types import Problem, State, Tell
from selector_speed import scores_of


def measure(shape: tuple[int, int], share: float) -> None:
    """Print the mean, the refits' median and the largest CPU time of a decision."""
    scores, n = scores_of(shape), round(share * shape[0] * shape[1])
    selector = Auto(Problem(*shape, budget=n, track_intervals=False))
    taken = np.empty(n)
    for at in range(n):
        began = time.thread_time()
        [ask] = selector.ask()
        selector.tell([Tell(ask.seq, State.DONE, float(scores[ask.pair]))])
        taken[at] = time.thread_time() - began
    refits = taken[taken > 20 * np.median(taken)]
    print(
        f"{shape[0]:>5} x {shape[1]:<6} {n:>8,} decisions: mean {1e6 * taken.mean():.0f} us, "
        f"{len(refits)} with a fit: median {1e3 * np.median(refits):.1f} ms, "
        f"99 % within {1e3 * np.quantile(refits, 0.99):.1f} ms, largest {1e3 * taken.max():.1f} ms"
    )


def main() -> None:
    """Measure both sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer decisions")
    quick = parser.parse_args().quick
    measure((100, 1000), 0.1 if quick else 0.3)
    measure((1000, 10_000), 0.002 if quick else 0.03)


if __name__ == "__main__":
    main()
