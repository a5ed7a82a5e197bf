"""Replays of one rule on simulated calls, with its answers at several amounts of money spent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Problem
from bestarm_agent.simulation.replay import Answer, Replay, Spent, answer_of
from bestarm_agent.simulation.simulated_calls import SimulatedCalls


def replay_per_cost(
    make: Callable[[Problem], Pairs],
    calls: SimulatedCalls,
    budgets: Sequence[int],
    *,
    seed: int = 0,
    depth: int = 10,
    cpu_clock: Callable[[], float] = time.process_time,
) -> Replay:
    """Run a rule that knows the candidates' costs, with its answers at several amounts of money.

    ``budgets`` are rising numbers of pairs, each >= 1, which stand for the same share of the cost
    of all pairs as they are of their number. Raises ValueError if the matrix has no costs.
    """
    costs = known_costs(calls)
    n_pairs = calls.shape[0] * calls.shape[1]
    price = float(np.mean(costs))  # of a pair, on average over all

    def problem_of(level: float) -> Problem:
        problem = affordable_problem(calls.shape, level, costs, seed=seed, per_cost=True)
        return replace(problem, axes=calls.axes)

    def answer(budgets: Sequence[int]) -> list[Answer]:
        levels = [budget * price for budget in budgets]
        problem = problem_of(levels[-1])
        selector = make(problem)
        steps = zip(budgets, spend_to_levels(selector, calls, costs, levels), strict=True)
        return [
            answer_of(selector, calls, depth, Spent(budget, pulls, spent))
            for budget, (_, spent, pulls) in steps
        ]

    begun = cpu_clock()
    if make(problem_of(n_pairs * price)).rule.anytime:
        answers = answer(budgets)
        pulls = answers[-1].evaluated
    else:
        answers = [found for budget in budgets for found in answer([budget])]
        pulls = sum(answer.evaluated for answer in answers)
    return Replay(tuple(answers), pulls, cpu_clock() - begun)


def affordable_problem(
    shape: tuple[int, int], level: float, costs: tuple[float, ...], *, seed: int, per_cost: bool
) -> Problem:
    """Return the problem whose budget in pairs ``level`` pays for at the mean cost."""
    affordable = max(1, int(level / np.mean(costs)))
    return Problem(
        *shape,
        seed=seed,
        budget=min(shape[0] * shape[1], affordable),
        costs=costs if per_cost else None,
        track_intervals=False,
    )


def spend_to_levels(
    selector: Pairs, calls: SimulatedCalls, costs: Sequence[float], levels: Sequence[float]
) -> Iterator[tuple[float, float, int]]:
    """Yield level, money spent and pairs evaluated, whenever the next pair would pass a level."""
    spent, pulls = 0.0, 0
    per_candidate = np.asarray(costs)
    for level in levels:
        while asks := selector.ask(1, allowed=per_candidate <= level - spent + 1e-12):
            tell = calls.outcome(asks[0])
            selector.tell([tell])
            spent += tell.cost
            pulls += 1
        yield level, spent, pulls


def known_costs(calls: SimulatedCalls) -> tuple[float, ...]:
    """Return the candidates' costs; raises ValueError if they are unknown."""
    if calls.costs is None:
        raise ValueError("to count money every candidate needs a cost, and the matrix has none")
    return calls.costs
