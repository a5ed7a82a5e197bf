from __future__ import annotations

import os
import sys
from select import select
from subprocess import PIPE, Popen
from typing import Any

import numpy as np
import pytest

from bestarm_agent.errors import ConfigError
from bestarm_agent.selectors.rules.ucb_e import UcbE
from bestarm_agent.selectors.types import Problem
from bestarm_agent.simulation.replay import (
    Contender,
    budget_shares,
    parse_contenders,
    replay_all,
)


def bernoulli() -> np.ndarray:
    rng = np.random.default_rng(1)
    return (rng.random((5, 40)) < np.linspace(0.3, 0.8, 5)[:, None]).astype(np.float32)


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_processes() -> None:
    contenders = parse_contenders("ucb-e,uniform")
    one, two = (replay_all(bernoulli(), contenders, (0.1, 0.5), 3, jobs=n) for n in (1, 2))
    assert list(one) == ["ucb-e", "uniform"]
    for label in one:
        assert [r.answers for r in one[label]] == [r.answers for r in two[label]]


def test_seeds_differ_and_progress_counts_runs() -> None:
    seen: list[tuple[int, int]] = []
    rules, shares = parse_contenders("ucb-e,uniform"), (0.0001, 0.001, 0.05)
    found = replay_all(bernoulli(), rules, shares, 4, progress=lambda *at: seen.append(at))
    assert len({r.answers for r in found["uniform"]}) > 1
    assert seen == [(n, 8) for n in range(1, 9)]
    assert [a.budget for a in found["ucb-e"][0].answers] == [1, 10]  # the first two are one pair


def test_geometric_shares() -> None:
    assert budget_shares(0.01, 0.3, 1) == (0.3,)
    shares = budget_shares(0.01, 0.30, 20)
    assert (shares[0], shares[-1], len(shares)) == (0.01, 0.3, 20)
    assert np.diff(np.log(shares)) == pytest.approx(np.log(30) / 19, rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shares": ()}, "budgets must be rising shares"),
        ({"shares": (0.0, 0.1)}, "budgets must be rising shares"),
        ({"shares": (0.2, 0.1)}, "budgets must be rising shares"),
        ({"shares": (0.2, 1.1)}, "budgets must be rising shares"),
        ({"n_seeds": 0}, "seeds must be at least 1, got 0"),
        ({"jobs": 0}, "jobs must be at least 1, got 0"),
        ({"contenders": parse_contenders("ucb-e,ucbe")}, "there is no selector 'ucbe'"),
        ({"contenders": parse_contenders("ucb-e[beta=1]")}, "no parameter 'beta'"),
    ],
)
def test_what_cannot_be_replayed_fails_before_any_run(
    arguments: dict[str, Any], message: str
) -> None:
    usual: dict[str, Any] = {"shares": (0.1,), "n_seeds": 2}
    usual |= {"contenders": parse_contenders("ucb-e"), **arguments}
    with pytest.raises(ValueError, match=message):
        replay_all(
            bernoulli(), **usual, progress=lambda done, total: pytest.fail(f"{done} runs were made")
        )


# a study in two processes; it says which they are once one of them has done something, and waits
STUDY = """
import sys
from multiprocessing import active_children
import numpy as np
from bestarm_agent.simulation.replay import parse_contenders, replay_all
def tell(done, total):
    print(*(process.pid for process in active_children()), flush=True)
    sys.stdin.read()
scores = np.zeros((40, 500), dtype=np.float32)
replay_all(scores, parse_contenders("ucb-e"), (1.0,), 200, jobs=2, progress=tell)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="waits for processes that are not its children")
def test_workers_end_with_a_parent_that_is_killed() -> None:
    parent = Popen([sys.executable, "-c", STUDY], stdin=PIPE, stdout=PIPE, text=True)
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


def test_rules_are_written_with_options() -> None:
    text = "uniform, ucb-e[eta=0.25,flag=true,n=4,word=soft],ucb-e[eta=0.25]"
    parsed = parse_contenders(text)
    assert parsed == (
        Contender("uniform", "uniform"),
        Contender(
            "ucb-e[eta=0.25,flag=true,n=4,word=soft]",
            "ucb-e",
            (("eta", 0.25), ("flag", True), ("n", 4), ("word", "soft")),
        ),
        Contender("ucb-e[eta=0.25]", "ucb-e", (("eta", 0.25),)),
    )
    rule = parsed[2].make(Problem(3, 4)).rule
    assert isinstance(rule, UcbE)
    assert rule.eta == 0.25


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "name at least one selector"),
        ("ucb-e,,uniform", "cannot read the selectors .* from ',uniform' on"),
        ("ucb-e[eta=1", r"from '\[eta=1' on|cannot read the selectors"),
        ("ucb-e[eta=1]x", "cannot read the selectors"),
        ("[eta=1]", "cannot read the selectors"),
        ("ucb-e[eta]", "option 'eta' of selector 'ucb-e.eta.' must be written OPTION=VALUE"),
        ("ucb-e,uniform,ucb-e", "selector 'ucb-e' is named twice"),
    ],
)
def test_rules_that_cannot_be_read_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_contenders(text)
