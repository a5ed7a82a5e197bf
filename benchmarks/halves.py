"""Regret on examples that nobody chose by: half of each matrix to choose on, the other to judge.

    python -m benchmarks.halves --data ../shared/data --write

Every shuffle splits the examples of a matrix anew. ``auto`` runs as a study does, to its own stop,
and like UCB-E to 5 and 10 % of the first half's cells; "all" is the best mean of the whole half.
Fills the table of docs/reproduction/README.md.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from benchmarks.auto.matrices import MATRICES, scores_of
from benchmarks.report import Bench, markdown, run

from bestarm_agent.selectors import Problem, make_selector
from bestarm_agent.simulation.replay import SimulatedCalls, replay

TITLES = ("LiveCodeBench", "SAT12", "AlpacaEval, real, no annotator", "GSM8K", "LLMRouter")
SHARES = (0.05, 0.1)
NAMES = ("auto, own stop", *(f"{rule}, {s:.0%}" for rule in ("auto", "ucb-e") for s in SHARES))
DOCS = Path(__file__).parents[1] / "docs"


def measure(data: Path, title: str, seed: int) -> list[float]:
    """Return the share of calls at auto's own stop, and the regrets: at NAMES, and of all calls."""
    scores = scores_of(data, MATRICES[title])
    order = np.random.default_rng(seed).permutation(scores.shape[1])
    first, second = np.array_split(order, 2)
    calls, seen = SimulatedCalls(scores[:, first], seed), scores[:, first].mean(axis=1)
    problem = Problem(*calls.shape, seed=seed)
    pairs = make_selector("auto", problem)
    while asks := pairs.ask():
        pairs.tell([calls.outcome(ask) for ask in asks])
    best = [calls.rows[pairs.answer.best().best]]
    budgets = [round(share * scores[:, first].size) for share in SHARES]
    for rule in ("auto", "ucb-e"):
        found = replay(partial(make_selector, rule), calls, budgets, seed=seed)
        best += [answer.best for answer in found.answers]
    means = scores[:, second].mean(axis=1, dtype=np.float64)
    regrets = means.max() - means[[*best, int(seen.argmax())]]
    return [pairs.table.n_asked / scores[:, first].size, *map(float, regrets)]


def halves(bench: Bench) -> dict[str, str]:
    """Measure every matrix."""
    found = bench.of_matrices("halves", measure, TITLES, 8)
    rows = {t: np.mean([found[key] for key in found if key[0] == t], axis=0) for t in TITLES}
    cells = [[t, f"{r[0]:.0%}", *(f"{x:.4f}" for x in r[1:])] for t, r in rows.items()]
    names = [*NAMES, "all calls"]
    return {"halves": markdown(["matrix", "calls at the stop", *names], cells)}


if __name__ == "__main__":
    run({"halves": halves}, DOCS / "reproduction" / "README.md", __doc__)
