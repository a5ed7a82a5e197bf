"""How often a rule that stops early names a wrong winner, and how early it stops.

    python -m benchmarks.stopping.reproduce --data ../shared/data --out docs/reproduction

Every rule that may stop a run is replayed until the winner is declared, on made worst cases and on
all stored matrices, cut to a common size. Writes the tables into the marked places of
``stopping.md``. Finished runs are kept under ``--work``: an interrupted command goes on where it
stopped, ``--minutes`` ends one early, and the tables say how many runs they rest on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

from benchmarks.papers.reproduce import fill_report
from benchmarks.papers.stored_studies import Bench, say
from benchmarks.stopping.matrices import MADE, Case, best_rows, cases, whole_cases
from benchmarks.stopping.report import Cell, Outcome, tables

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.registry import make_selector, selector_class, selector_names
from bestarm_agent.selectors.types import Problem
from bestarm_agent.simulation.replay import replay
from bestarm_agent.simulation.simulated_calls import Conditions, Latency, SimulatedCalls

DELTAS = (0.05, 0.1)
IN_FLIGHT = (1, 32)
SLOWDOWN = 3.0  # of wrong answers, where calls overlap
BLOCK = 10  # runs that are kept together
FEW = 3  # of other rules, and on whole matrices
# rules that people are advised to use when they ask for a confidence: on whole matrices too
LEADING = ("auto", "racing", "ucb-e")
CHEAP = ("racing", "ucb-e")  # more runs
OTHERS = tuple(n for n in selector_names() if selector_class(n).exogenous and n not in LEADING)
SLOW = ("ucb-e-lrf",)  # several times dearer


@dataclass(frozen=True, slots=True)
class Task:
    """A block of runs of one rule on one matrix under one setting."""

    case: Case
    cell: Cell
    block: int
    runs: int

    @property
    def key(self) -> dict[str, object]:
        """Under which the runs are kept."""
        size = list(self.case.matrix.scores.shape)
        return {
            "part": "stopping",
            **asdict(self.cell),
            "size": size,
            "block": [self.block, self.runs],
        }


def main() -> None:
    """Run what is not done yet, then write the tables."""
    arguments = _arguments()
    bench = Bench(arguments.data, arguments.work, arguments.out, 1, 1.0)
    deadline = time.monotonic() + 60 * arguments.minutes
    found: dict[str, dict[Cell, list[Outcome]]] = {"cut": {}, "whole": {}}
    for kind, task in _tasks(bench.data, arguments.blocks):
        runs = bench.recall(task.key)
        if runs is None and time.monotonic() < deadline:
            started = time.perf_counter()
            runs = [asdict(outcome) for outcome in _block(task)]
            bench.keep(task.key, runs)
            say(f"{task.cell} {task.block}: {time.perf_counter() - started:.0f} s")
        if runs is not None:
            of_cell = found[kind].setdefault(task.cell, [])
            of_cell += [Outcome(**run) for run in runs]
    fill_report(bench.out / "stopping.md", tables(found["cut"], found["whole"], LEADING))


def run(case: Case, cell: Cell, seed: int) -> Outcome:
    """Replay a rule until it declares a winner, or has asked all it may."""
    matrix = case.matrix
    latency = Latency(slowdown=SLOWDOWN) if cell.in_flight > 1 else None
    world = SimulatedCalls(matrix, seed, Conditions(cell.in_flight, latency=latency))
    made: list[Pairs] = []

    def make(problem: Problem) -> Pairs:
        asked = replace(problem, confidence=1 - cell.delta, stop_when_separated=True)
        made.append(make_selector(cell.rule, asked))
        return made[-1]

    answer = replay(make, world, [budget_of(case, cell.rule)], seed=seed, track_intervals=True)
    separated = made[-1].best().separated
    return Outcome(
        separated=separated,
        wrong=separated and answer.answers[0].best not in best_rows(matrix),
        share=answer.answers[0].evaluated / matrix.scores.size,
    )


def budget_of(case: Case, rule: str) -> int:
    """All cells; half of them for rules that plan for what they are given."""
    size = case.matrix.scores.size
    return size if selector_class(rule).anytime else size // 2


def _block(task: Task) -> list[Outcome]:
    seeds = range(task.runs * task.block, task.runs * (task.block + 1))
    return [run(task.case, task.cell, seed) for seed in seeds]


def _tasks(data: Path, blocks: int) -> Iterator[tuple[str, Task]]:
    """A little of everything first, the slow rules last, then more runs of the leading ones."""
    small, large = cases(data), whole_cases(data)
    single = [case for case in small if not case.name.startswith("prompts")]
    prompts = [case for case in small if case.name.startswith("prompts")]
    quick = [name for name in OTHERS if name not in SLOW]
    plans: Sequence[tuple[Sequence[Case], Sequence[str], range, int]] = (
        (small, CHEAP, range(1), BLOCK),
        (small, ("auto",), range(1), FEW),
        (single, quick, range(1), FEW),
        (large, LEADING, range(1), FEW),
        (prompts, quick, range(1), FEW),
        (small[: len(MADE)], CHEAP, range(1, blocks), BLOCK),
        (small, SLOW, range(1), FEW),
        (small[len(MADE) :], CHEAP, range(1, blocks), BLOCK),
    )
    for those, rules, numbers, runs in plans:
        kind = "whole" if those is large else "cut"
        for block, case, rule in product(numbers, those, rules):
            for delta, in_flight in product(DELTAS, IN_FLIGHT):
                yield kind, Task(case, Cell(case.name, rule, delta, in_flight), block, runs)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, default=Path("docs/reproduction"))
    parser.add_argument("--work", type=Path, default=Path("build/reproduction/stopping"))
    parser.add_argument("--blocks", type=int, default=10, help=f"of {BLOCK} runs, cheap rules")
    parser.add_argument("--minutes", type=float, default=1e6, help="start no run after these")
    return parser.parse_args()


if __name__ == "__main__":
    main()
