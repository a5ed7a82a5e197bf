"""Measure ``auto`` on grids of models and prompts: regret after so many calls, axes told or not.

    python -m benchmarks.auto.grids --data ../shared/data --write

A world is a task of ``model_prompt_grids.npz`` (Mizrahi et al. 2024, arXiv 2401.00595), of which
accuracies alone are known: a score is 1 where a probit model says so, with an effect of the
example, one of the model on it, and noise. Its marginal means are the accuracies. No budget is
told. Two seeds take eight minutes on one core.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from benchmarks.report import Bench, markdown, run
from numpy.typing import NDArray
from scipy.special import ndtri

from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem, State, Tell

SEEDS = 2
CALLS = (1000, 2000, 4000, 8000)
N_EXAMPLES, AT_ONCE = 1500, 64
OF_EXAMPLE, OF_MODEL = 0.35, 0.15  # share of the latent variance; the rest is noise
FILE = "model_prompt_grids.npz"


def world(accuracy: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.bool_]:
    """(K, N) scores of a grid, given the (prompts, models) accuracies."""
    middle = ndtri(np.clip(accuracy, 0.005, 0.995))[:, :, None]
    models = accuracy.shape[1]
    example = rng.normal(0.0, OF_EXAMPLE**0.5, N_EXAMPLES)
    own = rng.normal(0.0, OF_MODEL**0.5, (models, N_EXAMPLES))
    shape, rest = (*accuracy.shape, N_EXAMPLES), (1.0 - OF_EXAMPLE - OF_MODEL) ** 0.5
    noise = rng.standard_normal(shape, dtype=np.float32) * np.float32(rest)
    return (middle + example + own + noise > 0.0).reshape(-1, N_EXAMPLES)


def regrets(data: Path, task: str, seed: int, *, with_axes: bool) -> list[float]:
    """Return the regret of the candidate that is named after each number of calls."""
    accuracy = np.load(data / FILE)[f"{task}:accuracy"].astype(np.float64)
    scores = world(accuracy, np.random.default_rng([seed, *task.encode()]))
    means = scores.mean(axis=1)
    axes = np.argwhere(np.full(accuracy.shape, True)) if with_axes else None
    n_rows, n_examples = scores.shape
    problem = Problem(n_rows, n_examples, seed=seed, track_intervals=False, axes=axes)
    selector, found = make_selector("auto", problem), list[float]()
    for calls in CALLS:
        while (left := calls - selector.table.n_asked) > 0:
            asks = selector.ask(min(AT_ONCE, left))
            selector.tell([Tell(ask.seq, State.DONE, float(scores[ask.pair])) for ask in asks])
        found.append(float(means.max() - means[selector.answer.best().best]))
    return found


def run_grids(bench: Bench) -> dict[str, str]:
    """Run ``auto`` on every grid with each seed."""
    names = np.load(bench.data / FILE).files
    tasks = [name.removesuffix(":accuracy") for name in names if name.endswith(":accuracy")]
    wanted = {
        (told, task, seed): (
            {"part": "grids", "task": task, "seed": seed, "axes": told},
            partial(regrets, bench.data, task, seed, with_axes=told),
        )
        for told in (True, False)
        for task in tasks
        for seed in range(bench.seeds(SEEDS))
    }
    found, rows = bench.all_found(wanted), []
    for told, name in ((True, "axes told"), (False, "not told")):
        each = np.array([regret for (axes, *_), regret in found.items() if axes is told])
        errors = each.std(axis=0, ddof=1) / np.sqrt(len(each))
        pairs = zip(each.mean(axis=0), errors, strict=True)
        rows.append([name, *(f"{mean:.4f} ± {error:.4f}" for mean, error in pairs)])
    return {"grids": markdown(["", *(f"{calls:,} calls" for calls in CALLS)], rows)}


if __name__ == "__main__":
    run({"grids": run_grids}, Path(__file__).with_name("README.md"), __doc__)
