"""``auto`` with history beside ``auto`` without, pool by pool, in the same shuffled worlds.

    pip install numba
    OMP_NUM_THREADS=1 python -m benchmarks.auto.history --data ../shared/data

A pool is a random half of a matrix's candidates, the other half, in full, its history; or the 40
strongest semi-synthetic models, with 250 others that are random or the strongest. Both rules are
told every budget. The test is a paired t-test over the seeds of the mean precision over the
budgets. Prints a table; every run is kept, and not repeated. Takes half an hour of processor time.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.auto.beside_papers import halves
from benchmarks.auto.found import GAPS
from benchmarks.papers.stored_studies import Bench, markdown, measured
from benchmarks.pulse.reproduce import FILE
from numpy.typing import NDArray
from scipy.stats import ttest_1samp

from bestarm_agent.engine.setup.history import learn_once
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.simulation.replay import replay
from bestarm_agent.simulation.score_matrices import ScoreMatrix, load_matrix
from bestarm_agent.simulation.simulated_calls import Conditions, SimulatedCalls
from bestarm_agent.stats.models.history_validation import HistoryModel

SHARES = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16)
CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class Pool:
    """A matrix and the seed of its split, or of a draw of semi-synthetic models.

    Attributes:
        title: of the matrix, or ``OpenLLM``.
        split: seed of the halves, or of the draw.
        strongest: whether the 250 past models are the strongest ones, not random ones.
    """

    title: str
    split: int
    strongest: bool = False

    def __str__(self) -> str:
        """Return the name in the report."""
        return f"{self.title}, split {self.split}" + (", strongest past" * self.strongest)

    def parts(self, data: Path) -> tuple[ScoreMatrix, ScoreMatrix]:
        """Return who may be chosen, and who is history."""
        return (
            _drawn(data, self.split, strongest=self.strongest)
            if self.title == "OpenLLM"
            else halves(data, self.title, self.split)
        )


# development: what the use of history was chosen on; confirmation: run once afterwards
POOLS: Mapping[str, tuple[Pool, ...]] = {
    "development": (
        Pool("SAT12", 1),
        Pool("AlpacaEval, real, no annotator", 1),
        Pool("GSM8K", 9),
        Pool("GSM8K", 1),
        Pool("BFCL", 9),
        Pool("LiveCodeBench", 9),
        Pool("AlpacaEval, no annotator", 2),
        Pool("OpenLLM", 1),
        Pool("OpenLLM", 1, strongest=True),
    ),
    "confirmation": (
        Pool("SAT12", 2),
        Pool("AlpacaEval, real, no annotator", 2),
        Pool("GSM8K", 2),
        Pool("BFCL", 2),
        Pool("LiveCodeBench", 2),
        Pool("sentiment", 1),
        Pool("antonyms", 1),
        Pool("OpenLLM", 2),
        Pool("OpenLLM", 2, strongest=True),
    ),
}


@cache
def _drawn(data: Path, seed: int, *, strongest: bool) -> tuple[ScoreMatrix, ScoreMatrix]:
    """The forty strongest models on 2,000 questions; 250 models of the other file."""
    now, past = (load_matrix(str(data / f"{FILE}:{part}")) for part in ("scores", "history"))
    rng = np.random.default_rng(seed)
    columns = np.sort(rng.choice(now.scores.shape[1], 2000, replace=False))
    rows, n_past = np.sort(np.argsort(-now.means)[:40]), len(past.scores)
    others = np.argsort(-past.means)[:250] if strongest else rng.choice(n_past, 250, replace=False)
    picked = (now.scores[rows][:, columns], past.scores[np.sort(others)][:, columns])
    current, before = (ScoreMatrix(part, tuple(map(str, range(len(part))))) for part in picked)
    return current, before


def measure(bench: Bench, pool: Pool, seeds: int, most: int, *, given: bool) -> dict[str, Any]:
    """Return the regrets (seeds, budgets), and what history predicts."""
    matrix, past = pool.parts(bench.data)
    lesson = learn_once(past.scores.astype(float), bench.work)
    budgets = [round(share * matrix.scores.size) for share in SHARES]
    budgets = [b for b in budgets if len(matrix.scores) <= b <= most]
    regrets = []
    for seed in range(seeds):
        world = SimulatedCalls(matrix, seed, Conditions())
        options: dict[str, Any] = {}
        if given:
            factors = lesson.factors.at(np.asarray(world.columns))
            options["history"] = HistoryModel(factors, lesson.validation)
        named = replay(partial(make_selector, "auto", **options), world, budgets, seed=seed)
        best = matrix.means.max()
        regrets.append([float(best - matrix.means[answer.best]) for answer in named.answers])
    return {"regrets": regrets, "gain": lesson.validation.gain, "used": lesson.validation.is_strong}


def table(bench: Bench, pools: tuple[Pool, ...], seeds: int, most: int, jobs: int) -> str:
    """Return the pools' table; what was measured before is kept."""
    tasks: dict[tuple[Pool, bool], tuple[Mapping[str, Any], Callable[[], Any]]] = {}
    for pool in pools:
        for given in (False, True):
            key = {
                "part": "history",
                "matrix": str(pool),
                "rule": f"auto, history {given}",
                "seeds": seeds,
                "most": most,
            }
            tasks[pool, given] = (key, partial(measure, bench, pool, seeds, most, given=given))
    found = measured(bench, tasks, jobs)
    rows, gains = [], []
    for pool in pools:
        without, given = found[pool, False], found[pool, True]
        base, hits = (_hits(np.array(each["regrets"])) for each in (without, given))
        gains.append(hits - base)
        size = " x ".join(map(str, pool.parts(bench.data)[0].scores.shape))
        share = f"{given['gain']:.0%}" + ("" if given["used"] else ", not used")
        plain = " / ".join(f"{each:.0f}" for each in 100 * base.mean(axis=0))
        rows.append([str(pool), size, share, plain, *_cells(hits - base)])
    headers = ["pool", "size", "predicted", "without: mean precision, exact / .01"]
    headers += ["gain, exact", "gain, within .01", "p, worse"]
    rows.append(["all", "", "", "", *_cells(np.concatenate(gains))])
    return markdown(headers, rows)


def _hits(regrets: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the (seeds, gaps) shares of the budgets at which the answer was right."""
    return np.stack([(regrets <= gap + CLOSE).mean(axis=1) for gap in GAPS], axis=1)


def _cells(gain: NDArray[np.float64]) -> list[str]:
    """Return mean ± standard error in points for each gap, and the smaller p of being worse."""
    spread = 100 * gain.std(axis=0, ddof=1) / np.sqrt(len(gain))
    means = 100 * gain.mean(axis=0)
    cells = [f"{mean:+.1f} ± {se:.1f}" for mean, se in zip(means, spread, strict=True)]
    tests = np.asarray(ttest_1samp(gain, 0.0, axis=0, alternative="less").pvalue, dtype=np.float64)
    return [*cells, f"{np.nanmin(tests):.3f}" if spread.any() else ""]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--work", type=Path, default=Path("build/reproduction"))
    parser.add_argument("--seeds", type=int, default=32)
    parser.add_argument("--most", type=int, default=3500, help="largest budget, in pulls")
    parser.add_argument("--jobs", type=int, default=1)
    titles = {pool.title for pools in POOLS.values() for pool in pools}
    parser.add_argument("--matrix", choices=sorted(titles), help="its pools alone")
    parser.add_argument("parts", nargs="*", choices=[[], *POOLS])
    chosen = parser.parse_args()
    bench = Bench(chosen.data, chosen.work, chosen.work, chosen.jobs, 1.0)
    for part in chosen.parts or POOLS:
        pools = tuple(pool for pool in POOLS[part] if chosen.matrix in (None, pool.title))
        if pools:
            print(f"{part}:\n\n{table(bench, pools, chosen.seeds, chosen.most, chosen.jobs)}\n")


if __name__ == "__main__":
    main()
