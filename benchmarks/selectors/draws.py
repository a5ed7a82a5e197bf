"""How often `auto` names the best, when the same calls go to examples or to repeated draws.

    python -m benchmarks.selectors.draws --worlds 300

Prints the table of ``docs/repeats.md``. Candidate i is right on a draw of example j with a chance
from a Beta distribution of mean .60 - .03 i; ``spread`` is the share of a score's variance that
lies between examples. The best is the candidate of the highest mean chance over all examples.
"""

from __future__ import annotations

import argparse

import numpy as np

from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem, State, Tell

K, N, CALLS, DRAWS, EACH = 6, 900, 900, (1, 3, 5), 3
SPREADS = (0.2, 0.5, 0.8)  # Beta(m s, (1 - m) s) has the variance m (1 - m) / (s + 1)


def is_right(spread: float, n_draws: int, world: int, *, each: bool = False) -> bool:
    """Return whether the best of a world is named after as many calls.

    ``each``: every draw is an example of its own.
    """
    rng = np.random.default_rng([world, int(10 * spread)])
    mean, size = 0.6 - 0.03 * np.arange(K)[:, None], 1 / spread - 1
    chances = rng.beta(mean * size, (1 - mean) * size, size=(K, N))
    if each:
        scores = rng.binomial(1, np.tile(chances, n_draws)).astype(float)
        budget = CALLS
    else:
        scores = rng.binomial(n_draws, chances) / n_draws
        budget = CALLS // n_draws
    problem = Problem(K, scores.shape[1], seed=world, budget=budget, track_intervals=False)
    rule = make_selector("auto", problem)
    while rule.table.n_asked < budget and (asks := rule.ask()):
        rule.tell([Tell(ask.seq, State.DONE, float(scores[ask.pair])) for ask in asks])
    return rule.best().best == int(chances.mean(axis=1).argmax())


def main() -> None:
    """Print a row for each spread."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=300)
    worlds = parser.parse_args().worlds
    heads = [f"draws: {k}" for k in DRAWS] + [f"draws: {EACH}, each"]
    print("| of the variance between examples |", " | ".join(heads), "|")
    for spread in SPREADS:
        kinds = [(k, False) for k in DRAWS] + [(EACH, True)]
        found = [
            np.mean([is_right(spread, k, w, each=each) for w in range(worlds)]) for k, each in kinds
        ]
        print(f"| {spread:.0%} |", " | ".join(f"{share:.0%}" for share in found), "|")


if __name__ == "__main__":
    main()
