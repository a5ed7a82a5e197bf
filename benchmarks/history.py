"""Widths of the intervals of means that past candidates' scores help, beside those without help.

    python -m benchmarks.history --data ../shared/data --write

Of every matrix half of the rows, at most 150, are history, and 8 of the others candidates; at most
1,500 examples. Each candidate sees the same share of them in a random order. "Other examples": the
history's examples are shuffled, so it predicts nothing though it was held to. History is used even
where held-out candidates are not predicted, which a run would not do. Fills the table of
docs/reproduction/README.md.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from benchmarks.auto.matrices import MATRICES, scores_of
from benchmarks.report import Bench, markdown, run

from bestarm_agent.stats.arrays import FloatArray
from bestarm_agent.stats.betting import MeanInterval
from bestarm_agent.stats.control import Controls
from bestarm_agent.stats.history import Factors, learn

SHARES = (0.05, 0.1, 0.25)
ROWS, PAST, EXAMPLES, RANKS = 8, 150, 1500, (0, 1, 2, 4, 8)
ALPHA = 0.05 / 2 / 30  # of one mean, where 30 candidates are compared


def width(scores: FloatArray, n_seen: int, factors: Factors | None) -> float:
    """Return the width of the interval after the first examples."""
    interval, seen = MeanInterval(len(scores), ALPHA), scores[:n_seen]
    control = None
    if factors is not None:
        control = Controls(factors).next(0, np.arange(n_seen), seen, seen)
    interval.extend(seen, seen, control)
    return interval.upper - interval.lower


def measure(data: Path, title: str, seed: int) -> list[list[float]]:
    """Return mean widths at each share: without history, with it, and with that of others."""
    scores = scores_of(data, MATRICES[title]).astype(float)
    rng = np.random.default_rng(seed)
    past, now = np.array_split(rng.permutation(len(scores)), 2)
    columns = rng.permutation(scores.shape[1])[:EXAMPLES]
    factors = learn(scores[np.ix_(past[:PAST], columns)], ranks=RANKS).factors
    helps = None, factors, factors.at(rng.permutation(len(columns)))
    rows = scores[np.ix_(now[:ROWS], columns)]
    counts = [max(2, round(share * len(columns))) for share in SHARES]
    return [
        [float(np.mean([width(row, n, told) for row in rows])) for told in helps] for n in counts
    ]


def history(bench: Bench) -> dict[str, str]:
    """Measure every matrix; geometric means of the widths, as shares of those without history."""
    found = bench.of_matrices("history", measure, MATRICES, 2)
    widths = np.array(list(found.values()))  # (tasks, shares, helps)
    logs = np.log(widths[..., 1:] / widths[..., :1])
    cells = []
    for name, of_help in zip(("history", "history of other examples"), logs.T, strict=True):
        ends = (
            f"{np.exp(of.mean()):.2f} ({np.exp(of.min()):.2f} to {np.exp(of.max()):.2f})"
            for of in of_help
        )
        cells.append([name, *ends])
    return {"history": markdown(["", *(f"{share:.0%}" for share in SHARES)], cells)}


if __name__ == "__main__":
    run({"history": history}, Path(__file__).parents[1] / "docs/reproduction/README.md", __doc__)
