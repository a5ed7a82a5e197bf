"""Gains of routing over fixed choices: paired, clustered, and of the promised level."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.preselection.rules import Mm

from bestarm_agent.errors import ConfigError
from bestarm_agent.preselection.records import Record, RouterSettings
from bestarm_agent.preselection.rule import FloatArray
from bestarm_agent.preselection.worth import (
    Table,
    Worth,
    best_fixed_subset,
    clustered,
    route,
    worth,
    would_pay,
)

FREE = np.zeros(4)
SETTINGS = RouterSettings()


def table(scores: FloatArray, prompts: FloatArray, weighed: FloatArray = FREE) -> Table:
    constant = np.column_stack([np.ones(len(prompts)), prompts])
    return Table(scores - weighed[:, None], constant, weighed)


def noise(seed: int, means: list[float], n: int, weighed: FloatArray = FREE) -> Table:
    """Binary scores of given means that no feature says anything about."""
    rng = np.random.default_rng([seed, 5])
    scores = (rng.random((4, n)) < np.array(means)[:, None]).astype(float)
    return table(scores, rng.normal(size=n), weighed)


def two_kinds(n: int, seed: int = 6) -> Table:
    """Prompts of two kinds; candidates are good at the one or at the other."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(2, size=n)
    likely = np.where(np.arange(4)[:, None] % 2 == kind, 0.9, 0.2)
    described = (2.0 * kind - 1.0).astype(np.float64)
    return table((rng.random((4, n)) < likely).astype(float), described)


def test_clustered_errors_by_hand() -> None:
    # Mean 1/2; residuals of prompt 0: -.5 and +.5, of prompt 1: -.5 and +.5, of prompt 2: twice 0.
    gains = np.array([[0.0, 0.0, 0.5], [1.0, 1.0, 0.5]])
    prompts = np.array([[0, 1, 2], [0, 1, 2]])
    assert clustered(gains, prompts) == (0.5, 0.0)  # sums of residuals cancel
    once = clustered(np.array([[0.0, 1.0]]), np.array([[0, 1]]))
    assert once[1] == pytest.approx(np.sqrt(2 / 1 * 0.5) / 2)
    twice = clustered(np.array([[0.0, 1.0]] * 2), np.array([[0, 1]] * 2))
    assert twice == once  # the same prompts again are no further evidence


def test_the_best_fixed_subset_by_hand() -> None:
    """Rows 0 and 1 are right on halves, row 2 on three of four prompts."""
    scores = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 0.0]])
    every = np.arange(4)
    free = table(scores, every.astype(float), np.zeros(3))
    assert best_fixed_subset(free, every, 1).tolist() == [2]
    assert best_fixed_subset(free, every, 2).tolist() == [0, 1]
    dear = table(scores, every.astype(float), np.array([0.0, 0.3, 0.0]))  # .3 buys a quarter
    assert best_fixed_subset(dear, every, 2).tolist() == [0, 2]
    with pytest.raises(ConfigError, match="subsets of 20 of 40 are too many to try"):
        best_fixed_subset(table(np.zeros((40, 4)), np.zeros(4), np.zeros(40)), every, 20)


def test_dollars_are_paid_for_each_that_is_run_and_the_best_answer_counts() -> None:
    priced = table(np.array([[1.0, 0.0], [0.5, 0.5]]), np.zeros(2), np.array([0.1, 0.2]))
    gained = priced.gained(np.array([[0, 1], [1, 0]]), np.array([0, 1]))
    assert gained == pytest.approx([1.0 - 0.3, 0.5 - 0.3])


def test_a_rule_that_learns_nothing_of_prompts_gains_what_a_fixed_choice_does() -> None:
    """Routing by wins alone, where one candidate always wins: both run it."""
    scores = np.array([[1.0] * 60, [0.0] * 60, [0.0] * 60, [0.0] * 60])
    chosen = route(Mm(4, 8), table(scores, np.zeros(60)), np.arange(60), 1)
    assert set(chosen[30:, 0].tolist()) == {0}


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize(
    ("means", "k", "weighed"),
    [
        ([0.5] * 4, 2, FREE),
        ([0.4, 0.5, 0.5, 0.6], 1, FREE),
        ([0.5] * 4, 1, np.array([0.0, 0.05, 0.1, 0.2])),
    ],
    ids=["equal", "unequal", "priced"],
)
def test_noise_is_said_to_pay_for_at_most_5_of_100_tables(
    means: list[float], k: int, weighed: FloatArray
) -> None:
    # The nominal rate is 2.5 %, so that 6 or more of 100 would come by chance in 1 of 85 cases.
    pays = [
        worth(noise(seed, means, 80, weighed), RouterSettings(seed=seed), k, orders=2).low > 0
        for seed in range(100)
    ]
    assert sum(pays) <= 5


@pytest.mark.parametrize("k", [1, 2])
def test_prompts_of_two_kinds_are_worth_routing(k: int) -> None:
    found = worth(two_kinds(400), SETTINGS, k, orders=2)
    assert str(found).startswith("Routing pays: on the second half of 400 prompts it gains +")
    assert 0 < found.low < found.gain < found.high <= found.oracle + 0.1


def test_what_is_said() -> None:
    lost = Worth(-0.02, -0.03, -0.01, 0.4, 1, 1000)
    assert str(lost).startswith("Routing does not pay: on the second half of 1,000 prompts")
    assert "over the candidate that was best on the first half" in str(lost)
    unknown = Worth(0.0, -0.01, 0.01, 0.4, 2, 1000)
    assert str(unknown).startswith("Routing makes no difference that 1,000 prompts can show")


def records(n: int) -> list[Record]:
    """Poems that the poet writes, sums that the other adds."""
    made = []
    for i in range(n):
        text = f"a poem on the colour {i}" if i % 2 else f"add {i} to 3"
        scores = {"poet": float(i % 2), "sums": 1.0 - i % 2}
        made.append(Record(prompt=text, shown=("poet", "sums"), scores=scores))
    return made


def test_a_history_answers_if_it_has_every_score() -> None:
    pytest.importorskip("sklearn", reason="needs the extra preselect")
    history = records(120)
    found = would_pay(history, SETTINGS, 1)
    assert found is not None
    assert found.low > 0.3
    assert found.n_prompts == 120
    partly = Record(prompt="add 1 to 3", shown=("poet",), scores={"poet": 0.0})
    assert would_pay([*history, partly], SETTINGS, 1) is None
    assert would_pay(history[:3], SETTINGS, 1) is None
    winners = [Record(prompt="x", shown=("a", "b"), ranking=("a",))] * 20
    assert would_pay(winners, SETTINGS, 1) is None
    with pytest.raises(ConfigError, match=r"k must be in 1\.\.2, got 3"):
        would_pay(history, SETTINGS, 3)
