"""What working per dollar saves: dollars until the best candidate is found, on real matrices.

    python -m benchmarks.papers.reproduce_cost --data ../shared/data --out docs/reproduction/cost.md

Writes the table into the marked place of the report. Finished rows are kept under ``--work``, so an
interrupted command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from benchmarks.papers.reproduce import fill_report
from benchmarks.papers.spending import replay_spending
from benchmarks.papers.stored_studies import Bench, markdown, percent, say
from numpy.typing import NDArray

from bestarm_agent.simulation.rule_specs import parse_contenders
from bestarm_agent.simulation.score_matrices import ScoreMatrix, load_matrix
from bestarm_agent.simulation.simulated_calls import Conditions, SimulatedCalls
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.stats.ranking import isotonic_crossing

Array: TypeAlias = NDArray[np.float64]

SPREAD = 100.0  # the dearest candidate's price over the cheapest one's
TARGET = 0.95
RESAMPLES = 400
RULES = ("ucb-e", "top-two")
IN_ROUNDS = ("successive-rejects", "sysrs")  # they run afresh for every amount
UNRELATED, DEARER_IS_BETTER, REAL = "unrelated to quality", "dearer is better", "real"
NOISE = 0.35  # of a price's rank beside the quality's, so that rank correlation is about 0.65


@dataclass(frozen=True, slots=True)
class Scene:
    """A matrix with prices.

    Attributes:
        title: what the report calls the matrix.
        location: file, or file and task.
        prices: how they are drawn, anew for every seed, or REAL.
        levels: smallest and largest amount to spend, as shares of what the whole grid costs.
        seeds: number of seeds.
        rules: which are compared.
    """

    title: str
    location: str
    prices: str
    levels: tuple[float, float]
    seeds: int
    rules: tuple[str, ...] = RULES


_MATRICES = (
    ("LiveCodeBench", "livecodebench_gen_2024-04.npz", (0.01, 0.4), 30, (*RULES, *IN_ROUNDS)),
    ("rhymes", "rautoeval_prompting.npz:rhymes", (0.001, 0.02), 24, RULES),
    ("AlpacaEval", "alpaca_eval2_2024-03-05_semisynthetic.npz", (0.002, 0.05), 24, RULES),
    ("BFCL", "bfcl_2024-08-11.npz", (0.004, 0.1), 16, RULES),
)
_ROUTER = "router_llmrouter_9models.npz"
SCENES = (
    Scene("LLMRouter, 9 models", _ROUTER, REAL, (0.002, 0.2), 40, (*RULES, *IN_ROUNDS)),
    *(
        Scene(title, location, prices, levels, seeds, rules)
        for title, location, levels, seeds, rules in _MATRICES
        for prices in (UNRELATED, DEARER_IS_BETTER)
    ),
)


def priced(matrix: ScoreMatrix, prices: str, seed: int) -> ScoreMatrix:
    """The matrix with prices spread evenly over two decades, drawn for one seed."""
    if prices == REAL:
        return matrix
    rng = KeyedRandom(seed, "prices").at(0)
    k = len(matrix.names)
    key = rng.random(k)
    if prices == DEARER_IS_BETTER:
        key = np.argsort(np.argsort(matrix.means)) / (k - 1) + NOISE * rng.standard_normal(k)
    ranks = np.argsort(np.argsort(key)) / (k - 1)
    return replace(matrix, costs=SPREAD ** (ranks - 1.0))


def answers(matrix: ScoreMatrix, rule: str, scene: Scene, *, per_cost: bool) -> list[list[bool]]:
    """(seeds, levels) whether the rule named a best candidate for that much money."""
    [contender] = parse_contenders(rule)
    best = matrix.means >= matrix.means.max() - 1e-12
    found = []
    for seed in range(scene.seeds):
        world = SimulatedCalls(priced(matrix, scene.prices, seed), seed, Conditions())
        costs = world.costs or ()
        whole = float(np.sum(costs)) * world.shape[1]
        purchases = replay_spending(
            contender.make,
            world,
            [share * whole for share in shares(scene, contender.name)],
            seed=seed,
            per_cost=per_cost,
        )
        found.append([bool(best[one.best]) for one in purchases])
    return found


def shares(scene: Scene, rule: str) -> list[float]:
    """Amounts to spend; fewer for rules that run afresh for each."""
    points = 8 if rule in IN_ROUNDS else 20
    return [float(f"{share:.6g}") for share in np.geomspace(*scene.levels, points)]


def row(bench: Bench, scene: Scene, rule: str) -> list[str]:
    """One line of the table: both ways, and what the one saves."""
    matrix = load_matrix(str(bench.data / scene.location))
    right = {}
    for per_cost in (False, True):
        key = {
            "part": "cost",
            "matrix": scene.location,
            "prices": scene.prices,
            "rule": rule,
            "per_cost": per_cost,
            "seeds": scene.seeds,
            "levels": shares(scene, rule),
        }
        found = bench.recall(key)
        if found is None:
            started = time.perf_counter()
            found = answers(matrix, rule, scene, per_cost=per_cost)
            bench.keep(key, found)
            say(f"{scene.title}, {scene.prices}, {rule}: {time.perf_counter() - started:.0f} s")
        right[per_cost] = np.array(found, dtype=float)
    levels = shares(scene, rule)
    calls, dollars = (crossing(levels, right[way]) for way in (False, True))
    return [
        scene.title,
        scene.prices,
        f"`{rule}`",
        percent(calls, 2),
        percent(dollars, 2),
        "" if calls is None or dollars is None else f"{calls / dollars:.2f}",
        crossing_range(levels, right[False], right[True]),
        *typical_ratio(levels, right[False], right[True]),
    ]


def crossing(levels: Sequence[float], right: Array) -> float | None:
    """Share of the grid's price from which the best is named in 95 % of the seeds."""
    return isotonic_crossing(levels, right.mean(axis=0), TARGET)


def crossing_range(levels: Sequence[float], calls: Array, dollars: Array) -> str:
    """5 % and 95 % points of the ratio over resampled seeds; open where a level is not reached."""
    ratios = []
    for picked in resamples(len(calls)):
        one, other = crossing(levels, calls[picked]), crossing(levels, dollars[picked])
        if one is not None or other is not None:
            ratios.append((np.inf if one is None else one) / (np.inf if other is None else other))
    if len(ratios) < RESAMPLES // 2:
        return "n.r."
    low, high = np.sort(ratios)[[len(ratios) // 20, -1 - len(ratios) // 20]]
    words = (f"{end:.2f}" if 0 < end < np.inf else "n.r." for end in (low, high))
    return " to ".join(words)


def typical_ratio(levels: Sequence[float], calls: Array, dollars: Array) -> tuple[str, str]:
    """Geometric mean over seeds of the ratio of the moneys from which the answer is right for good.

    Where it is not within the amounts tried, the largest counts. And its 5 % and 95 % points.
    """
    logs = np.log(right_from(levels, calls)) - np.log(right_from(levels, dollars))
    means = np.sort([logs[picked].mean() for picked in resamples(len(logs))])
    low, high = np.exp(means[[RESAMPLES // 20, -1 - RESAMPLES // 20]])
    return f"{np.exp(logs.mean()):.2f}", f"{low:.2f} to {high:.2f}"


def right_from(levels: Sequence[float], right: Array) -> Array:
    """(seeds,) the level from which each seed's answers are all right; the last one if none is."""
    n_right_at_the_end = np.cumprod(right[:, ::-1], axis=1).sum(axis=1).astype(int)
    first = np.minimum(len(levels) - n_right_at_the_end, len(levels) - 1)
    found: Array = np.asarray(levels)[first]
    return found


def resamples(n: int) -> Iterator[NDArray[np.int64]]:
    """Seeds drawn anew, with replacement."""
    draws = KeyedRandom(0, "bootstrap of cost")
    for index in range(RESAMPLES):
        yield draws.at(index).integers(n, size=n)


def main() -> None:
    """Run what was not run before and put the table into the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, default=Path("docs/reproduction/cost.md"))
    parser.add_argument("--work", type=Path, default=Path("build/reproduction"))
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the seeds")
    arguments = parser.parse_args()
    bench = Bench(arguments.data, arguments.work, arguments.out.parent, 1, arguments.scale)
    scenes = [replace(scene, seeds=bench.seeds(scene.seeds)) for scene in SCENES]
    rows = [row(bench, scene, rule) for scene in scenes for rule in scene.rules]
    range_ = "5 % to 95 %"
    ways = ("per call", "per dollar", "ratio", range_, "typical ratio", range_)
    headers = ("matrix", "prices", "rule", *ways)
    fill_report(arguments.out, {"cost": markdown(headers, rows)})


if __name__ == "__main__":
    main()
