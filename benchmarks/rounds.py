"""Five rounds of a batch API, at half price, beside live ``auto``: dollars to 95 % precision.

    python -m benchmarks.rounds --data ../shared/data --jobs 1 --write

In rounds, a budget is asked in five equal parts, and nothing is told within a part. Both forms run
afresh for every budget with the same shuffles; right is who is within .01 of the best. The standard
errors resample the seeds, of both forms together. Fills the table of benchmarks/auto/README.md.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from benchmarks.auto.matrices import MATRICES, scores_of
from benchmarks.report import Bench, markdown, run
from numpy.typing import NDArray

from bestarm_agent.selectors import make_selector
from bestarm_agent.simulation.curves import TARGET, isotonic_crossing
from bestarm_agent.simulation.replay import SimulatedCalls, replay

TITLES = (
    "LiveCodeBench",
    "SAT12",
    "AlpacaEval, real, no annotator",
    "GSM8K",
    "LLMRouter",
    "negation",
    "formal",
    "cause and effect",
)
SHARES = (0.002, 0.005, 0.01, 0.02, 0.03, 0.045, 0.07, 0.1, 0.15, 0.22, 0.32, 0.45, 0.65)
ROUNDS, PRICE = 5, 0.5  # of a batch API's call, that of a live one being 1
GAP = 0.01
ENOUGH = 0.99  # precision after which larger budgets are taken to be as good
RESAMPLES = 1_000
_Right: TypeAlias = NDArray[np.float64]  # (B, S) whether each seed's answer is right, by budget


def shares_of(shape: tuple[int, ...]) -> list[float]:
    """Return the budgets that let every candidate of a matrix be asked."""
    return [share for share in SHARES if share * shape[1] >= 1]


def measure(data: Path, title: str, rounds: int, seeds: int) -> list[list[float]]:
    """Return for each share whether each seed's answer is right; ``rounds`` = 0 is live."""
    scores = scores_of(data, MATRICES[title])
    means = scores.mean(axis=1, dtype=np.float64)
    shares = shares_of(scores.shape)
    right: list[list[float]] = []
    for share in shares:
        budget = round(share * scores.size)
        once = partial(replay, budgets=[budget], batch=-(-budget // rounds) if rounds else 1)
        found = [
            once(partial(make_selector, "auto"), SimulatedCalls(scores, seed), seed=seed)
            for seed in range(seeds)
        ]
        right.append([float(means[one.answers[0].best] >= means.max() - GAP) for one in found])
        if np.mean(right[-1]) >= ENOUGH:
            break
    return right + [right[-1]] * (len(shares) - len(right))


def crossing(shares: list[float], right: _Right) -> float:
    """Return the share, in %, from which precision is 95 %; infinity if it is not reached."""
    found = isotonic_crossing(shares, right.mean(axis=1), TARGET)
    return np.inf if found is None else 100 * found


def cell(value: float, draws: list[float], digits: int) -> str:
    """Return a number with the standard error of its resamples."""
    return f"{value:.{digits}f} ± {np.std(draws):.{digits}f}" if np.isfinite(value) else "n.r."


def rounds_table(bench: Bench) -> dict[str, str]:
    """Measure both forms on every matrix, and compare their dollars."""
    seeds = bench.seeds(24)
    tasks = {
        (title, rounds): (
            {"part": "rounds", "matrix": title, "rounds": rounds, "seeds": seeds},
            partial(measure, bench.data, title, rounds, seeds),
        )
        for title in TITLES
        for rounds in (0, ROUNDS)
    }
    found = {name: np.array(value) for name, value in bench.all_found(tasks).items()}
    picked = np.random.default_rng(0).integers(seeds, size=(RESAMPLES, seeds))
    rows, ratios = [], []
    for title in TITLES:
        shares = shares_of(scores_of(bench.data, MATRICES[title]).shape)
        live, batch = (
            [crossing(shares, found[title, rounds][:, draw]) for draw in (range(seeds), *picked)]
            for rounds in (0, ROUNDS)
        )
        dollars = [PRICE * many / one for many, one in zip(batch, live, strict=True)]
        ratios.append(dollars[0])
        forms = ((live, 1), (batch, 1), (dollars, 2))
        rows.append([title, *(cell(form[0], form[1:], digits) for form, digits in forms)])
    rows.append(["geometric mean", "", "", f"{np.exp(np.mean(np.log(ratios))):.2f}"])
    return {"rounds": markdown(["matrix", "% of calls, live", "in rounds", "dollars"], rows)}


if __name__ == "__main__":
    run({"rounds": rounds_table}, Path(__file__).parent / "auto" / "README.md", __doc__)
