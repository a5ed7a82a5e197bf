"""Runs that stop once a winner is declared: how often is it ever the wrong one?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bestarm_agent.selectors.auto.rule import Auto
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.proofs import Proofs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.rules.racing import Racing
from bestarm_agent.selectors.rules.ucb_e import UcbE
from bestarm_agent.selectors.types import Ask, Problem, State, Tell
from bestarm_agent.simulation.replay import SimulatedCalls
from bestarm_agent.simulation.score_matrices import ScoreMatrix, load_matrix
from bestarm_agent.stats.arrays import BoolArray, IntArray
from tests.support.rates import RateCheck
from tests.support.selector_suite import flown, opened

DATA = Path(__file__).parents[2] / "../shared/data"
N = 40
# calls at once, and the share of them that cannot be measured; wrong answers come five times later
CONDITIONS = {"one": (1, 0.0), "many": (32, 0.0), "failing": (32, 0.1)}
SLOWDOWN = 5.0
HEADS = {"two coins": (21, 20), "all level": (21, 20, 20, 20), "rare failures": (39, 38, 37)}


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

    def outcome(ask: Ask) -> tuple[Tell, float]:
        tell = world.outcome(ask)
        seconds = rng.exponential(1 + (SLOWDOWN - 1) * (1 - tell.score))
        return (Tell(ask.seq, State.VOID) if rng.random() < failures else tell), seconds

    ever = wrongly = False
    best = {i for i, row in enumerate(world.rows) if truth[row] >= truth.max() - 1e-9}
    for _ in flown(pairs, outcome, in_flight):
        verdict = pairs.answer.best()
        ever |= verdict.separated
        wrongly |= verdict.separated and verdict.best not in best
    return ever, wrongly


def count_wrong(
    rule: type[Rule], matrix_of: Callable[[int], ScoreMatrix], how: str, runs: int
) -> tuple[int, int]:
    """In how many runs at delta = .2 a winner is ever declared, and in how many wrongly."""
    results = []
    asked = {"confidence": 0.8, "stop_when_separated": True}
    for seed in range(runs):
        matrix = matrix_of(seed)
        pairs = opened(rule, len(matrix.scores), N, seed=seed, **asked)
        pairs.answer.review = lambda *_: None  # type: ignore[method-assign] # level: go on
        results.append(declared(pairs, matrix, seed, how))
    ever, wrongly = np.sum(results, axis=0)
    return int(ever), int(wrongly)


WORLDS: dict[str, Callable[[int], ScoreMatrix]] = {
    **{name: partial(coins, name) for name in HEADS},  # one cell apart: every decision is a guess
    "hard": hard_examples,  # for all alike: pairs decide here long before intervals do
}


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize(
    ("rule", "world", "how", "runs"),
    [
        (Racing, "two coins", "one", 70),
        (Racing, "two coins", "failing", 70),
        (Racing, "all level", "many", 30),
        (Racing, "rare failures", "many", 40),
        (Racing, "rare failures", "failing", 40),
        (Racing, "hard", "one", 40),
        (Racing, "hard", "many", 40),
        # whom it asks, and when it stops, depends on all that was seen
        (UcbE, "two coins", "one", 40),
        (UcbE, "two coins", "many", 40),
        (Auto, "all level", "many", 30),
    ],
)
def test_a_wrong_winner_is_declared_at_most_at_level_delta(
    rule: type[Rule], world: str, how: str, runs: int, check_rate: RateCheck
) -> None:
    # Binomial test at 1e-6 against delta = .2.
    ever, wrong = count_wrong(rule, WORLDS[world], how, runs)
    check_rate(wrong, runs, 0.2)
    assert ever > 20 or world != "hard"


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize("name", ["zeroeval_gsm8k", "livecodebench_gen_2024-04"])
def test_racing_on_real_rows(name: str, check_rate: RateCheck) -> None:
    # 30 runs at delta = .2: the best four candidates of a real matrix on 40 of its examples each.
    if not DATA.is_dir():
        pytest.skip("the shared score matrices are not here")
    whole = load_matrix(str(DATA / f"{name}.npz"))
    top = np.argsort(-whole.means)[:4]

    def sample(seed: int) -> ScoreMatrix:
        drawn = np.random.default_rng([seed, 83]).choice(whole.scores.shape[1], N, replace=False)
        return named(whole.scores[top][:, drawn])

    _, wrong = count_wrong(Racing, sample, "many", 30)
    check_rate(wrong, 30, 0.2)


@pytest.mark.slow
def test_the_check_finds_a_rule_that_decides_too_soon(check_rate: RateCheck) -> None:
    # Judging two coins by who leads after ten examples each is wrong far more often than in 20 %.
    class HastyProofs(Proofs):
        def rivals(
            self, candidate: int, best: Sequence[int] = (), rows: IntArray | None = None
        ) -> BoolArray:
            is_early = self._table.n_scored.min() < 10
            return np.asarray(super().rivals(candidate, best, rows) & is_early)

    class Hasty(Racing):
        """Declares the leader once every row has ten scores."""

        def __init__(self, problem: Problem) -> None:
            super().__init__(problem)
            self.answer._proofs.__class__ = HastyProofs

    _, wrong = count_wrong(Hasty, WORLDS["two coins"], "one", 60)
    with pytest.raises(AssertionError, match="misses in 60 runs"):
        check_rate(wrong, 60, 0.2)
