"""How long a preselection rule takes to decide and to learn.

python -m benchmarks.preselection.speed [--arms 20] [--features 100] [--rounds 1000]
"""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy as np

from bestarm_agent.preselection.rules.plackett_luce import draw_ranking
from bestarm_agent.preselection.rules.registry import RULES, make_preselector
from bestarm_agent.preselection.rules.types import Feedback, PreselectionProblem


def measure(rule: str, n: int, d: int, rounds: int) -> tuple[float, float, float]:
    """Median and 99th percentile of a decision, and median of a lesson, in milliseconds."""
    rng = np.random.default_rng(0)
    made, theta = make_preselector(rule, PreselectionProblem(n, d)), rng.random(d) / d
    decisions, lessons = [], []
    for _ in range(rounds):
        contexts = rng.random((n, d))
        began = perf_counter()
        chosen = made.choose(contexts, 3)
        decisions.append(1e3 * (perf_counter() - began))
        order = chosen[draw_ranking(contexts[chosen] @ theta, rng)]
        feedback = Feedback(contexts, order)
        began = perf_counter()
        made.learn(feedback)
        lessons.append(1e3 * (perf_counter() - began))
    return (
        float(np.median(decisions)),
        float(np.quantile(decisions, 0.99)),
        float(np.median(lessons)),
    )


def main() -> None:
    """Print one line per rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arms", type=int, default=20)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=1000)
    arguments = parser.parse_args()
    print(f"{arguments.arms} arms, d = {arguments.features}; milliseconds")
    print(f"{'rule':16}{'decision':>10}{'99 %':>10}{'lesson':>10}")
    for rule in RULES:
        found = measure(rule, arguments.arms, arguments.features, arguments.rounds)
        print(f"{rule:16}" + "".join(f"{ms:10.3f}" for ms in found))


if __name__ == "__main__":
    main()
