from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.rules.ucb_e import UcbE
from bestarm_agent.selectors.types import Ask, BoolArray, Choice, Pair, Problem, Tell
from bestarm_agent.simulation.replay import replay
from bestarm_agent.simulation.score_matrices import ScoreMatrix
from bestarm_agent.simulation.simulated_calls import Conditions, Latency, SimulatedCalls


class RoundRobin(Rule):
    """Candidates in turn, examples in index order."""

    name: ClassVar[str] = "round-robin"

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        seq = self.table.n_asked
        candidate = seq % self.table.n_candidates
        return Choice(Pair(candidate, seq // self.table.n_candidates), None, "turn")


class Journal(Pairs):
    """Keeps a journal of what happened."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        self.journal: list[tuple[str, tuple[int, ...]]] = []

    def ask(
        self, n: int = 1, *, allowed: BoolArray | None = None, busy: BoolArray | None = None
    ) -> list[Ask]:
        asks = super().ask(n, allowed=allowed, busy=busy)
        self.journal.append(("ask", tuple(ask.seq for ask in asks)))
        return asks

    def tell(self, results: Sequence[Tell]) -> None:
        self.journal.append(("tell", tuple(result.seq for result in results)))
        super().tell(results)


class Planned(RoundRobin):
    """The same, but made for a budget."""

    name: ClassVar[str] = "planned"
    anytime: bool = False


class Waiting(RoundRobin):
    """Asks for two pairs, then for nothing until both are told."""

    name: ClassVar[str] = "waiting"

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        told = int(self.table.n_scored.sum())
        return super().choose(allowed, rng) if self.table.n_asked < told // 2 * 2 + 2 else None


class Quitting(RoundRobin):
    """Asks three pairs and no more."""

    name: ClassVar[str] = "quitting"

    def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | None:
        return super().choose(allowed, rng) if self.table.n_asked < 3 else None


def world(
    scores: object, conditions: Conditions | None = None, seed: int = 0, costs: object = None
) -> SimulatedCalls:
    grid = np.asarray(scores, dtype=np.float32)
    prices = None if costs is None else np.asarray(costs, dtype=np.float64)
    names = tuple(f"c{i}" for i in range(len(grid)))
    return SimulatedCalls(ScoreMatrix(grid, names, prices), seed, conditions or Conditions())


class Recorder:
    """Keeps the selectors that a replay makes."""

    def __init__(self, rule: type[RoundRobin]) -> None:
        self._rule = rule
        self.made: list[Journal] = []

    def __call__(self, problem: Problem) -> Pairs:
        self.made.append(Journal(self._rule(problem)))
        return self.made[-1]


def test_answers_by_hand() -> None:
    # three candidates with constant scores, taken in turn: after 4 pulls the row that was shuffled
    # to the front has 2, and the best is the one of score .9 from the 3rd pull on at the latest
    here = world([[0.2] * 4, [0.9] * 4, [0.5] * 4], costs=[1.0, 10.0, 100.0])
    answers = replay(Recorder(RoundRobin), here, [3, 4, 12]).answers
    assert [a.evaluated for a in answers] == [3, 4, 12]
    assert [a.best for a in answers] == [1, 1, 1]
    assert [a.highest for a in answers] == [1, 1, 1]
    assert answers[-1].ranking == (1, 2, 0)
    assert [a.most_pulls for a in answers] == [1, 2, 4]
    first = (1.0, 10.0, 100.0)[here.rows[0]]
    assert [a.cost for a in answers] == [111.0, 111.0 + first, 444.0]


def test_ranking_is_cut_to_the_depth() -> None:
    [answer] = replay(Recorder(RoundRobin), world([[0.2], [0.9], [0.5]]), [3], depth=2).answers
    assert answer.ranking == (1, 2)


def test_an_anytime_rule_runs_once() -> None:
    made = Recorder(RoundRobin)
    found = replay(made, world(np.ones((2, 8))), [2, 5, 9])
    assert found.pulls == 9
    [selector] = made.made
    assert selector.table.n_asked == 9


def test_a_planning_rule_is_told_each_budget_and_runs_afresh() -> None:
    made = Recorder(Planned)
    found = replay(made, world(np.ones((2, 8))), [2, 5, 9])
    assert found.pulls == 2 + 5 + 9
    assert [s.problem.budget for s in made.made if s.table.n_asked] == [2, 5, 9]
    assert [a.evaluated for a in found.answers] == [2, 5, 9]


def test_batches_are_told_whole_and_cut_at_budgets() -> None:
    made = Recorder(RoundRobin)
    replay(made, world(np.ones((2, 8)), Conditions(in_flight=3, batch=3)), [4, 8])
    assert made.made[0].journal == [
        ("ask", (0, 1, 2)),
        ("tell", (0, 1, 2)),
        ("ask", (3,)),
        ("tell", (3,)),
        ("ask", (4, 5, 6)),
        ("tell", (4, 5, 6)),
        ("ask", (7,)),
        ("tell", (7,)),
    ]


def test_calls_in_flight_without_latency_return_in_the_order_of_asking() -> None:
    made = Recorder(RoundRobin)
    replay(made, world(np.ones((2, 8)), Conditions(in_flight=2)), [4])
    assert made.made[0].journal == [
        ("ask", (0,)),
        ("ask", (1,)),
        ("tell", (0,)),
        ("ask", (2,)),
        ("tell", (1,)),
        ("ask", (3,)),
        ("tell", (2,)),
        ("tell", (3,)),
    ]


def test_a_rule_that_waits_is_asked_again_after_each_outcome() -> None:
    made = Recorder(Waiting)
    [answer] = replay(made, world(np.ones((2, 8)), Conditions(in_flight=4)), [6]).answers
    assert answer.evaluated == 6
    asked = [seqs for kind, seqs in made.made[0].journal if kind == "ask"]
    assert asked[:6] == [(0,), (1,), (), (), (2,), (3,)]


@pytest.mark.parametrize("conditions", [Conditions(), Conditions(2, 1, Latency())])
def test_the_last_word_of_a_rule_that_stops_stands(conditions: Conditions) -> None:
    found = replay(Recorder(Quitting), world(np.ones((2, 8)), conditions), [2, 5, 9])
    assert [a.evaluated for a in found.answers] == [2, 3, 3]
    assert [a.budget for a in found.answers] == [2, 5, 9]
    assert found.pulls == 3


def test_the_clock_moves_to_each_completion() -> None:
    conditions = Conditions(in_flight=1, latency=Latency(mean=2.0))
    here = world(np.ones((1, 3)), conditions)
    durations = [
        here.duration(here.outcome(ask)) for ask in Pairs(RoundRobin(Problem(1, 3))).ask(3)
    ]
    answers = replay(Recorder(RoundRobin), here, [1, 2, 3]).answers
    assert [a.seconds for a in answers] == pytest.approx(np.cumsum(durations))


def test_slow_wrong_replies_flatter_what_has_come_back() -> None:
    # the bias that bounds in ask order exist for: half the replies are wrong and 5 times slower
    half = np.tile([0.0, 1.0], 150)[None, :]
    seen = []
    for seed in range(20):
        here = world(half, Conditions(32, 1, Latency(slowdown=5.0)), seed)
        made = Recorder(RoundRobin)
        replay(made, here, [60])
        told = [seqs[0] for kind, seqs in made.made[0].journal if kind == "tell"][:30]
        seen.append(made.made[0].table.score[told].mean())
    assert np.mean(seen) > 0.6


@pytest.mark.parametrize("seed", range(5))
def test_everything_seen_names_the_best(seed: int) -> None:
    scores = np.random.default_rng(seed).random((7, 11))
    found = replay(
        lambda problem: Pairs(UcbE(problem)), world(scores, seed=seed), [77], seed=seed, depth=7
    )
    assert found.answers[0].ranking == tuple(np.argsort(-scores.mean(axis=1)))


def test_the_processor_clock_is_injected() -> None:
    ticks: Iterator[float] = iter([10.0, 14.0])
    found = replay(Recorder(RoundRobin), world([[1.0]]), [1], cpu_clock=lambda: next(ticks))
    assert found.cpu_seconds == 4.0


@pytest.mark.parametrize("budgets", [[], [0, 1], [3, 2], [2, 2]])
def test_budgets_must_rise(budgets: list[int]) -> None:
    with pytest.raises(ValueError, match="budgets must be rising numbers"):
        replay(Recorder(RoundRobin), world([[1.0]]), budgets)


@settings(max_examples=60)
@given(
    batch=st.integers(1, 4),
    extra=st.integers(0, 5),
    slowdown=st.floats(0.2, 5) | st.none(),
    failures=st.sampled_from([0.0, 0.3]),
    budget=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_every_ask_is_told_once_and_no_more_fly_than_may(
    batch: int, extra: int, slowdown: float | None, failures: float, budget: int, seed: int
) -> None:
    law = None if slowdown is None else Latency(slowdown=slowdown)
    conditions = Conditions(batch + extra, batch, law, failures)
    made = Recorder(RoundRobin)
    scores = np.random.default_rng(seed).random((3, 10))
    [answer] = replay(made, world(scores, conditions, seed), [budget]).answers
    flying: set[int] = set()
    told = 0
    for kind, seqs in made.made[0].journal:
        if kind == "ask":
            flying |= set(seqs)
        else:
            assert set(seqs) <= flying
            flying -= set(seqs)
            told += len(seqs)
        assert len(flying) <= conditions.in_flight
    assert not flying
    assert told == answer.evaluated == min(budget, 30)
