"""Replays of one rule in one world that end when the money is spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Problem
from bestarm_agent.simulation.replay_per_cost import (
    affordable_problem,
    known_costs,
    spend_to_levels,
)
from bestarm_agent.simulation.simulated_calls import SimulatedCalls


@dataclass(frozen=True, slots=True)
class Purchase:
    """A rule's answer when its money is spent.

    Attributes:
        level: money it might spend, in the matrix's unit of cost.
        spent: money it spent, at most that.
        pulls: pairs evaluated.
        best: its verdict, a row of the unshuffled matrix.
    """

    level: float
    spent: float
    pulls: int
    best: int


def replay_spending(
    make: Callable[[Problem], Pairs],
    world: SimulatedCalls,
    levels: Sequence[float],
    *,
    seed: int = 0,
    per_cost: bool = False,
) -> tuple[Purchase, ...]:
    """Run a rule with one call at a time, each paid for before it is made.

    An anytime rule runs once and answers whenever its next pair would pass a level. A rule that
    plans for its budget runs again for each level; its budget in pairs is the number that the level
    pays for at the mean cost of all candidates.

    Args:
        make: builds the rule for a problem.
        world: answers its calls; every candidate has a cost.
        levels: rising amounts of money, each > 0.
        seed: the rule's own seed, >= 0.
        per_cost: the rule knows the costs and works per unit of cost.

    Raises:
        ValueError: the world has no costs, or ``levels`` are not rising.
    """
    costs = known_costs(world)
    if not levels or list(levels) != sorted(set(levels)) or levels[0] <= 0:
        raise ValueError(f"levels must be rising amounts above 0, got {list(levels)}")

    def start(level: float) -> Pairs:
        return make(affordable_problem(world.shape, level, costs, seed=seed, per_cost=per_cost))

    selector = start(levels[-1])
    if selector.rule.anytime:
        return _spend(selector, world, costs, levels)
    return tuple(_spend(start(level), world, costs, [level])[0] for level in levels)


def _spend(
    selector: Pairs, world: SimulatedCalls, costs: Sequence[float], levels: Sequence[float]
) -> tuple[Purchase, ...]:
    return tuple(
        Purchase(level, spent, pulls, world.rows[selector.best().best])
        for level, spent, pulls in spend_to_levels(selector, world, costs, levels)
    )
