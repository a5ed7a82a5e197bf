from __future__ import annotations

import os
import sys
from pathlib import Path
from select import select
from subprocess import PIPE, Popen

import numpy as np
import pytest

from bestarm_agent.simulation.replay_many import Plan, budget_shares, run_study
from bestarm_agent.simulation.rule_specs import parse_contenders
from bestarm_agent.simulation.score_matrices import ScoreMatrix
from bestarm_agent.simulation.simulated_calls import Conditions, Latency


def bernoulli(n_rows: int = 5, n_columns: int = 40) -> ScoreMatrix:
    rng = np.random.default_rng(1)
    means = np.linspace(0.3, 0.8, n_rows)[:, None]
    scores = (rng.random((n_rows, n_columns)) < means).astype(np.float32)
    return ScoreMatrix(scores, tuple(f"c{i}" for i in range(n_rows)), np.linspace(1, 2, n_rows))


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_processes() -> None:
    contenders = parse_contenders("ucb-e,uniform")
    plan = Plan((0.1, 0.5), 3, conditions=Conditions(4, 2, Latency(1.0, 3.0), 0.1))
    threads = os.environ.get("OMP_NUM_THREADS")
    one, two = (run_study(bernoulli(), contenders, plan, jobs=jobs) for jobs in (1, 2))
    assert list(one) == ["ucb-e", "uniform"]
    for label in one:
        assert [r.answers for r in one[label]] == [r.answers for r in two[label]]
    assert os.environ.get("OMP_NUM_THREADS") == threads


def test_seeds_differ_and_can_be_continued() -> None:
    contenders = parse_contenders("uniform")
    whole = run_study(bernoulli(), contenders, Plan((0.1,), 4))["uniform"]
    later = run_study(bernoulli(), contenders, Plan((0.1,), 2, first_seed=2))["uniform"]
    assert [r.answers for r in later] == [r.answers for r in whole[2:]]
    assert len({r.answers for r in whole}) > 1


def test_progress_counts_runs() -> None:
    seen: list[tuple[int, int]] = []
    plan = Plan((0.1,), 2)
    run_study(
        bernoulli(),
        parse_contenders("ucb-e,uniform"),
        plan,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_wrong_rules_fail_before_any_run() -> None:
    seen: list[int] = []
    with pytest.raises(ValueError, match="there is no selector 'nonsense'"):
        run_study(
            bernoulli(),
            parse_contenders("ucb-e,nonsense"),
            Plan((0.1,), 2),
            progress=lambda done, total: seen.append(done),
        )
    assert not seen


def test_shares_become_numbers_of_pairs() -> None:
    plan = Plan((0.0001, 0.001, 0.05, 0.5), 1)
    assert plan.budgets(200) == [1, 10, 100]
    assert plan.depth == 10
    assert Plan((0.5,), 1, top_k=25).depth == 25


def test_geometric_shares() -> None:
    assert budget_shares(0.01, 0.3, 1) == (0.3,)
    shares = budget_shares(0.01, 0.30, 20)
    assert (shares[0], shares[-1], len(shares)) == (0.01, 0.3, 20)
    assert np.diff(np.log(shares)) == pytest.approx(np.log(30) / 19, rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fractions": (), "seeds": 1}, "budgets must be rising shares"),
        ({"fractions": (0.0, 0.1), "seeds": 1}, "budgets must be rising shares"),
        ({"fractions": (0.2, 0.1), "seeds": 1}, "budgets must be rising shares"),
        ({"fractions": (0.2, 1.1), "seeds": 1}, "budgets must be rising shares"),
        ({"fractions": (0.2,), "seeds": 0}, "seeds must be at least 1, got 0"),
        ({"fractions": (0.2,), "seeds": 1, "top_k": 0}, "top_k must be at least 1, got 0"),
    ],
)
def test_plans_check_themselves(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Plan(**arguments)  # type: ignore[arg-type]


def test_studies_check_jobs_and_set_size() -> None:
    with pytest.raises(ValueError, match="jobs must be at least 1"):
        run_study(bernoulli(), parse_contenders("ucb-e"), Plan((0.1,), 1), jobs=0)
    with pytest.raises(ValueError, match="top_k must be at most 5 candidates, got 6"):
        run_study(bernoulli(), parse_contenders("ucb-e"), Plan((0.1,), 1, top_k=6))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="waits for processes that are not its children")
def test_workers_end_with_a_parent_that_is_killed() -> None:
    script = Path(__file__).with_name("killed_study.py")
    parent = Popen([sys.executable, str(script)], stdin=PIPE, stdout=PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdin is not None
    workers = [os.pidfd_open(int(pid)) for pid in parent.stdout.readline().split()]
    parent.kill()
    parent.wait()
    assert len(workers) == 2
    for worker in workers:
        ended, _, _ = select([worker], [], [], 20)  # readable once the process has ended
        os.close(worker)
        assert ended
    parent.stdout.close()
    parent.stdin.close()
