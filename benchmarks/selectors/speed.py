"""CPU time and memory of selection rules, beside banditeval where that is installed.

Usage: ``OMP_NUM_THREADS=1 python -m benchmarks.selectors.speed [--quick]``

Every line is measured in a process of its own. A decision of a rule is one ask and its tell, with
intervals and what stops a run, as users have it, from the first ask on. One of ``ucb-e-lrf`` is a
whole batch of 32: 32 asks and tells and the fit of the model, without intervals, with a tenth of
the scores told at the start. banditeval (0.1.1 on PyPI, with torch and einops: the published
program of UCB-E-LRF) counts the same batch as one step.

Targets: ``auto``, ``racing`` and ``ucb-e`` within 1 ms at 3,000 candidates; 50 pulls of 64,000
within 5 s; ``ucb-e-lrf`` within 1/30 of banditeval's CPU time, 300 MB at 1,000 x 2,000, and 1 ms a
pull (.032 s a batch) at 1,000 x 10,000. Batches enough for a fit to all cells are measured.
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.rules.ucb_e_lrf import UcbELrf
from bestarm_agent.selectors.types import Problem, State, Tell

BATCH = 32
SIZES = [(154, 805), (205, 784), (1000, 2000), (1000, 10_000)]
FEW, MANY = (3000, 1000), (64_000, 500)
RULES = [
    "auto",
    "racing",
    "ucb-e",
    "uniform",
    "sysrs",
    "opt-mai",
]


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one process saw.

    Attributes:
        seconds: CPU seconds per decision.
        peak_mb: largest resident memory of the process, megabytes.
    """

    seconds: float
    peak_mb: float


def scores_of(shape: tuple[int, int]) -> NDArray[np.float64]:
    """0/1 scores of candidates of different ability on examples of different difficulty."""
    rng = np.random.default_rng(1)
    ability, difficulty = rng.normal(0, 1, (shape[0], 1)), rng.normal(0, 1.2, (1, shape[1]))
    return (rng.random(shape) < 1 / (1 + np.exp(difficulty - ability))).astype(np.float64)


def peak_mb() -> float:
    """Peak resident memory of this process so far, megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def pull(selector: Pairs, scores: NDArray[np.float64], n: int) -> None:
    """Ask and tell ``n`` pairs, one by one."""
    for _ in range(n):
        [ask] = selector.ask()
        selector.tell([Tell(ask.seq, State.DONE, float(scores[ask.pair]))])


def measure_pulls(name: str, shape: tuple[int, int], in_flight: int, n: int) -> Measurement:
    """Ask and tell with several pulls in flight, scores made up on the way."""
    problem = Problem(*shape, budget=2 * n)
    selector, rng = make_selector(name, problem), np.random.default_rng(2)
    means, luck, places = rng.random(shape[0]), rng.random(n), rng.random(n)
    waiting = selector.ask(in_flight - 1)
    began = time.process_time()
    for k in range(n):
        waiting += selector.ask()
        ask = waiting.pop(int(places[k] * len(waiting)))
        selector.tell([Tell(ask.seq, State.DONE, float(luck[k] < means[ask.pair.candidate]))])
    return Measurement((time.process_time() - began) / n, peak_mb())


def measure_lrf(shape: tuple[int, int], n_batches: int) -> Measurement:
    """Batches of ``ucb-e-lrf``, from a tenth of the scores on."""
    scores = scores_of(shape)
    problem = Problem(*shape, track_intervals=False)
    selector = Pairs(UcbELrf(problem, warm_up=0.1, batch=BATCH))
    pull(selector, scores, round(0.1 * scores.size) + BATCH)
    began = time.process_time()
    pull(selector, scores, n_batches * BATCH)
    return Measurement((time.process_time() - began) / n_batches, peak_mb())


def measure_banditeval(step: str, shape: tuple[int, int], n_batches: int) -> Measurement:
    """Steps of banditeval on one thread, from a tenth of the scores on."""
    import torch
    from banditeval import bandits  # type: ignore[import-not-found]

    torch.set_num_threads(1)
    scores = torch.tensor(scores_of(shape), dtype=torch.float32)
    seen = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.1
    observed = torch.where(seen, scores, torch.nan)
    began = time.process_time()
    for _ in range(n_batches):
        rows, columns = getattr(bandits, step)(observed)
        observed[rows, columns] = scores[rows, columns]
    return Measurement((time.process_time() - began) / n_batches, peak_mb())


def alone(function: Callable[..., Measurement], *args: object, **params: object) -> Measurement:
    """Run a measurement in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *args, **params).result()


def report_pulls(shape: tuple[int, int], n: int, rules: list[str]) -> None:
    """Print one line per rule."""
    print(f"\nOne ask and its tell at {shape[0]} x {shape[1]}, microseconds of CPU; peak memory")
    print(f"{'rule':<22}{'1 in flight':>14}{'32':>10}{'200':>10}{'MB':>8}")
    for name in rules:
        found = [alone(measure_pulls, name, shape, in_flight, n) for in_flight in (1, 32, 200)]
        times = [f"{1e6 * each.seconds:.1f}" for each in found]
        print(f"{name:<22}{times[0]:>14}{times[1]:>10}{times[2]:>10}{found[0].peak_mb:>8.0f}")


def report_lrf(sizes: list[tuple[int, int]], n_batches: int) -> None:
    """Print one line per size."""
    has_rival = importlib.util.find_spec("banditeval") is not None
    print(f"\nOne batch of {BATCH} of ucb-e-lrf, seconds of CPU; peak memory")
    print("" if has_rival else "(banditeval is not installed)\n", end="")
    print(f"{'size':<14}{'ours':>9}{'MB':>6}", end="")
    print(f"{'banditeval':>12}{'MB':>7}{'times':>8}{'its ucbe':>11}" if has_rival else "")
    for shape in sizes:
        warm = alone(measure_lrf, shape, n_batches)
        size = f"{shape[0]} x {shape[1]}"
        print(f"{size:<14}{warm.seconds:>9.4f}{warm.peak_mb:>6.0f}", end="")
        print(_beside(shape, warm) if has_rival else "", flush=True)


def _beside(shape: tuple[int, int], ours: Measurement) -> str:
    prefix = "upper_confidence_bound_exploration"
    n_steps = 1 if shape[0] * shape[1] > 1_000_000 else 3
    lrf = alone(measure_banditeval, f"{prefix}_low_rank_factorization", shape, n_steps)
    plain = alone(measure_banditeval, prefix, shape, 50)
    times = lrf.seconds / ours.seconds
    return f"{lrf.seconds:>12.3f}{lrf.peak_mb:>7.0f}{times:>8.0f}{plain.seconds:>11.5f}"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller measurements")
    quick = parser.parse_args().quick
    report_pulls(FEW, 1000 if quick else 4000, RULES[:3] if quick else RULES)
    report_pulls(MANY, 50, RULES[:3])
    report_lrf(SIZES[:1] if quick else SIZES, 4 if quick else 64)


if __name__ == "__main__":
    main()
