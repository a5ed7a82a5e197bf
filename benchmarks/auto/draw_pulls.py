"""Draw where ``auto`` spends its pulls: the picture of docs/algorithms.md.

python -m benchmarks.auto.draw_pulls --data ../shared/data --out docs/auto.svg
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from benchmarks.auto.matrices import MATRICES, scores_of
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem
from bestarm_agent.simulation.figures import paper_style
from bestarm_agent.simulation.score_matrices import ScoreMatrix
from bestarm_agent.simulation.simulated_calls import Conditions, SimulatedCalls

TITLE = "LiveCodeBench"
SHARE, SEEDS = 0.06, 20
RULES = {"auto": "#0072B2", "ucb-e": "#D55E00", "sysrs": "#009E73", "uniform": "#999999"}


def pulls(matrix: ScoreMatrix, rule: str, seed: int) -> NDArray[np.bool_]:
    """(K, N) cells that a run asked, candidates by falling mean, examples in the run's order."""
    world = SimulatedCalls(matrix, seed, Conditions())
    budget = round(SHARE * matrix.scores.size)
    problem = Problem(*world.shape, seed=seed, budget=budget, track_intervals=False)
    selector = make_selector(rule, problem)
    while selector.table.n_asked < budget and (asks := selector.ask()):
        selector.tell([world.outcome(asks[0])])
    seen = selector.table.observed()
    order = np.argsort(-matrix.means[world.rows], kind="stable")
    examples = np.argsort(-seen.sum(axis=0), kind="stable")
    return np.asarray(seen[order][:, examples])


def draw(data: Path, out: Path) -> None:
    """Draw both panels."""
    scores = scores_of(data, MATRICES[TITLE])
    matrix = ScoreMatrix(scores, tuple(map(str, range(len(scores)))), None, TITLE)
    with paper_style():
        figure = Figure(figsize=(7.2, 2.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        one = pulls(matrix, "auto", 1)
        left.imshow(one[:, : one.any(axis=0).sum()], cmap="Blues", aspect="auto", vmax=1.4)
        left.set_xlabel("example, in the shared order")
        left.set_ylabel("candidate, the best on top")
        left.set_title("what one run of auto has seen (blue)")
        for rule, colour in RULES.items():
            seen = np.mean([pulls(matrix, rule, s).sum(axis=1) for s in range(SEEDS)], axis=0)
            right.plot(np.arange(1, len(seen) + 1), seen, color=colour, label=rule)
        right.set_yscale("log")
        right.set_xlabel("candidate, by true rank")
        right.set_ylabel("pulls")
        right.set_title(f"mean pulls in {SEEDS} runs")
        right.legend(frameon=False)
        figure.savefig(out)


def main() -> None:
    """Draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, default=Path("docs/auto.svg"))
    options = parser.parse_args()
    draw(options.data, options.out)


if __name__ == "__main__":
    main()
