"""The package's own ``auto``: with calls in flight, and stopping by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from benchmarks.auto.matrices import MATRICES, scores_of
from benchmarks.papers.stored_studies import Bench, markdown, say

from bestarm_agent.selectors.rules.auto import Auto
from bestarm_agent.selectors.types import Problem, Stop
from bestarm_agent.simulation.replay_many import Plan, run_study
from bestarm_agent.simulation.rule_specs import parse_contenders
from bestarm_agent.simulation.score_matrices import ScoreMatrix
from bestarm_agent.simulation.simulated_calls import Conditions, Latency, SimulatedCalls

FLIGHT_SHARES = (0.012, 0.027, 0.06)
FLIGHTS = (
    "LiveCodeBench",
    "SAT12",
    "GSM8K",
    "AlpacaEval, real, no annotator",
    "LLMRouter",
    "AlpacaEval, no annotator",
)
FLYING = {
    "1 in flight": Conditions(),
    "32 in flight, wrong answers 3 times slower": Conditions(
        in_flight=32, latency=Latency(1.0, 3.0)
    ),
}
STOPPING = ("LiveCodeBench", "LLMRouter", "AlpacaEval, real", "SAT12")
GIVE_UP = 0.4  # share of the cells at which a run that has not stopped is left


def matrix_of(bench: Bench, title: str) -> ScoreMatrix:
    """One of the study's matrices as the simulator takes it."""
    scores = scores_of(bench.data, MATRICES[title])
    return ScoreMatrix(scores, tuple(map(str, range(len(scores)))), None, title)


def run_flight(bench: Bench, jobs: int) -> dict[str, str]:
    """Top-1 precision with one call in flight and with many."""
    rows = []
    [contender] = parse_contenders("auto")
    for title in FLIGHTS:
        for label, conditions in FLYING.items():
            seeds = bench.seeds(100)
            key = {"part": "flight", "matrix": title, "how": label, "seeds": seeds}
            found = bench.recall(key)
            if found is None:
                plan = Plan(FLIGHT_SHARES, seeds, conditions=conditions)
                matrix = matrix_of(bench, title)
                replays = run_study(matrix, [contender], plan, jobs=jobs)["auto"]
                best = matrix.means.max() - 1e-9
                right = [[matrix.means[a.best] >= best for a in one.answers] for one in replays]
                found = np.mean(np.array(right, dtype=float), axis=0).tolist()
                bench.keep(key, found)
                say(f"flight: {title}, {label}")
            rows.append([title, label, str(seeds), *(f"{hit:.2f}" for hit in found)])
    headers = [f"{share:.1%} of the cells" for share in FLIGHT_SHARES]
    return {"flight": markdown(["matrix", "calls", "seeds", *headers], rows)}


def run_stops(bench: Bench, jobs: int) -> dict[str, str]:
    """How often a run that stops by itself is wrong, and what it took."""
    rows = []
    for title in STOPPING:
        seeds = bench.seeds(24)
        key = {"part": "stops", "matrix": title, "seeds": seeds}
        found = bench.recall(key)
        if found is None:
            matrix = matrix_of(bench, title)
            found = [_until_it_stops(matrix, seed) for seed in range(seeds)]
            bench.keep(key, found)
            say(f"stops: {title}")
        stopped = [one for one in found if one["stopped"]]
        wrong = sum(not one["right"] for one in stopped)
        took = np.median([one["share"] for one in found])
        rows.append([title, str(seeds), str(len(stopped)), str(wrong), f"{100 * took:.1f}"])
    headers = ["matrix", "runs", "stopped", "of these wrong", "median % of the cells (all runs)"]
    return {"stops": markdown(headers, rows)}


def _until_it_stops(matrix: ScoreMatrix, seed: int) -> dict[str, Any]:
    world = SimulatedCalls(matrix, seed, Conditions())
    selector = Auto(Problem(*world.shape, seed=seed, stop_when_separated=True))
    most = round(GIVE_UP * matrix.scores.size)
    while selector.table.n_asked < most and (asks := selector.ask()):
        selector.tell([world.outcome(asks[0])])
    best = matrix.means[world.rows[selector.best().best]]
    return {
        "stopped": selector.stopped() is Stop.SEPARATED,
        "right": bool(best >= matrix.means.max() - 1e-9),
        "share": selector.table.n_asked / matrix.scores.size,
    }


PARTS: Mapping[str, Callable[[Bench, int], dict[str, str]]] = {
    "flight": run_flight,
    "stops": run_stops,
}
