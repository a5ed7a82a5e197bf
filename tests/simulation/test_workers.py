"""Seeds spread over a Ray cluster."""

from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.errors import ConfigError
from bestarm_agent.simulation.replay_many import Plan, run_study
from bestarm_agent.simulation.rule_specs import parse_contenders
from bestarm_agent.simulation.score_matrices import ScoreMatrix
from bestarm_agent.simulation.simulated_calls import Conditions, Latency


def matrix() -> ScoreMatrix:
    scores = np.random.default_rng(1).random((5, 40), dtype=np.float32)
    return ScoreMatrix(scores, tuple(f"c{i}" for i in range(5)), np.linspace(1, 2, 5))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_cluster_gives_the_results_of_this_process(ray_cluster: object) -> None:
    contenders = parse_contenders("ucb-e,uniform")
    plan = Plan((0.1, 0.5), 6, conditions=Conditions(4, 2, Latency(1.0, 3.0), 0.1))
    seen: list[tuple[int, int]] = []
    here = run_study(matrix(), contenders, plan)
    there = run_study(
        matrix(), contenders, plan, jobs=None, progress=lambda *done: seen.append(done)
    )
    assert list(there) == list(here)
    for label in here:
        assert [r.answers for r in there[label]] == [r.answers for r in here[label]]
    assert seen == [(n, 12) for n in range(1, 13)]


@pytest.mark.slow
def test_without_a_cluster_nothing_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    with pytest.raises(ConfigError, match="there is no Ray cluster at the address `auto`"):
        run_study(matrix(), parse_contenders("uniform"), Plan((0.1,), 2), jobs=None)
