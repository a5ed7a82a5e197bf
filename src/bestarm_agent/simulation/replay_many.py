"""Replay several rules on one matrix over many seeds, in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from bestarm_agent.selectors.types import Problem
from bestarm_agent.simulation.replay import Replay, replay
from bestarm_agent.simulation.replay_per_cost import replay_per_cost
from bestarm_agent.simulation.rule_specs import Contender
from bestarm_agent.simulation.score_matrices import ScoreMatrix
from bestarm_agent.simulation.simulated_calls import Conditions, SimulatedCalls
from bestarm_agent.simulation.workers import SharedMatrix, process_workers

Progress: TypeAlias = Callable[[int, int], None]
Replays: TypeAlias = dict[str, list[Replay]]


@dataclass(frozen=True, slots=True)
class Plan:
    """Settings of the replays.

    With ``per_cost``, rules know the costs of candidates and work per unit of cost; fractions are
    then shares of the cost of all cells, and calls are made one by one.
    """

    fractions: tuple[float, ...]  # rising shares of the K x N cells, in (0, 1], to answer at
    seeds: int  # >= 1; each shuffles the matrix
    first_seed: int = 0  # >= 0
    conditions: Conditions = field(default_factory=Conditions)  # how calls are made
    top_k: int = 1  # size of the set to find, >= 1; 1 means the best alone
    track_intervals: bool = False  # see ``Problem``
    per_cost: bool = False

    def __post_init__(self) -> None:
        rising = list(self.fractions) == sorted(set(self.fractions))
        if not (self.fractions and rising and self.fractions[0] > 0 and self.fractions[-1] <= 1):
            raise ValueError(
                f"budgets must be rising shares of all calls in (0, 1], got {self.fractions}"
            )
        if self.seeds < 1:
            raise ValueError(f"seeds must be at least 1, got {self.seeds}")
        if self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {self.top_k}")
        if self.per_cost and self.conditions.in_flight > 1:
            raise ValueError(
                f"per dollar one call is made at a time, got {self.conditions.in_flight} in flight"
            )

    def budgets(self, n_cells: int) -> list[int]:
        """Return the shares as numbers of pairs, without duplicates."""
        return sorted({max(1, round(share * n_cells)) for share in self.fractions})

    @property
    def depth(self) -> int:
        """Return the number of ranking places that the metrics need."""
        return max(10, self.top_k)


def budget_shares(low: float, high: float, points: int) -> tuple[float, ...]:
    """Geometrically spaced shares from ``low`` to ``high``, both included.

    Example:
        >>> budget_shares(0.01, 0.04, 3)
        (0.01, 0.02, 0.04)
    """
    shares = np.geomspace(low, high, points) if points > 1 else np.array([high])
    return tuple(float(f"{share:.6g}") for share in shares)


def run_study(
    matrix: ScoreMatrix,
    contenders: Sequence[Contender],
    plan: Plan,
    *,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Replays:
    """Replay every contender on every seed; return by label its replays, one per seed in order.

    Labels must differ. ``jobs`` is the number of processes, >= 1; with 1 all runs in this process.
    The result does not depend on it. ``progress`` is called with (runs done, runs in all). Raises
    ValueError if a rule refuses its name, its options or the problem.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    contenders = [contender.looking_for(plan.top_k) for contender in contenders]
    _try_out(matrix, contenders, plan)
    seeds = range(plan.first_seed, plan.first_seed + plan.seeds)
    tasks = [(contender, seed) for seed in seeds for contender in contenders]
    report = progress or (lambda done, total: None)
    done: dict[tuple[str, int], Replay] = {}
    for contender, seed, result in _run_all(matrix, tasks, plan, jobs):
        done[contender.label, seed] = result
        report(len(done), len(tasks))
    return {c.label: [done[c.label, seed] for seed in seeds] for c in contenders}


def run_one(matrix: ScoreMatrix, contender: Contender, seed: int, plan: Plan) -> Replay:
    """Replay one contender on one seed."""
    calls, budgets = SimulatedCalls(matrix, seed, plan.conditions), plan.budgets(matrix.scores.size)
    if plan.per_cost:
        return replay_per_cost(contender.make, calls, budgets, seed=seed, depth=plan.depth)
    return replay(
        contender.make,
        calls,
        budgets,
        seed=seed,
        depth=plan.depth,
        track_intervals=plan.track_intervals,
    )


def _try_out(matrix: ScoreMatrix, contenders: Sequence[Contender], plan: Plan) -> None:
    """Make every rule once, so that a wrong name or option fails before any work is done."""
    n_candidates, n_examples = matrix.scores.shape
    if plan.top_k > n_candidates:
        raise ValueError(f"top_k must be at most {n_candidates} candidates, got {plan.top_k}")
    for contender in contenders:
        contender.make(
            Problem(n_candidates, n_examples, budget=plan.budgets(matrix.scores.size)[-1])
        )


def _run_all(
    matrix: ScoreMatrix, tasks: Sequence[tuple[Contender, int]], plan: Plan, jobs: int
) -> Iterator[tuple[Contender, int, Replay]]:
    if jobs == 1:
        for contender, seed in tasks:
            yield contender, seed, run_one(matrix, contender, seed, plan)
        return
    with process_workers(matrix, jobs) as (pool, shared):
        futures = {pool.submit(_run_in_worker, shared, *task, plan): task for task in tasks}
        try:
            for future in as_completed(futures):
                yield *futures[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _run_in_worker(shared: SharedMatrix, contender: Contender, seed: int, plan: Plan) -> Replay:
    return run_one(shared.open(), contender, seed, plan)
