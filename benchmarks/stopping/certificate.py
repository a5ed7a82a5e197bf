"""What it costs to establish the best: as it is, and pair by pair as it was before.

    python -m benchmarks.stopping.certificate --data ../shared/data --out docs/reproduction

Replays ``racing`` and ``auto`` on whole matrices until the best is established at 95 %, with the
same seeds, in one run. "Before": every pair of candidates has its share of half the error
probability, and ``auto`` does not aim at the certificate. Writes the table into ``stopping.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from math import exp, log
from pathlib import Path

import numpy as np
from benchmarks.papers.reproduce import fill_report
from benchmarks.papers.stored_studies import Bench, markdown, say
from benchmarks.stopping.matrices import FILES, best_rows

from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.evidence import Evidence
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import BoolArray, Bounds, IntArray, Problem
from bestarm_agent.simulation.replay import replay
from bestarm_agent.simulation.score_matrices import ScoreMatrix, load_matrix
from bestarm_agent.simulation.simulated_calls import Conditions, Latency, SimulatedCalls

MATRICES = {name: FILES[name] for name in ("LiveCodeBench", "AlpacaEval, real part", "SAT12")}
SETTINGS = (("racing", 1), ("auto", 1), ("racing", 32))


class PairByPair(Evidence):
    """Evidence as it was: the best must beat every other in a pair, or by its interval."""

    def _rivals(self, best: int, bounds: Bounds) -> BoolArray:
        return self._intervals.pair_rivals(best, bounds, self.barred)

    def contenders(self, order: IntArray | list[int], top_k: int) -> BoolArray:
        """Return nobody: go on with duels."""
        return np.full(len(order), False)


def run(matrix: ScoreMatrix, rule: str, in_flight: int, seed: int, *, before: bool) -> list[float]:
    """Return the share of the cells that were called, and whether the winner is not the best."""
    latency = Latency(slowdown=3.0) if in_flight > 1 else None
    world = SimulatedCalls(matrix, seed, Conditions(in_flight, latency=latency))
    made: list[Selector] = []

    def make(problem: Problem) -> Selector:
        made.append(make_selector(rule, replace(problem, stop_when_separated=True)))
        if before:
            made[-1].evidence.__class__ = PairByPair
        return made[-1]

    answer = replay(make, world, [matrix.scores.size], seed=seed, track_intervals=True).answers[0]
    wrong = made[-1].best().separated and answer.best not in best_rows(matrix)
    return [answer.evaluated / matrix.scores.size, float(wrong)]


def rows(bench: Bench, seeds: int) -> Iterator[list[str]]:
    """One line per matrix: calls before and now of every setting, in % of the cells."""
    ratios: dict[tuple[str, int], list[float]] = {setting: [] for setting in SETTINGS}
    for name, place in MATRICES.items():
        matrix = replace(load_matrix(str(bench.data / place)), costs=None)
        line = [name, " x ".join(map(str, matrix.scores.shape))]
        for rule, in_flight in SETTINGS:
            means = []
            for before in (True, False):
                key = {"part": "certificate", "matrix": name, "rule": rule, "flight": in_flight}
                key |= {"before": before, "seeds": seeds}
                found = bench.recall(key)
                if found is None:
                    found = [run(matrix, rule, in_flight, s, before=before) for s in range(seeds)]
                    bench.keep(key, found)
                share, wrong = np.mean(found, axis=0)
                means.append(float(share))
                say(f"{name}, {rule}, {in_flight} in flight, before {before}: {share:.4f} {wrong}")
            ratios[rule, in_flight].append(means[1] / means[0])
            line.append(f"{means[0]:.1%} / {means[1]:.1%}: {means[1] / means[0]:.2f}")
        yield line
    total = [exp(sum(map(log, each)) / len(each)) for each in ratios.values()]
    yield ["geometric mean", "", *(f"**{ratio:.2f}**" for ratio in total)]


def main() -> None:
    """Run what is not done yet, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, default=Path("docs/reproduction"))
    parser.add_argument("--work", type=Path, default=Path("build/reproduction/stopping"))
    parser.add_argument("--seeds", type=int, default=4)
    arguments = parser.parse_args()
    bench = Bench(arguments.data, arguments.work, arguments.out, 1, 1.0)
    headers = [f"{rule}, {n} in flight: before / now" for rule, n in SETTINGS]
    table = markdown(["matrix", "size", *headers], list(rows(bench, arguments.seeds)))
    fill_report(bench.out / "stopping.md", {"certificate": table})


if __name__ == "__main__":
    main()
