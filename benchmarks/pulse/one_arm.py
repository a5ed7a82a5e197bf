"""Bias and error of PULSE's estimator: one model, a fixed number of calls, many runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from benchmarks.pulse.report import Bench
from numpy.typing import NDArray

from bestarm_agent.selectors.history import HistoryModel
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rules.pulse import Pulse
from bestarm_agent.selectors.types import Problem, State, Tell
from bestarm_agent.simulation.score_matrices import ScoreMatrix
from tests.support.published_programs import PublishedPulse

Errors: TypeAlias = NDArray[np.float64]

N_EXAMPLES = 1000  # the first of the benchmark's, so that a large share is seen
BATCH = 32
BATCHES = 12
MODELS = 40  # the strongest ones, in turn

ESTIMATORS: Mapping[str, dict[str, Any]] = {
    "plain mean (UCB-E)": {"history": None},
    "as printed": {"tau": 1},
    "stale predictions, as published": {"tau": 1, "rule": PublishedPulse},
}


def one_arm_errors(
    bench: Bench, matrix: ScoreMatrix, lesson: HistoryModel, runs: int
) -> dict[str, Errors]:
    """(runs,) errors of each estimator after 384 of 1,000 scores; kept like the other runs."""
    path = bench.work / "pulse-one-arm.json"
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
    known = HistoryModel(lesson.factors.at(np.arange(N_EXAMPLES)), lesson.validation)
    strongest = np.argsort(-matrix.means)[:MODELS]
    scores = matrix.scores[strongest, :N_EXAMPLES].astype(float)
    for name, options in ESTIMATORS.items():
        done = kept.setdefault(name, [])
        for seed in range(len(done), runs):
            options_now = {"history": known} | options
            done.append(_error(scores[seed % MODELS], options_now, seed))
        path.write_text(json.dumps(kept), encoding="utf-8")
    return {name: np.array(kept[name][:runs]) for name in ESTIMATORS}


def _error(scores: Errors, options: dict[str, Any], seed: int) -> float:
    problem = Problem(1, len(scores), seed=seed, track_intervals=False)
    rule = options.pop("rule", Pulse)
    selector = Pairs(rule(problem, batch=BATCH, **options))
    for _ in range(BATCHES):
        asks = selector.ask(BATCH)
        selector.tell([Tell(a.seq, State.DONE, float(scores[a.pair.example])) for a in asks])
    return float(selector.estimates().mean[0] - scores.mean())
