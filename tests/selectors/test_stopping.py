"""Runs that stop once a winner is declared: how often is it ever the wrong one?"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from bestarm_agent.selectors.answer import Answer
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.rules.racing import Racing
from bestarm_agent.selectors.rules.ucb_e import UcbE
from bestarm_agent.selectors.types import BoolArray, Bounds, Problem, State, Tell
from bestarm_agent.simulation.replay import SimulatedCalls
from bestarm_agent.simulation.score_matrices import ScoreMatrix, load_matrix

DATA = Path(__file__).parents[2] / "../shared/data"
N = 50
# calls at once, and the share of them that cannot be measured; wrong answers come five times later
CONDITIONS = {"one": (1, 0.0), "many": (32, 0.0), "failing": (32, 0.1)}
SLOWDOWN = 5.0
HEADS = {"two coins": (26, 25), "all level": (26, 25, 25, 25), "rare failures": (49, 48, 47)}
RUNS = {"two coins": 70, "all level": 30, "rare failures": 40}
conditions = pytest.mark.parametrize("how", list(CONDITIONS))


def coins(name: str, seed: int) -> ScoreMatrix:
    """Independent 0/1 rows of which the first is one success ahead."""
    rng = np.random.default_rng([seed, 81])
    rows = [rng.permutation(np.arange(N) < heads) for heads in HEADS[name]]
    return named(np.array(rows, dtype=float))


def hard_examples(seed: int) -> ScoreMatrix:
    """Graded rows that share nearly all of their noise; the first two are .004 apart."""
    rng = np.random.default_rng([seed, 82])
    difficulty = rng.uniform(0.2, 0.8, N)
    rows = difficulty - np.array([[0.0], [0.004], [0.02]]) + rng.normal(0, 0.05, (3, N))
    return named(np.clip(rows, 0, 1))


def named(scores: np.ndarray) -> ScoreMatrix:
    return ScoreMatrix(scores.astype(np.float32), tuple(f"row {i}" for i in range(len(scores))))


def declared(pairs: Pairs, matrix: ScoreMatrix, seed: int, how: str) -> tuple[bool, bool]:
    """Whether a winner is ever declared, and whether one ever is who is not the best.

    Looked at after every outcome, also of calls that return after the decision.
    """
    world, truth = SimulatedCalls(matrix.scores, seed), matrix.means
    rng = np.random.default_rng([seed, 84])
    in_flight, failures = CONDITIONS[how]
    flying: list[tuple[float, int, Tell]] = []
    now, ever, wrongly = 0.0, False, False
    best = {i for i, row in enumerate(world.rows) if truth[row] >= truth.max() - 1e-9}
    while True:
        for ask in pairs.ask(in_flight - len(flying)):
            tell = world.outcome(ask)
            seconds = rng.exponential(1 + (SLOWDOWN - 1) * (1 - tell.score))
            if rng.random() < failures:
                tell = Tell(ask.seq, State.VOID)
            heappush(flying, (now + seconds, ask.seq, tell))
        if not flying:
            return ever, wrongly
        now, _, tell = heappop(flying)
        pairs.tell([tell])
        verdict = pairs.best()
        ever |= verdict.separated
        wrongly |= verdict.separated and verdict.best not in best


def count_wrong(
    rule: type[Rule],
    matrix_of: Callable[[int], ScoreMatrix],
    how: str,
    runs: int,
    confidence: float,
) -> tuple[int, int]:
    """In how many runs a winner is ever declared, and in how many wrongly."""
    results = []
    for seed in range(runs):
        matrix = matrix_of(seed)
        problem = Problem(
            len(matrix.scores), N, seed=seed, confidence=confidence, within=1e-9
        )  # ``within``: candidates that are level are told apart, too
        results.append(declared(Pairs(rule(problem)), matrix, seed, how))
    ever, wrongly = np.sum(results, axis=0)
    return int(ever), int(wrongly)


def check_rate(wrong: int, runs: int, delta: float) -> None:
    """A binomial test at level 1e-6 that a run goes wrong with probability ``delta`` at most."""
    assert binom.sf(wrong - 1, runs, delta) >= 1e-6, f"{wrong} of {runs} wrong, allowed {delta:.0%}"


@pytest.mark.slow
@pytest.mark.coverage
@conditions
@pytest.mark.parametrize("name", list(HEADS))
def test_racing_declares_a_wrong_winner_at_most_at_level_delta(name: str, how: str) -> None:
    # 30 to 70 runs at delta = .2, rows one cell behind the best: every early decision is a guess.
    runs = RUNS[name]
    _, wrong = count_wrong(Racing, lambda seed: coins(name, seed), how, runs, confidence=0.8)
    check_rate(wrong, runs, 0.2)


@pytest.mark.slow
@pytest.mark.coverage
@conditions
def test_racing_where_examples_are_hard_for_all(how: str) -> None:
    # 40 runs at delta = .2; pairs decide here long before intervals do.
    ever, wrong = count_wrong(Racing, hard_examples, how, 40, confidence=0.8)
    check_rate(wrong, 40, 0.2)
    assert ever > 20 or how == "failing"


@pytest.mark.slow
@pytest.mark.coverage
@conditions
def test_a_rule_that_follows_the_scores(how: str) -> None:
    # 40 runs at delta = .2; whom they ask, and when they stop, depends on all that was seen.
    _, wrong = count_wrong(UcbE, lambda seed: coins("two coins", seed), how, 40, confidence=0.8)
    check_rate(wrong, 40, 0.2)


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize("how", ["one", "many"])
@pytest.mark.parametrize("name", ["zeroeval_gsm8k", "livecodebench_gen_2024-04"])
def test_racing_on_real_rows(name: str, how: str) -> None:
    # 30 runs at delta = .2: the best four candidates of a real matrix on 50 of its examples each.
    if not DATA.is_dir():
        pytest.skip("the shared score matrices are not here")
    whole = load_matrix(str(DATA / f"{name}.npz"))
    top = np.argsort(-whole.means)[:4]

    def sample(seed: int) -> ScoreMatrix:
        drawn = np.random.default_rng([seed, 83]).choice(whole.scores.shape[1], N, replace=False)
        return named(whole.scores[top][:, drawn])

    _, wrong = count_wrong(Racing, sample, how, 30, confidence=0.8)
    check_rate(wrong, 30, 0.2)


@pytest.mark.slow
def test_the_check_finds_a_rule_that_decides_too_soon() -> None:
    # Judging two coins by who leads after ten examples each is wrong far more often than in 20 %.
    class HastyAnswer(Answer):
        def _rivals_of_leader(self, leader: int, bounds: Bounds) -> BoolArray:
            rivals = super()._rivals_of_leader(leader, bounds)
            rivals[:] &= self._table.n_scored.min() < 10
            return rivals

    class Hasty(Racing):
        """Declares the leader once every row has ten scores."""

        def __init__(self, problem: Problem) -> None:
            super().__init__(problem)
            self.answer = HastyAnswer(problem, self.table, self.belief, exogenous=True, paired=True)

    _, wrong = count_wrong(Hasty, lambda seed: coins("two coins", seed), "one", 60, confidence=0.8)
    with pytest.raises(AssertionError, match="allowed 20%"):
        check_rate(wrong, 60, 0.2)
