"""How far the forecast of a run is off: replayed runs of `auto` until their winner is established.

    python -m benchmarks.stopping.forecast scores.npz [...] [--candidates 16] [--examples 400]

Each file holds a matrix `scores`, candidates x examples, in [0, 1]. Runs are on random parts of it.
Prints, at parts of the way, the ratio of the count to the pairs that were still needed, and how
often these lay in the range.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.engine.results.forecast import Forecast, forecast
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem, State, Tell
from tests.support.standings import standing_of

_PARTS = (0.25, 0.5, 0.75, 0.9)
_LOOKS = 150  # for the whole grid

Course: TypeAlias = list[tuple[int, Forecast | None]]


def main() -> None:
    """Replay all runs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--candidates", type=int, default=16)
    parser.add_argument("--examples", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=6)
    args = parser.parse_args()
    runs = [
        course(part, seed)
        for path in args.files
        for seed, part in parts(path, args.candidates, args.examples, args.seeds)
    ]
    print(f"{len(runs)} runs; forecast / needed: median, 10 % and 90 % quantile; share in range")
    for share in _PARTS:
        print(f"{share:.0%}: {_line(runs, share)}")


def parts(
    path: Path, candidates: int, examples: int, seeds: int
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Draw random parts of a matrix, without rows that lack scores."""
    scores = np.clip(np.load(path)["scores"].astype(float), 0, 1)
    scores = scores[~np.isnan(scores).any(axis=1)]
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        rows = np.sort(rng.choice(len(scores), min(candidates, len(scores)), replace=False))
        columns = rng.choice(scores.shape[1], min(examples, scores.shape[1]), replace=False)
        yield seed, scores[rows][:, columns]


def course(scores: NDArray[np.float64], seed: int) -> Course:
    """Replay a run; return the pairs asked and the forecast at some moments, the end last."""
    k, n = scores.shape
    labels = [str(i) for i in range(k)]
    selector = make_selector("auto", Problem(k, n, seed=seed, stop_when_separated=True))
    found: Course = []
    asked, every = 0, max(1, k * n // _LOOKS)
    while selector.stopped() is None and (asks := selector.ask(1)):
        selector.tell([Tell(ask.seq, State.DONE, float(scores[ask.pair])) for ask in asks])
        asked += 1
        if asked % every == 0:
            found.append((asked, forecast(standing_of(labels, selector, n))))
    return [*found, (asked, None)]


def _line(runs: list[Course], share: float) -> str:
    ratios, inside = [], []
    for run in runs:
        end = run[-1][0]
        asked, found = min(run, key=lambda one: abs(one[0] - share * end))
        if found is not None and not found.level and asked < end:
            ratios.append(found.pairs / (end - asked))
            inside.append(found.fewest <= end - asked <= found.most)
    low, middle, high = np.quantile(ratios, [0.1, 0.5, 0.9])
    return f"{middle:.2f} [{low:.2f}, {high:.2f}], {np.mean(inside):.0%} of {len(inside)}"


if __name__ == "__main__":
    main()
