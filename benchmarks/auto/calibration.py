"""How often `auto` is right when it says with which probability it is.

    python -m benchmarks.auto.calibration --data ../shared/data

Random sub-matrices (30 candidates, 400 examples) are replayed with unknown budget; at 2, 4, 8 and
16 % of the cells the probability shown is noted under several inflations of the model's variances,
and whether the named candidate is the best. An inflation is chosen on the first half of the
matrices and confirmed on the others. Prints one line per inflation, half and range.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from benchmarks.papers.stored_studies import markdown
from benchmarks.stopping.matrices import FILES, PROMPTS, best_rows
from numpy.typing import NDArray

from bestarm_agent.selectors.rules import auto_duels
from bestarm_agent.selectors.rules.auto import Auto
from bestarm_agent.selectors.types import Problem
from bestarm_agent.simulation.score_matrices import ScoreMatrix, load_matrix
from bestarm_agent.simulation.simulated_calls import Conditions, SimulatedCalls

INFLATIONS = (1.25, 1.0, 0.8, 0.65, 0.5)
SHARES = (0.02, 0.04, 0.08, 0.16)
EDGES = (0.0, 0.3, 0.5, 0.7, 0.85, 0.95, 1.01)
CHOICE = {
    "LiveCodeBench": FILES["LiveCodeBench"],
    "SAT12": FILES["SAT12"],
    "rhymes": f"{PROMPTS}:rhymes",
    "sentiment": f"{PROMPTS}:sentiment",
    "antonyms": f"{PROMPTS}:antonyms",
}
CONFIRMATION = {
    "BFCL": FILES["BFCL"],
    "ZeroEval GSM8K": FILES["ZeroEval GSM8K"],
    "AlpacaEval, real part": FILES["AlpacaEval, real part"],
    "taxonomy animal": f"{PROMPTS}:taxonomy_animal",
    "negation": f"{PROMPTS}:negation",
}


def drawn(matrix: ScoreMatrix, seed: int, rows: int = 30, columns: int = 400) -> ScoreMatrix:
    """Draw rows and columns of a matrix, without missing scores."""
    rng = np.random.default_rng([seed, 19])
    whole = np.flatnonzero(~np.isnan(matrix.scores).any(axis=0))
    those = rng.permutation(whole)[:columns]
    picked = rng.permutation(len(matrix.scores))[:rows]
    return ScoreMatrix(matrix.scores[picked][:, those], tuple(f"row {i}" for i in picked))


def said(matrix: ScoreMatrix, seed: int) -> Iterator[tuple[list[float], bool]]:
    """Yield the probability shown, one per inflation, and whether the best is named."""
    world = SimulatedCalls(matrix, seed, Conditions())
    selector = Auto(Problem(*world.shape, seed=seed, track_intervals=False))
    asked, right = 0, best_rows(matrix)
    for share in SHARES:
        while asked < share * matrix.scores.size:
            [ask] = selector.ask()
            selector.tell([world.outcome(ask)])
            asked += 1
        shown = []
        for inflation in INFLATIONS:
            auto_duels._INFLATION = inflation
            verdict = selector.best()
            shown.append(np.nan if verdict.probability is None else verdict.probability)
        auto_duels._INFLATION = INFLATIONS[0]  # pulls go on as they would
        yield shown, world.rows[verdict.best] in right


def lines(name: str, shown: NDArray[np.float64], right: NDArray[np.bool_]) -> Iterator[list[str]]:
    """One line per inflation: the log score, then share shown and share right in every range."""
    for inflation, each in zip(INFLATIONS, shown.T, strict=True):
        known = ~np.isnan(each)
        p, hit = np.clip(each[known], 1e-3, 1 - 1e-3), right[known]
        score = float(np.where(hit, np.log(p), np.log(1 - p)).mean())
        cells = []
        for low, high in itertools.pairwise(EDGES):
            inside = (p >= low) & (p < high)
            cells.append(
                f"{p[inside].mean():.2f} / {hit[inside].mean():.2f} ({inside.sum()})"
                if inside.any()
                else ""
            )
        yield [name, f"{inflation:g}", f"{score:.3f}", *cells]


def main() -> None:
    """Run both halves and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", type=int, default=25)
    arguments = parser.parse_args()
    rows = []
    for half, places in (("choice", CHOICE), ("confirmation", CONFIRMATION)):
        found = []
        for place in places.values():
            matrix = load_matrix(str(arguments.data / place))
            for seed in range(arguments.seeds):
                found += list(said(drawn(matrix, seed), seed))
        shown = np.array([each for each, _ in found])
        rows += list(lines(half, shown, np.array([hit for _, hit in found])))
        print(markdown(["half", "inflation", "log score", *map(str, EDGES[:-1])], rows), flush=True)


if __name__ == "__main__":
    main()
