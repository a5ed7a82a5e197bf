"""``auto`` and its rivals on the full grids: with axes, with shuffled ones, and without.

    python -m benchmarks.auto.measure_full_grids [--small] [--seeds 100] [--jobs 2]

Grids of ``make_full_grids``: genuine scores of every example. ``--small`` draws 5 models and 4
prompts at every temperature anew for each seed. Rows and columns are shuffled by the package's
simulator. Cells: mean regret ± standard error, and the share (in %) of runs that name the best.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from benchmarks.papers.stored_studies import markdown
from numpy.typing import NDArray

from bestarm_agent.simulation.floor import information_floor
from bestarm_agent.simulation.replay_many import Plan, run_one
from bestarm_agent.simulation.rule_specs import parse_contenders
from bestarm_agent.simulation.score_matrices import ScoreMatrix, load_matrix

GRIDS = Path(__file__).parent / "full_grids"
AXES = ("model", "prompt", "temperature")
N_MODELS, N_PROMPTS = 5, 4  # of the small grids
LARGE, SMALL = (80, 150, 300, 600, 1200, 2400, 4800), (40, 80, 150, 300, 600, 1200, 2400)
RIGHT = 0.95


@dataclass(frozen=True, slots=True)
class Way:
    """A rule, and what it is told of the axes: "axes", "shuffled" or "none"."""

    title: str
    rule: str
    axes: str = "none"


WAYS = (
    Way("auto, axes", "auto[narrow=false]", "axes"),
    Way("auto, shuffled axes", "auto[narrow=false]", "shuffled"),
    Way("auto, no axes", "auto[narrow=false]"),
    Way("auto, axes, budget told", "auto", "axes"),
    Way("auto, no axes, budget told", "auto"),
    Way("UCB-E", "ucb-e"),
    Way("UCB-E, common", "ucb-e[common_examples=true]"),
    Way("SySRs", "sysrs"),
    Way("halving, common", "sequential-halving[common_examples=true]"),
    Way("racing", "racing"),
)


@cache
def grid_of(name: str) -> ScoreMatrix:
    """Read a full grid."""
    return load_matrix(str(GRIDS / f"{name}.npz"), axes=AXES)


def part_of(matrix: ScoreMatrix, seed: int) -> ScoreMatrix:
    """Return the candidates of some models and prompts."""
    assert matrix.axes is not None
    rng = np.random.default_rng([seed, 3])
    kept = np.full(len(matrix.scores), True)
    for levels, size in zip(matrix.axes.T, (N_MODELS, N_PROMPTS), strict=False):
        kept &= np.isin(levels, rng.choice(np.unique(levels), size, replace=False))
    return replace(
        matrix,
        scores=matrix.scores[kept],
        names=tuple(np.array(matrix.names)[kept]),
        axes=matrix.axes[kept],
    )


def regrets(name: str, way: Way, budgets: Sequence[int], small: bool, seed: int) -> list[float]:
    """Return the regret at each budget of one run."""
    matrix = part_of(grid_of(name), seed) if small else grid_of(name)
    assert matrix.axes is not None
    axes = {"axes": matrix.axes, "none": None}.get(
        way.axes, np.random.default_rng([seed, 4]).permutation(matrix.axes)
    )
    [contender] = parse_contenders(way.rule)
    plan = Plan(tuple(budget / matrix.scores.size for budget in budgets), 1)
    answers = run_one(replace(matrix, axes=axes), contender, seed, plan).answers
    return [float(matrix.means.max() - matrix.means[one.best]) for one in answers]


def cells(found: NDArray[np.float64]) -> list[str]:
    """Return a cell per budget, of the (seeds, budgets) regrets."""
    errors = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    best = 100 * (found <= 0).mean(axis=0)
    rows = zip(found.mean(axis=0), errors, best, strict=True)
    return [
        f"{mean:.3f} ± {error:.3f} ({share:.0f})".replace("0.", ".") for mean, error, share in rows
    ]


def first_right(found: NDArray[np.float64], budgets: Sequence[int], gap: float) -> str:
    """Return the calls at which 95 % of the runs are right within ``gap``, interpolated."""
    shares = np.maximum.accumulate((found <= gap).mean(axis=0))
    if shares[-1] < RIGHT:
        return "n.r."
    return f"{np.exp(np.interp(RIGHT, shares, np.log(budgets))):,.0f}"


def describe(name: str) -> str:
    """Return the means of the best, how many are close, and the floor."""
    matrix = grid_of(name)
    means = np.sort(matrix.means)[::-1]
    return (
        f"{name}: {matrix.scores.shape}, best {means[:4].round(3).tolist()}, quartiles "
        f"{np.quantile(means, (0.25, 0.5, 0.75)).round(2).tolist()}, within .01 of the best: "
        f"{int((means >= means[0] - 0.01).sum())}; information floor "
        f"{information_floor(matrix) * matrix.scores.size:,.0f} calls"
    )


def main() -> None:
    """Print a table per grid."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--small", action="store_true", help="60 candidates, drawn by each seed")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--grids", default="subtraction,sorting")
    parser.add_argument("--ways", help="titles separated by semicolons; all if not given")
    given = parser.parse_args()
    budgets = SMALL if given.small else LARGE
    ways = [way for way in WAYS if not given.ways or way.title in given.ways.split(";")]
    with ProcessPoolExecutor(given.jobs) as pool:
        for name in given.grids.split(","):
            print(describe(name), flush=True)
            rows = []
            for way in ways:
                run = partial(regrets, name, way, budgets, given.small)
                found = np.array(list(pool.map(run, range(given.seeds))))
                right = [first_right(found, budgets, gap) for gap in (0.0, 0.01)]
                rows.append([way.title, *cells(found), " / ".join(right)])
                print(rows[-1], flush=True)
            print(markdown(["", *map(str, budgets), "calls to 95 %: best / within .01"], rows))


if __name__ == "__main__":
    main()
