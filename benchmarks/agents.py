"""What many trials in flight cost a selection, and what dropping tasks by history costs.

    python -m benchmarks.agents --data ../shared/data --write

Half of a matrix's rows, drawn anew by each seed, are the candidates; the other half is the history.
The published way keeps the tasks with a pass rate of 30 to 70 % in the history, and runs all or
some of them for every candidate. ``auto`` has 400 trials, one at a time or 32 in flight, whose
lengths are log-normal (sigma 1, as minutes-long trials vary). Regret is over all tasks. Fills the
table of docs/how-to/agents.md; errors are standard errors over seeds of the mean over matrices.
"""

from __future__ import annotations

from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.auto.matrices import MATRICES, scores_of
from benchmarks.report import Bench, markdown, run
from numpy.typing import NDArray

from bestarm_agent.selectors import Problem, make_selector
from bestarm_agent.selectors.types import Ask
from bestarm_agent.simulation.replay import SimulatedCalls

TITLES = ("LiveCodeBench", "GSM8K", "BFCL", "SAT12")
BUDGET = 400
WAYS = (
    "`auto`, one at a time",
    "`auto`, 32 in flight",
    "evenly over all tasks",
    "evenly over kept tasks",
    "all kept tasks",
)


def selected(scores: NDArray[Any], seed: int, in_flight: int) -> tuple[int, float]:
    """Return the row that ``auto`` chooses, and how long it took, in mean lengths of a trial."""
    calls, draws = SimulatedCalls(scores, seed), np.random.default_rng(seed)
    problem = Problem(*calls.shape, seed=seed, budget=BUDGET, track_intervals=False)
    pairs = make_selector("auto", problem)
    running: list[tuple[float, int, Ask]] = []
    now, asked = 0.0, 0
    while True:
        while len(running) < in_flight and asked < BUDGET and (asks := pairs.ask()):
            length = draws.lognormal(mean=-0.5)  # of mean 1
            heappush(running, (now + length, asks[0].seq, asks[0]))
            asked += 1
        if not running:
            return calls.rows[pairs.answer.best().best], now
        now, _, done = heappop(running)
        pairs.tell([calls.outcome(done)])


def measure(data: Path, title: str, seed: int) -> list[list[float]]:
    """Return trials, length and regret of each way; and the share of tasks kept."""
    whole, draws = scores_of(data, MATRICES[title]), np.random.default_rng(seed)
    rows = draws.permutation(len(whole))
    own, history = (whole[half] for half in np.array_split(rows, 2))
    means = own.mean(axis=1, dtype=np.float64)
    rates = history.mean(axis=0, dtype=np.float64)
    kept = np.flatnonzero((rates >= 0.3) & (rates <= 0.7))
    each = BUDGET // len(own)

    def evenly(tasks: NDArray[Any]) -> int:
        return int(own[:, tasks].mean(axis=1, dtype=np.float64).argmax())

    one, many = selected(own, seed, 1), selected(own, seed, 32)
    chosen = (
        (BUDGET, one[1], one[0]),
        (BUDGET, many[1], many[0]),
        (BUDGET, BUDGET / 32, evenly(draws.permutation(own.shape[1])[:each])),
        (BUDGET, BUDGET / 32, evenly(draws.permutation(kept)[:each])),
        (kept.size * len(own), kept.size * len(own) / 32, evenly(kept)),
    )
    found = [[float(n), length, float(means.max() - means[row])] for n, length, row in chosen]
    return [*found, [kept.size / own.shape[1]]]


def agents(bench: Bench) -> dict[str, str]:
    """Measure every matrix."""
    seeds = range(bench.seeds(100))
    tasks = {
        (title, seed): (
            {"part": "agents", "matrix": title, "seed": seed},
            partial(measure, bench.data, title, seed),
        )
        for title in TITLES
        for seed in seeds
    }
    found = bench.all_found(tasks)
    by_seed = np.array([[found[title, seed][:-1] for title in TITLES] for seed in seeds])
    means = by_seed.mean(axis=1)  # (seeds, ways, amounts)
    share = 1 - np.mean([found[key][-1][0] for key in found])

    def with_error(values: NDArray[Any], form: str = ".4f") -> str:
        error = values.std(ddof=1) / np.sqrt(len(values))
        return f"{values.mean():{form}} ± {error:{form}}"

    cells = [
        [
            way,
            f"{means[:, at, 0].mean():,.0f}",
            f"{means[:, at, 1].mean():,.0f}",
            with_error(means[:, at, 2]),
        ]
        for at, way in enumerate(WAYS)
    ]
    print(f"history drops {share:.0%} of the tasks")
    print("32 in flight against one at a time:", with_error(means[:, 1, 2] - means[:, 0, 2]))
    print("kept by history against auto:", with_error(means[:, 3, 2] - means[:, 1, 2]))
    head = ["way", "trials", "time", "regret"]
    return {"agents": markdown(head, cells)}


if __name__ == "__main__":
    run({"agents": agents}, Path(__file__).parents[1] / "docs" / "how-to" / "agents.md", __doc__)
