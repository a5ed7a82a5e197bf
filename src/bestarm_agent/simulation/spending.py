"""Run one rule in one world and note its answer whenever so much money is spent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.types import Problem
from bestarm_agent.simulation.replay import Answer, Replay, Spent, answer_of
from bestarm_agent.simulation.world import World


@dataclass(frozen=True, slots=True)
class Purchase:
    """What a rule says once it may spend no more.

    Attributes:
        level: what it might spend, in the matrix's unit of cost.
        spent: what it spent, at most that.
        pulls: pairs evaluated for it.
        best: its verdict, a row of the unshuffled matrix.
    """

    level: float
    spent: float
    pulls: int
    best: int


def replay_spending(
    make: Callable[[Problem], Selector],
    world: World,
    levels: Sequence[float],
    *,
    seed: int = 0,
    per_cost: bool = False,
) -> tuple[Purchase, ...]:
    """Run a rule with one call at a time, each paid for before it is made.

    An anytime rule runs once and is looked at whenever its next pair would pass a level. A rule
    that plans for its budget runs afresh for each level; its budget in pairs is what the level
    pays for at the mean cost of all candidates.

    Args:
        make: builds the rule for a problem.
        world: answers its calls; every candidate has a cost.
        levels: rising amounts of money, each > 0.
        seed: the rule's own seed, >= 0.
        per_cost: whether the rule is told the costs and works per unit of cost.

    Returns:
        Its answers, one per level.

    Raises:
        ValueError: the world knows no costs, or ``levels`` are not rising.

    Example:
        >>> from bestarm_agent.selectors.registry import make_selector
        >>> from bestarm_agent.simulation.matrices import ScoreMatrix
        >>> from bestarm_agent.simulation.world import Conditions
        >>> scores = np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
        >>> matrix = ScoreMatrix(scores, ("good", "bad"), costs=np.array([3.0, 1.0]))
        >>> world = World(matrix, 0, Conditions())
        >>> make = lambda problem: make_selector("uniform", problem)
        >>> [(p.spent, p.best) for p in replay_spending(make, world, [4.0, 99.0])]
        [(4.0, 0), (12.0, 0)]
    """
    costs = _costs(world)
    if not levels or list(levels) != sorted(set(levels)) or levels[0] <= 0:
        raise ValueError(f"levels must be rising amounts above 0, got {list(levels)}")

    def start(level: float) -> Selector:
        return make(_problem(world.shape, level, costs, seed=seed, per_cost=per_cost))

    selector = start(levels[-1])
    if selector.anytime:
        return _spend(selector, world, costs, levels)
    return tuple(_spend(start(level), world, costs, [level])[0] for level in levels)


def _problem(
    shape: tuple[int, int], level: float, costs: tuple[float, ...], *, seed: int, per_cost: bool
) -> Problem:
    affordable = max(1, int(level / np.mean(costs)))
    return Problem(
        *shape,
        seed=seed,
        budget=min(shape[0] * shape[1], affordable),
        costs=costs if per_cost else None,
        track_intervals=False,
    )


def _spend(
    selector: Selector, world: World, costs: Sequence[float], levels: Sequence[float]
) -> tuple[Purchase, ...]:
    return tuple(
        Purchase(level, spent, pulls, world.rows[selector.best().best])
        for level, spent, pulls in _course(selector, world, costs, levels)
    )


def _course(
    selector: Selector, world: World, costs: Sequence[float], levels: Sequence[float]
) -> Iterator[tuple[float, float, int]]:
    """Level, money spent and pairs evaluated, whenever the next pair would pass a level."""
    spent, pulls = 0.0, 0
    per_candidate = np.asarray(costs)
    for level in levels:
        while asks := selector.ask(1, affordable=per_candidate <= level - spent + 1e-12):
            tell = world.outcome(asks[0])
            selector.tell([tell])
            spent += tell.cost
            pulls += 1
        yield level, spent, pulls


def replay_per_cost(
    make: Callable[[Problem], Selector],
    world: World,
    budgets: Sequence[int],
    *,
    seed: int = 0,
    depth: int = 10,
    cpu_clock: Callable[[], float] = time.process_time,
) -> Replay:
    """Run a rule that is told what candidates cost, and note its answers by the money spent.

    Args:
        make: builds the rule for a problem.
        world: answers its calls; every candidate has a cost.
        budgets: rising numbers of pairs, each >= 1; they stand for so much of the cost of all
            pairs: half the pairs are half the money.
        seed: the rule's own seed, >= 0.
        depth: how many candidates of the ranking to keep, >= 1.
        cpu_clock: seconds of processor time.

    Raises:
        ValueError: the world knows no costs.
    """
    costs = _costs(world)
    n_pairs = world.shape[0] * world.shape[1]
    price = float(np.mean(costs))  # of a pair, on average over all

    def course(budgets: Sequence[int]) -> list[Answer]:
        levels = [budget * price for budget in budgets]
        problem = _problem(world.shape, levels[-1], costs, seed=seed, per_cost=True)
        selector = make(problem)
        steps = zip(budgets, _course(selector, world, costs, levels), strict=True)
        return [
            answer_of(selector, world, depth, Spent(budget, pulls, spent))
            for budget, (_, spent, pulls) in steps
        ]

    begun = cpu_clock()
    whole = _problem(world.shape, n_pairs * price, costs, seed=seed, per_cost=True)
    if make(whole).anytime:
        answers = course(budgets)
        pulls = answers[-1].evaluated
    else:
        answers = [answer for budget in budgets for answer in course([budget])]
        pulls = sum(answer.evaluated for answer in answers)
    return Replay(tuple(answers), pulls, cpu_clock() - begun)


def _costs(world: World) -> tuple[float, ...]:
    if world.costs is None:
        raise ValueError("to count money every candidate needs a cost, and the matrix has none")
    return world.costs
