"""``auto`` on grids of models and prompts: with their axes, with shuffled ones, and without.

    OMP_NUM_THREADS=1 python -m benchmarks.auto.grids --data ../shared/data [--half kept-back]

Worlds are made from the measured accuracies of 17 grids (Mizrahi et al. 2024, arXiv 2401.00595),
which say nothing of single examples: a probit model with a part for every example (.3 of the
variance), one for every model and example (.2) and noise, whose marginal means are the accuracies.
300 examples. The grids with even numbers were used for choices, the others were kept back.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from bestarm_agent.selectors.rules.auto import Auto
from bestarm_agent.selectors.types import IntArray, Problem, State, Tell

N_EXAMPLES = 300
OF_EXAMPLE, OF_MODEL = 0.3, 0.2  # shares of the latent variance
LARGE, SMALL = (1000, 2000, 4000, 8000), (40, 80, 150, 300, 600)
N_MODELS, N_PROMPTS = 6, 10  # of the small grids
KINDS = ("axes", "shuffled", "none")


class Grid:
    """One grid's scores (K, N) and the levels (K, 2) of its candidates, in random order."""

    def __init__(self, accuracy: NDArray[np.float64], seed: int, *, small: bool) -> None:
        n_prompts, n_models = accuracy.shape
        rng = np.random.default_rng(seed)
        axes = np.column_stack(
            [np.tile(np.arange(n_models), n_prompts), np.repeat(np.arange(n_prompts), n_models)]
        )
        latent = np.sqrt(OF_EXAMPLE) * rng.standard_normal(N_EXAMPLES)
        of_model = np.sqrt(OF_MODEL) * rng.standard_normal((n_models, N_EXAMPLES))
        latent = latent + of_model[axes[:, 0]]
        noise = rng.standard_normal((len(axes), N_EXAMPLES))
        latent += np.sqrt(1.0 - OF_EXAMPLE - OF_MODEL) * noise
        level = ndtri(np.clip(accuracy.ravel(), 0.005, 0.995))
        kept = _some(axes, seed) if small else np.full(len(axes), True)
        order = np.random.default_rng(seed + 77).permutation(int(kept.sum()))
        self.scores = (level[:, None] + latent > 0)[kept][order].astype(float)
        self.axes: IntArray = axes[kept][order]

    def run(self, kind: str, seed: int, budgets: Sequence[int]) -> tuple[list[float], float]:
        """Return the regrets at each budget, and the milliseconds of CPU time per pull."""
        axes = {"axes": self.axes, "none": None}.get(
            kind, np.random.default_rng(seed).permutation(self.axes)
        )
        k, n = self.scores.shape
        selector = Auto(Problem(k, n, seed=seed, axes=axes, track_intervals=False))
        means, found, began = self.scores.mean(axis=1), [], time.process_time()
        for pull in range(1, budgets[-1] + 1):
            [ask] = selector.ask()
            selector.tell([Tell(ask.seq, State.DONE, float(self.scores[ask.pair]))])
            if pull in budgets:
                found.append(float(means.max() - means[selector.best().best]))
        return found, 1e3 * (time.process_time() - began) / budgets[-1]


def _some(axes: IntArray, seed: int) -> NDArray[np.bool_]:
    rng = np.random.default_rng(seed + 5)
    parts = [
        rng.choice(int(levels.max()) + 1, size, replace=False)
        for levels, size in zip(axes.T, (N_MODELS, N_PROMPTS), strict=True)
    ]
    kept = [np.isin(levels, part) for levels, part in zip(axes.T, parts, strict=True)]
    return np.asarray(kept[0] & kept[1])


def main() -> None:
    """Print a row per kind of axes: mean regret at each budget."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--half", choices=["development", "kept-back"], default="kept-back")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--most", type=int, default=8000, help="the largest budget")
    parser.add_argument("--small", action="store_true", help="60 candidates of each grid")
    parser.add_argument("--kinds", default=",".join(KINDS))
    given = parser.parse_args()
    budgets = [at for at in (SMALL if given.small else LARGE) if at <= given.most]
    with np.load(given.data / "model_prompt_grids.npz", allow_pickle=False) as file:
        names = sorted({key.split(":")[0] for key in file.files})
        chosen = names[given.half == "kept-back" :: 2]
        accuracies = [file[f"{name}:accuracy"].astype(np.float64) for name in chosen]
    print("| axes | " + " | ".join(f"{at:,}" for at in budgets) + " | ms per pull |")
    print("| --- |" + " --- |" * (len(budgets) + 1))
    for kind in given.kinds.split(","):
        runs = [
            Grid(accuracy, seed, small=given.small).run(kind, seed, budgets)
            for accuracy in accuracies
            for seed in range(given.seeds)
        ]
        regrets, spent = np.array([regret for regret, _ in runs]), [ms for _, ms in runs]
        errors = regrets.std(axis=0, ddof=1) / np.sqrt(len(runs))
        cells = [f"{m:.3f} ± {e:.3f}" for m, e in zip(regrets.mean(axis=0), errors, strict=True)]
        print(f"| {kind} | " + " | ".join(cells) + f" | {np.mean(spent):.1f} |", flush=True)


if __name__ == "__main__":
    main()
