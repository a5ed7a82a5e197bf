"""What a log feeds to the source of pairs."""

from __future__ import annotations

from collections.abc import Sequence

from bestarm_agent.domain.events import (
    BudgetSet,
    CandidatesAdded,
    CandidatesBarred,
    Event,
    ExamplesAdded,
)
from bestarm_agent.domain.spend import Budget
from bestarm_agent.domain.values import Candidate
from bestarm_agent.engine.record import RunRecord, Size
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rules.racing import Uniform
from bestarm_agent.selectors.types import Ask, Moves, Problem, events_of
from bestarm_agent.stats.arrays import IntArray
from bestarm_agent.store.codec import line_of
from bestarm_agent.store.store import Store
from tests.support.store_runs import asked, grid, started, told

CANDIDATES, EXAMPLES = grid(2, 10)


class Noting(Pairs):
    """Notes what it is fed; two candidates of 10 and 20 cents a pull."""

    def __init__(self) -> None:
        super().__init__(Uniform(Problem(2, 10, budget=10, costs=(0.1, 0.2))))
        self.fed: list[tuple[object, ...]] = []

    def replay(self, moves: Moves) -> None:
        for move in events_of(moves):
            told = ("ask", move.pair.example) if isinstance(move, Ask) else ("tell", move.seq)
            self.fed.append(told)
        super().replay(moves)

    def add_candidates(
        self, count: int, costs: Sequence[float] | None = None, axes: IntArray | None = None
    ) -> None:
        self.fed.append(("candidates", count, costs))
        super().add_candidates(count, costs, axes)

    def add_examples(self, count: int) -> None:
        self.fed.append(("examples", count))

    def add_budget(self, count: int) -> None:
        self.fed.append(("budget", count))
        super().add_budget(count)

    def bar(self, candidates: Sequence[int]) -> None:
        self.fed.append(("bar", *candidates))


def budget(answers: int) -> BudgetSet:
    return BudgetSet(Budget(answers=answers))


def test_a_source_is_fed_what_came_after_the_first_ask() -> None:
    (joins,) = (one for one in grid(1, 1) if isinstance(one, CandidatesAdded))
    later: list[Event] = [
        CandidatesBarred((1,), "too dear"),
        CandidatesAdded(joins.candidates, (0.0,), (None,)),
        ExamplesAdded(("a", "b"), ("x", "y")),
        budget(15),
        budget(12),
    ]
    pairs = Noting()
    record = RunRecord(lambda *_: pairs)
    first = [started(), CANDIDATES, EXAMPLES, budget(10), asked(0), told(0)]
    record.take([line_of(event) for event in (*first, *later)])
    free = 0.2 / 1e4  # of the most expensive one's price
    assert pairs.fed == [
        *[("ask", 0), ("tell", 0), ("bar", 1)],
        *[("candidates", 1, (free,)), ("examples", 2), ("budget", 5)],
    ]


async def test_what_is_recorded_reaches_log_and_state() -> None:
    happened = [started(), CANDIDATES, EXAMPLES, asked(0)]
    store = Store.in_memory()
    log = await store.create("study")
    record = RunRecord(lambda *_: Noting(), log)
    for event in happened:
        record.record(event)
    await record.flush()
    assert record.state.started == started()
    assert record.pairs.table.n_asked == 0, "its own asks the source knows already"
    assert await store.events_of("study") == happened


def test_the_rule_is_made_for_the_problem_at_the_first_ask() -> None:
    (joins,) = (one for one in grid(1, 1) if isinstance(one, CandidatesAdded))
    made: list[tuple[int, int | None]] = []

    def open_pairs(size: Size, _candidates: Sequence[Candidate]) -> Pairs:
        made.append((size.n_candidates, size.budget.answers))
        return Pairs(Uniform(Problem(size.n_candidates, size.n_examples)))

    record = RunRecord(open_pairs)
    record.take([line_of(event) for event in (started(), CANDIDATES, EXAMPLES, budget(10))])
    assert record.pairs is record.pairs
    page: list[Event] = [joins, budget(15), asked(0), joins]  # as a log may be read
    record.take([line_of(event) for event in page])
    assert made[0] == (2, 10)
    assert made[-1] == (3, 15)
    assert record.pairs.table.n_candidates == 4, "one joined after the first ask"


def test_a_rule_that_is_made_anew_knows_who_left_and_what_is_to_be_completed() -> None:
    made: list[Pairs] = []

    def open_pairs(size: Size, _candidates: Sequence[Candidate]) -> Pairs:
        made.append(Pairs(Uniform(Problem(size.n_candidates, size.n_examples))))
        return made[-1]

    def wanted() -> list[int] | None:
        return record.pairs.wanted

    record = RunRecord(open_pairs)
    record.take([line_of(event) for event in (started(), CANDIDATES, EXAMPLES)])
    assert wanted() is None
    record.record(CandidatesBarred((1,), "is the other one, without what its model does not take"))
    assert record.pairs.answer.barred.tolist() == [False, True]
    assert wanted() is None
    record.pairs.complete([0])
    record.record(budget(15))
    assert wanted() == [0]
    assert record.pairs.answer.barred.tolist() == [False, True]
    assert len(made) == 3
