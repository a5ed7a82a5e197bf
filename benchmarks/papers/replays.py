"""Rules replayed on whole score matrices, kept by rule and budgets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from benchmarks.report import Bench

from bestarm_agent.simulation.curves import summarise
from bestarm_agent.simulation.replay import parse_contenders, replay_all
from bestarm_agent.simulation.score_matrices import ScoreMatrix, load_matrix

PROMPTS = "rautoeval_prompting.npz"


def matrix_of(bench: Bench, location: str, *, without_best: bool = False) -> ScoreMatrix:
    """Load a matrix of the data folder, with or without the row of the highest mean.

    Args:
        bench: knows the data folder.
        location: file, or file and task, in it.
        without_best: whether to leave out the row of the highest mean.
    """
    matrix = replace(load_matrix(str(bench.data / location)), source=location)
    if not without_best:
        return matrix
    best = int(np.argmax(matrix.means))
    names = tuple(name for i, name in enumerate(matrix.names) if i != best)
    scores = np.delete(matrix.scores, best, axis=0)
    return ScoreMatrix(scores, names, f"{location} without {matrix.names[best]}")


def curve_of(
    bench: Bench, part: str, matrix: ScoreMatrix, rule: str, shares: Sequence[float], seeds: int
) -> Any:  # noqa: ANN401 - JSON
    """Return one rule's curve as plain numbers; replayed if it was not at these shares."""
    key = {
        "part": part,
        "matrix": matrix.source,
        "selector": rule,
        "fractions": list(shares),
        "seeds": seeds,
    }

    def measure() -> dict[str, Any]:
        started = time.perf_counter()
        [contender] = parse_contenders(rule)
        replays = replay_all(matrix.scores, [contender], shares, seeds, jobs=bench.jobs)
        found = summarise(matrix, replays[contender.label]).as_dict()
        return {**found, "wall_seconds": time.perf_counter() - started}

    return bench.found(key, measure)
