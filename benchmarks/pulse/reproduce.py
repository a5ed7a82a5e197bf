"""Reproduce PULSE (paper 2) against UCB-E and Naive-Pooling on pools of models with a history.

    python -m benchmarks.pulse.reproduce --data ../shared/data

Pools of 1,000 models take hours; ``strongest`` has the 200 strongest models, and ``one-arm`` checks
the estimator alone. ``--scale .05`` runs five seeds instead of 100.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from benchmarks.report import Bench, Part, markdown, run
from numpy.typing import NDArray

from bestarm_agent.engine.setup.history import learn_once
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.rules.pulse import Pulse
from bestarm_agent.selectors.types import Problem, State, Tell
from bestarm_agent.simulation.curves import TARGET, hardness, isotonic_crossing
from bestarm_agent.simulation.replay import SimulatedCalls, replay
from bestarm_agent.simulation.score_matrices import ScoreMatrix, load_matrix
from bestarm_agent.stats.history import HistoryModel
from tests.support.published_programs import PublishedPulse

Array: TypeAlias = NDArray[np.float64]

FILE = "openllm2_bbh5_semisynthetic.npz"
BATCH = 64  # calls of a step, and of the warm-up per model
# by gap: the models to choose from and the past ones. The file's two halves are alike; only the
# second one has a model nearly .02 below its best, so there they change places.
HALVES = {0.01: ("scores", "history"), 0.02: ("history", "scores"), 0.03: ("scores", "history")}
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
ESTIMATORS: Mapping[str, dict[str, Any]] = {
    "plain mean (UCB-E)": {"history": None},
    "as printed": {"tau": 1},
    "stale predictions, as published": {"tau": 1, "rule": PublishedPulse},
}


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


def measured(
    data: Path, work: Path, size: int, gap: float, name: str, seed: int
) -> dict[str, list[float]]:
    """Regret of one rule in one world at each budget."""
    matrix, rule = _pool(data, gap, size), RULES[name]
    world = SimulatedCalls(matrix.scores, seed)
    options: dict[str, Any] = {"batch": BATCH, **dict(rule.options)}
    if rule.with_history:
        learned = _lesson(data, work, HALVES[gap][1])
        factors = learned.factors.at(np.asarray(world.columns))  # the world shuffles examples
        options["history"] = HistoryModel(factors, learned.validation)
    found = replay(
        lambda problem: make_selector(rule.name, problem, **options),
        world,
        budgets_of(matrix, size),
        seed=seed,
        batch=BATCH,
    )
    regret = [float(matrix.means.max() - matrix.means[one.best]) for one in found.answers]
    return {"budgets": [float(one.budget) for one in found.answers], "regret": regret}


def pools(bench: Bench, size: int) -> dict[str, str]:
    """Calls until the right model is named in 95 % of the runs."""
    work, seeds = bench.work, bench.seeds(100)
    for gap in HALVES:
        _lesson(bench.data, work, HALVES[gap][1])  # learned once, before the processes start
    tasks = {
        (gap, name, seed): (
            {"part": f"pulse-{size}", "gap": gap, "rule": name, "seed": seed},
            partial(measured, bench.data, work, size, gap, name, seed),
        )
        for gap in HALVES
        for name in RULES
        for seed in range(seeds)
    }
    found = bench.all_found(tasks)
    rows = []
    for gap in HALVES:
        pool = _pool(bench.data, gap, size)
        warm_up, plain = BATCH * len(pool.scores), None
        for name in RULES:
            runs = [found[gap, name, seed] for seed in range(seeds)]
            right = np.array([np.array(one["regret"]) == 0.0 for one in runs])
            crossing = isotonic_crossing(runs[0]["budgets"], right.mean(axis=0), TARGET)
            plain = crossing if name == "UCB-E" else plain
            saved = "-"
            if crossing is not None and plain is not None and plain > warm_up:
                saved = f"{1 - (crossing - warm_up) / (plain - warm_up):.0%}"
            overall = right.mean(axis=1)  # over the budgets
            error = overall.std(ddof=1) / np.sqrt(len(overall))
            calls = "not reached" if crossing is None else f"{crossing:,.0f}"
            accuracy = f"{overall.mean():.2f} ± {error:.2f}"
            h1 = f"{hardness(pool.means):,.0f}"
            rows.append([f"{gap:g}", name, h1, str(seeds), calls, saved, accuracy])
    heads = ["gap", "rule", "H1", "seeds", "calls to 95 %", "saved, of UCB-E's after warm-up"]
    return {f"budgets-{size}": markdown([*heads, "mean accuracy"], rows)}


N_EXAMPLES, ONE_ARM_BATCH, BATCHES = 1000, 32, 12  # 384 of the first 1,000 examples are seen
MODELS = 40  # the strongest ones, in turn


def one_arm(bench: Bench) -> dict[str, str]:
    """Bias and error of each estimator of one model's mean."""
    lesson = _lesson(bench.data, bench.work, "history")
    known = HistoryModel(lesson.factors.at(np.arange(N_EXAMPLES)), lesson.validation)
    matrix = load_matrix(str(bench.data / f"{FILE}:scores"))
    strongest = np.argsort(-matrix.means)[:MODELS]
    scores = matrix.scores[strongest, :N_EXAMPLES].astype(float)
    runs, rows = bench.seeds(2000), []
    for name, options in ESTIMATORS.items():
        key = {"part": "one-arm", "estimator": name, "runs": runs}
        errors = np.array(bench.found(key, partial(_errors, scores, known, options, runs)))
        se = errors.std(ddof=1) / np.sqrt(runs)
        means = [f"{errors.mean():+.5f}", f"{se:.5f}", f"{errors.mean() / se:+.1f}"]
        rows.append([name, str(runs), *means, f"{np.sqrt((errors**2).mean()):.4f}"])
    return {"one-arm": markdown(["estimator", "runs", "bias", "s.e.", "in s.e.", "rmse"], rows)}


def _errors(
    scores: Array, known: HistoryModel, options: Mapping[str, Any], runs: int
) -> Sequence[float]:
    errors = []
    for seed in range(runs):
        wanted = {"history": known, "batch": ONE_ARM_BATCH, **options}
        rule, row = wanted.pop("rule", Pulse), scores[seed % MODELS]
        selector = Pairs(rule(Problem(1, N_EXAMPLES, seed=seed, track_intervals=False), **wanted))
        for _ in range(BATCHES):
            asks = selector.ask(ONE_ARM_BATCH)
            selector.tell([Tell(a.seq, State.DONE, float(row[a.pair.example])) for a in asks])
        errors.append(float(selector.answer.estimates().mean[0] - row.mean()))
    return errors


@cache
def _pool(data: Path, gap: float, size: int) -> ScoreMatrix:
    return build_pool(load_matrix(str(data / f"{FILE}:{HALVES[gap][0]}")), gap, size)


@cache
def _lesson(data: Path, work: Path, half: str) -> HistoryModel:
    """What the past models teach."""
    scores: Array = load_matrix(str(data / f"{FILE}:{half}")).scores.astype(float)
    return learn_once(scores, work)[0]


if __name__ == "__main__":
    parts: dict[str, Part] = {
        "one-arm": one_arm,
        "strongest": partial(pools, size=200),
        "whole": partial(pools, size=1000),
    }
    run(parts, Path(__file__).with_name("README.md"), __doc__)
