"""Reproduce PULSE against UCB-E and Naive-Pooling on a pool of 1,000 models with a history.

    python -m benchmarks.pulse.reproduce --data ../shared/data --out docs/reproduction

Writes the figures, and the tables into the marked places of ``pulse.md``. Every finished run is
kept under ``--work``: an interrupted command goes on where it stopped, and ``--seeds`` can rise.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from itertools import islice, product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.pulse.one_arm import one_arm_errors
from benchmarks.pulse.report import Bench, write_report
from numpy.typing import NDArray

from bestarm_agent.engine.setup.history import learn_once
from bestarm_agent.selectors.history import HistoryModel
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.simulation.replay import replay
from bestarm_agent.simulation.score_matrices import ScoreMatrix, load_matrix
from bestarm_agent.simulation.simulated_calls import Conditions, SimulatedCalls

FILE = "openllm2_bbh5_semisynthetic.npz"
BATCH = 64
# by gap: the models to choose from and the past ones. The file's two halves are alike; only the
# second one has a model nearly .02 below its best, so there they change places.
HALVES = {0.01: ("scores", "history"), 0.02: ("history", "scores"), 0.03: ("scores", "history")}
GAPS = tuple(HALVES)
# calls after the warm-up, by pool size; the paper goes on to 400,000, long after all is decided
# here. The smaller pools, of the strongest models, take a fraction of the time: more seeds
AFTER_WARM_UP = {1000: 48_000, 200: 32_000}
POINTS = 26


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule to compare: its name in the registry and its options."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()
    with_history: bool = True


RULES: Mapping[str, Rule] = {
    "UCB-E": Rule("ucb-e", with_history=False),
    "Naive-Pooling": Rule("benchmarks.baselines.naive_pooling:NaivePooling", (("tau", 1000),)),
    "PULSE as printed": Rule("pulse", (("tau", 1000),)),
    "PULSE, refit every 10 steps": Rule("pulse"),
}


@dataclass(frozen=True, slots=True)
class Task:
    """One rule in one world."""

    size: int
    rule: str
    gap: float
    seed: int


def main() -> None:
    """Run what is not done yet, then write figures and tables."""
    arguments = _arguments()
    bench = Bench(arguments.data, arguments.work, arguments.out)
    deadline = time.monotonic() + 60 * arguments.minutes
    sizes = arguments.models or list(AFTER_WARM_UP)
    seeds = range(arguments.seeds)
    tasks = [Task(k, r, g, s) for k in sizes for s in seeds for g in GAPS for r in RULES]
    todo = [task for task in tasks if not _path(bench, task).exists()]
    print(f"{len(tasks) - len(todo)} of {len(tasks)} runs are there", flush=True)
    lessons = {gap: _lesson(bench.data, bench.work, HALVES[gap][1]) for gap in GAPS}
    for number, (task, seconds) in enumerate(_run_all(bench, todo, arguments.jobs, deadline)):
        print(f"{number + 1}/{len(todo)} {task} {seconds:.1f} s of CPU", flush=True)
    pools = {(size, gap): _pool(bench.data, gap, size) for size in AFTER_WARM_UP for gap in GAPS}
    arms = one_arm_errors(bench, pools[1000, GAPS[0]], lessons[GAPS[0]], arguments.runs)
    write_report(bench.out, pools, lessons, _results(bench, arguments.seeds), arms)


def build_pool(matrix: ScoreMatrix, gap: float, size: int) -> ScoreMatrix:
    """The best model, the one nearest to ``gap`` below it, and the next weaker ones.

    The paper, section 4, "Datasets"; it has enough models to fill the pool up to 1,000.
    """
    order = np.argsort(-matrix.means, kind="stable")
    lead = matrix.means[order[0]] - matrix.means[order]
    second = int(np.argmin(np.abs(lead[1:] - gap))) + 1
    rows = np.concatenate([order[:1], order[second:]])[:size]
    return ScoreMatrix(matrix.scores[rows], tuple(matrix.names[i] for i in rows))


def budgets_of(matrix: ScoreMatrix, size: int) -> list[int]:
    """Calls at which answers are noted: the warm-up, then evenly in its logarithm."""
    warm_up = BATCH * len(matrix.scores)
    steps = np.geomspace(10, AFTER_WARM_UP[size] // BATCH, POINTS - 1).round().astype(int)
    return [warm_up, *(warm_up + BATCH * int(step) for step in steps)]


def _run_all(
    bench: Bench, tasks: Sequence[Task], jobs: int, deadline: float
) -> Iterator[tuple[Task, float]]:
    """Run tasks, in their order, until the deadline; what runs then is finished."""
    left = iter(tasks)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(_run, bench, task): task for task in islice(left, jobs)}
        while running:
            future = next(as_completed(running))
            yield running.pop(future), future.result()
            if time.monotonic() < deadline and (task := next(left, None)) is not None:
                running[pool.submit(_run, bench, task)] = task


def _run(bench: Bench, task: Task) -> float:
    """Run one rule in one world and keep what it answered."""
    matrix = _pool(bench.data, task.gap, task.size)
    world = SimulatedCalls(matrix, task.seed, Conditions(in_flight=BATCH, batch=BATCH))
    rule = RULES[task.rule]
    options = dict(rule.options)
    if rule.with_history:
        learned = _lesson(bench.data, bench.work, HALVES[task.gap][1])
        factors = learned.factors.at(np.asarray(world.columns))  # the world shuffles examples
        options["history"] = HistoryModel(factors, learned.validation)
    found = replay(
        lambda problem: make_selector(rule.name, problem, **{"batch": BATCH, **options}),
        world,
        budgets_of(matrix, task.size),
        seed=task.seed,
    )
    record = {
        "budgets": [answer.budget for answer in found.answers],
        "regret": [float(matrix.means.max() - matrix.means[a.best]) for a in found.answers],
        "cpu_seconds": found.cpu_seconds,
    }
    path = _path(bench, task)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".tmp")
    fresh.write_text(json.dumps(record), encoding="utf-8")
    fresh.replace(path)
    return found.cpu_seconds


def _path(bench: Bench, task: Task) -> Path:
    slug = task.rule.lower().replace(" ", "-").replace(",", "")
    top = "" if task.size == 1000 else f"-top{task.size}"
    return bench.work / f"pulse-{slug}{top}" / f"gap{task.gap:g}-seed{task.seed}.json"


def _results(bench: Bench, seeds: int) -> dict[tuple[int, float, str], list[dict[str, Any]]]:
    """By pool size, gap and rule, the finished runs, in the order of their seeds."""
    found: dict[tuple[int, float, str], list[dict[str, Any]]] = {}
    for size, gap, rule in product(AFTER_WARM_UP, GAPS, RULES):
        paths = [_path(bench, Task(size, rule, gap, seed)) for seed in range(seeds)]
        found[size, gap, rule] = [json.loads(p.read_text("utf-8")) for p in paths if p.exists()]
    return found


@cache
def _pool(data: Path, gap: float, size: int) -> ScoreMatrix:
    return build_pool(load_matrix(str(data / f"{FILE}:{HALVES[gap][0]}")), gap, size)


@cache
def _lesson(data: Path, work: Path, half: str) -> HistoryModel:
    """What the past models teach; learned once, before the workers start."""
    scores: NDArray[np.float64] = load_matrix(str(data / f"{FILE}:{half}")).scores.astype(float)
    return learn_once(scores, work)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, default=Path("docs/reproduction"))
    parser.add_argument("--work", type=Path, default=Path("build/reproduction"))
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--models", type=int, nargs="*", choices=list(AFTER_WARM_UP))
    parser.add_argument("--runs", type=int, default=2000, help="of the check for bias")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=1e6, help="start no run after these")
    return parser.parse_args()


if __name__ == "__main__":
    main()
