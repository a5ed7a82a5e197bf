from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from bestarm_agent.selectors.types import Ask, Pair, State, Tell
from bestarm_agent.simulation.score_matrices import ScoreMatrix
from bestarm_agent.simulation.simulated_calls import Conditions, Latency, SimulatedCalls

STEP = Conditions()


def matrix(scores: object, costs: object = None) -> ScoreMatrix:
    grid = np.asarray(scores, dtype=np.float32)
    prices = None if costs is None else np.asarray(costs, dtype=np.float64)
    return ScoreMatrix(grid, tuple(f"c{i}" for i in range(len(grid))), prices)


def all_outcomes(world: SimulatedCalls) -> np.ndarray:
    n_rows, n_columns = world.shape
    grid = np.full(world.shape, np.nan)
    for seq in range(n_rows * n_columns):
        pair = Pair(*divmod(seq, n_columns))
        told = world.outcome(Ask(seq, pair, None, "all"))
        if told.state is State.DONE:
            grid[pair] = told.score
    return grid


def test_a_world_is_the_matrix_with_rows_and_columns_shuffled() -> None:
    scores = np.arange(12).reshape(3, 4) / 16
    seen = all_outcomes(world := SimulatedCalls(matrix(scores), seed=5, conditions=STEP))
    unshuffled = np.empty_like(seen)
    unshuffled[world.rows] = seen
    assert np.array_equal(np.sort(unshuffled, axis=1), scores)  # each row has its own scores
    by_column = seen[:, np.argsort(seen[0])]
    assert np.array_equal(by_column, scores[world.rows])  # columns moved together


def test_worlds_repeat_by_seed_and_differ_between_seeds() -> None:
    scores = np.random.default_rng(0).random((6, 9))
    worlds = [all_outcomes(SimulatedCalls(matrix(scores), seed, STEP)) for seed in (1, 1, 2)]
    assert np.array_equal(worlds[0], worlds[1])
    assert not np.array_equal(worlds[0], worlds[2])


def test_costs_follow_their_rows() -> None:
    world = SimulatedCalls(matrix([[0.1], [0.2], [0.3]], costs=[1.0, 2.0, 3.0]), 3, STEP)
    for row in range(3):
        told = world.outcome(Ask(row, Pair(row, 0), None, ""))
        assert told.cost == pytest.approx(10 * told.score)
        assert world.costs is not None
        assert world.costs[row] == told.cost


def test_a_missing_cell_comes_back_void_and_costs() -> None:
    world = SimulatedCalls(matrix([[np.nan, 1.0]], costs=[2.5]), 0, STEP)
    states = {world.outcome(Ask(j, Pair(0, j), None, "")).state for j in range(2)}
    assert states == {State.VOID, State.DONE}
    assert {world.outcome(Ask(j, Pair(0, j), None, "")).cost for j in range(2)} == {2.5}


@pytest.mark.coverage
def test_the_asked_share_of_calls_fails() -> None:
    world = SimulatedCalls(matrix(np.ones((20, 100))), 0, Conditions(failures=0.2))
    void = int(np.isnan(all_outcomes(world)).sum())
    assert binomtest(void, 2000, 0.2).pvalue > 1e-4  # seeded: passes once, passes always


def test_expected_latency() -> None:
    law = Latency(mean=2.0, slowdown=4.0)
    assert law.expected(1.0) == 2.0
    assert law.expected(0.0) == 8.0
    assert law.expected(0.5) == 5.0


def test_durations_depend_on_the_ask_number_alone() -> None:
    world = SimulatedCalls(matrix([[1.0]]), 0, Conditions(latency=Latency()))
    told = [Tell(seq, State.DONE, 1.0) for seq in range(3)]
    forward = [world.duration(tell) for tell in told]
    assert [world.duration(tell) for tell in reversed(told)] == forward[::-1]
    assert len(set(forward)) == 3
    assert min(forward) > 0


def test_without_latency_calls_take_no_time() -> None:
    assert SimulatedCalls(matrix([[1.0]]), 0, STEP).duration(Tell(0, State.DONE, 1.0)) == 0.0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Conditions(batch=0), "batch must be at least 1, got 0"),
        (lambda: Conditions(in_flight=2, batch=3), "in_flight must be at least the batch size 3"),
        (lambda: Conditions(failures=1.0), r"failures must be in \[0, 1\), got 1"),
        (lambda: Latency(mean=0), "mean latency must be > 0"),
        (lambda: Latency(slowdown=-1), "slowdown must be > 0, got -1"),
    ],
)
def test_refusals(wrong: object, message: str) -> None:
    assert callable(wrong)
    with pytest.raises(ValueError, match=message):
        wrong()
