"""Reproduce the experiments of the preselection paper, and route real prompts.

    python -m benchmarks.preselection.reproduce --data ../shared/data --out docs/reproduction

Fills the marked places of ``preselection.md`` and draws its figures. Finished parts are kept under
``--work``; delete a file there to measure that part again. One process, nine minutes of one core
with the default repetitions.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.papers.parts import Parts, reproduce
from benchmarks.preselection.report import write_report
from benchmarks.preselection.worlds import (
    PAPER_RULES,
    Contender,
    play,
    route,
    router_table,
    solver_rounds,
    solver_table,
    summary,
    synthetic_rounds,
)

from bestarm_agent.preselection.table_replay import Table

SETTINGS = [(n, d, k) for n in (10, 20, 50) for d, k in ((5, 2), (5, 5), (10, 3))]
LENGTH = 500
FLAT = {"spread": 0.0}  # theta starts at zero: every model equal
ROUTERS = (
    Contender("random", "random"),
    Contender("mm", "mm"),
    Contender("max-theta", "max-theta", FLAT),
    Contender("epsilon-greedy", "epsilon-greedy", FLAT),
    Contender("cppl", "cppl", FLAT),
    Contender("linucb", "linucb", {"width": 0.3}),
    Contender("thompson", "thompson", {"noise": 0.1}),
)
COST_WEIGHTS = (0.05, 0.1, 0.2, 0.4)
PRICED = tuple(
    Contender(f"{rule} λ={weight}", rule, params, weight)
    for rule, params in (("cppl", FLAT), ("thompson", {"noise": 0.1}))
    for weight in COST_WEIGHTS
)


def figure1(_data: Path, repetitions: int) -> dict[str, Any]:
    """Synthetic contexts, winner feedback."""
    return {
        f"n={n} d={d} k={k}": {
            rule: summary(
                [
                    play(rule, synthetic_rounds(n, d, LENGTH, seed), (n, d), k, 1, seed)
                    for seed in range(repetitions)
                ]
            )
            for rule in PAPER_RULES
        }
        for n, d, k in SETTINGS
    }


def figure2(data: Path, repetitions: int) -> dict[str, Any]:
    """SAT solver configurations; rankings and winners as feedback."""
    with np.load(data / "sat_swgcp_saps.npz") as file:
        arrays = dict(file)
    return {
        f"k={k} {feedback}": {
            rule: summary(
                [
                    play(rule, solver_rounds(arrays, seed), (20, 28), k, n_ranked, seed)
                    for seed in range(repetitions)
                ]
            )
            for rule in PAPER_RULES
        }
        for feedback, ranked in (("ranking", True), ("winner", False))
        for k in (2, 3, 5)
        for n_ranked in [k if ranked else 1]
    }


def router(data: Path, repetitions: int) -> dict[str, Any]:
    """Real prompts, nine models with prices."""
    path = data / "router_llmrouter_9models.npz"
    with np.load(path) as file:
        n_prompts = file["scores"].shape[1]
    return _routed(
        n_prompts, lambda order: router_table(path, order), ROUTERS + PRICED, repetitions
    )


def solvers(data: Path, repetitions: int) -> dict[str, Any]:
    """31 SAT solvers with instance features."""
    table = solver_table(data / "aslib_sat12_indu.npz")
    return _routed(table.scores.shape[1], lambda _order: table, ROUTERS, repetitions)


def _routed(
    length: int,
    table_of: Callable[[Any], Table],
    contenders: tuple[Contender, ...],
    repetitions: int,
) -> dict[str, Any]:
    runs: dict[str, list[dict[str, Any]]] = {contender.label: [] for contender in contenders}
    for seed in range(repetitions):
        order = np.random.default_rng([seed, 3]).permutation(length)
        table = table_of(order)
        for contender in contenders:
            runs[contender.label].append(route(table, contender, order, seed))
    return {"runs": runs, "yardsticks": yardsticks(table), "length": length}


def yardsticks(table: Table) -> dict[str, Any]:
    """What every fixed choice of one or two candidates, and an oracle, would have got."""
    fixed = [
        {
            "arms": list(arms),
            "quality": float(table.scores[list(arms)].max(axis=0).mean()),
            "cost": float(table.costs[list(arms)].sum()),
        }
        for size in (1, 2)
        for arms in combinations(range(len(table.scores)), size)
    ]
    best = table.scores == table.scores.max(axis=0)
    cheapest = np.where(best, table.costs[:, None], np.inf).min(axis=0)
    oracle = {"quality": float(table.scores.max(axis=0).mean()), "cost": float(cheapest.mean())}
    return {"fixed": fixed, "oracle": oracle}


PARTS: Parts = {
    "figure1": (figure1, 100),
    "figure2": (figure2, 50),
    "router": (router, 3),
    "solvers": (solvers, 3),
}


if __name__ == "__main__":
    reproduce("preselection", PARTS, write_report, __doc__)
