from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.rules.ucb_e import UcbE
from bestarm_agent.selectors.types import Ask, Choice, Pair, Problem, State
from bestarm_agent.simulation.replay import Replay, SimulatedCalls, replay
from bestarm_agent.stats.arrays import BoolArray


class RoundRobin(Rule):
    """Candidates in turn, examples in index order; it notes how many pairs are out at each ask."""

    name: ClassVar[str] = "round-robin"
    most: int = 1_000
    made: ClassVar[list[RoundRobin]]

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.out: list[int] = []
        self.made.append(self)

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        seq = self.table.n_asked
        self.out.append(int(self.table.count(State.PENDING).sum()))
        pair = Pair(seq % self.table.n_candidates, seq // self.table.n_candidates)
        return Choice(pair, "turn") if seq < self.most else None


class Planned(RoundRobin):
    """The same, but made for a budget."""

    anytime: bool = False


class Quitting(RoundRobin):
    """Asks three pairs and no more."""

    most: int = 3


def played(
    rule: type[RoundRobin], scores: object, budgets: list[int], **given: int
) -> tuple[Replay, list[RoundRobin]]:
    """Replay a rule; return what was found, and the rules that were made for it."""
    RoundRobin.made = []
    return replay(lambda p: Pairs(rule(p)), world(scores), budgets, **given), RoundRobin.made


def world(scores: object, seed: int = 0) -> SimulatedCalls:
    return SimulatedCalls(np.asarray(scores, dtype=np.float32), seed)


def all_outcomes(calls: SimulatedCalls) -> np.ndarray:
    n_rows, n_columns = calls.shape
    grid = np.full(calls.shape, np.nan)
    for seq in range(n_rows * n_columns):
        pair = Pair(*divmod(seq, n_columns))
        told = calls.outcome(Ask(seq, pair, "all"))
        if told.state is State.DONE:
            grid[pair] = told.score
    return grid


def test_calls_are_the_matrix_with_rows_and_columns_shuffled() -> None:
    scores = np.arange(12).reshape(3, 4) / 16
    seen = all_outcomes(calls := world(scores, seed=5))
    unshuffled = np.empty_like(seen)
    unshuffled[np.ix_(calls.rows, calls.columns)] = seen
    assert np.array_equal(unshuffled, scores)
    assert not np.array_equal(seen, scores)


def test_a_missing_cell_comes_back_void() -> None:
    calls = world([[np.nan, 1.0]])
    states = {calls.outcome(Ask(j, Pair(0, j), "")).state for j in range(2)}
    assert states == {State.VOID, State.DONE}


def test_answers_by_hand() -> None:
    # three candidates with constant scores, taken in turn: all are seen from the third pull on
    scores = [[0.2] * 4, [0.9] * 4, [0.5] * 4]
    found, made = played(RoundRobin, scores, [3, 4, 12], depth=2)
    assert [a.evaluated for a in found.answers] == [3, 4, 12]
    assert [a.best for a in found.answers] == [1, 1, 1]
    assert [a.ranking for a in found.answers] == [(1, 2)] * 3
    assert found.pulls == 12
    assert len(made) == 1  # an anytime rule runs once


def test_a_rule_that_plans_runs_again_for_each_budget() -> None:
    found, made = played(Planned, np.ones((2, 8)), [2, 5, 9])
    assert [a.evaluated for a in found.answers] == [2, 5, 9]
    assert found.pulls == 16
    assert [one.problem.budget for one in made if one.table.n_asked] == [2, 5, 9]


def test_batches_are_told_whole_and_cut_at_the_budgets() -> None:
    _, [rule] = played(RoundRobin, np.ones((2, 8)), [4, 8], batch=3)
    assert rule.out == [0, 1, 2, 0, 0, 1, 2, 0]


def test_the_last_word_of_a_rule_that_stops_stands() -> None:
    found, _ = played(Quitting, np.ones((2, 8)), [2, 5, 9])
    assert [(a.budget, a.evaluated) for a in found.answers] == [(2, 2), (5, 3), (9, 3)]
    assert found.pulls == 3


@pytest.mark.parametrize("seed", range(5))
def test_everything_seen_names_the_best(seed: int) -> None:
    scores = np.random.default_rng(seed).random((7, 11))
    calls = world(scores, seed=seed)
    found = replay(lambda problem: Pairs(UcbE(problem)), calls, [77], seed=seed, depth=7)
    assert found.answers[0].ranking == tuple(np.argsort(-scores.mean(axis=1)))


@pytest.mark.parametrize("budgets", [[], [0, 1], [3, 2], [2, 2]])
def test_budgets_must_rise(budgets: list[int]) -> None:
    with pytest.raises(ValueError, match="budgets must be rising numbers"):
        played(RoundRobin, [[1.0]], budgets)
