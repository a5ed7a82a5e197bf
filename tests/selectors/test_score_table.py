from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import Ask, Pair, State, Tell
from tests.support.selector_suite import World, WorldRun, opened


def filled() -> ScoreTable:
    """Rows 0 and 2 of a 3 x 4 grid: one DONE, one FAILED, one VOID, two PENDING."""
    table = ScoreTable(3, 4)
    for seq, pair in enumerate([Pair(0, 1), Pair(2, 3), Pair(0, 3), Pair(0, 0), Pair(2, 0)]):
        table.ask(Ask(seq, pair, reason="test"))
    table.tell(Tell(2, State.DONE, 0.5, cost=1.0))
    table.tell(Tell(0, State.FAILED, 0.1, cost=2.0))
    table.tell(Tell(1, State.VOID, 0.9, cost=4.0))
    return table


def test_every_view_agrees_on_what_happened() -> None:
    table = filled()
    assert table.n_asked == 5
    assert table.candidate.tolist() == [0, 2, 0, 0, 2]
    assert table.example.tolist() == [1, 3, 3, 0, 0]
    assert table.position.tolist() == [0, 0, 1, 2, 1]
    assert table.score.tolist() == [0.1, 0.0, 0.5, 0.0, 0.0]
    assert table.cells.tolist() == [[1, 3, 0, 2], [0, 0, 0, 0], [1, 0, 0, 4]]
    assert table.n_trials.tolist() == [3, 0, 2]
    assert table.n_unseen.tolist() == [1, 4, 2]
    assert np.flatnonzero(table.cells[2] == State.UNSEEN).tolist() == [1, 2]
    assert table.n_scored.tolist() == [2, 0, 0]
    assert table.count(State.PENDING).tolist() == [1, 0, 1]
    assert table.count(State.VOID).tolist() == [0, 0, 1]
    assert table.total.tolist() == [pytest.approx(0.6), 0, 0]
    assert table.spent.tolist() == [3.0, 0.0, 4.0]
    np.testing.assert_allclose(table.mean(), [0.3, np.nan, np.nan])
    assert np.flatnonzero(table.state == State.PENDING).tolist() == [3, 4]
    assert list(table.row(0)) == [0, 2, 3], "in ask order, whatever came back first"


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (Ask(4, Pair(1, 1), ""), "expected 5, got 4"),
        (Ask(6, Pair(1, 1), ""), "expected 5, got 6"),
        (Ask(5, Pair(0, 1), ""), "was asked before"),
        (Ask(5, Pair(2, 0), ""), "was asked before"),
        (Ask(5, Pair(3, 0), ""), "lies outside 3 x 4"),
        (Ask(5, Pair(-1, 0), ""), "lies outside 3 x 4"),
        (Ask(5, Pair(1, 4), ""), "lies outside 3 x 4"),
    ],
)
def test_a_wrong_ask_is_refused_and_leaves_no_trace(ask: Ask, message: str) -> None:
    table = filled()
    with pytest.raises(ValueError, match=message):
        table.ask(ask)
    assert (table.n_asked, table.n_trials.tolist()) == (5, [3, 0, 2])


def test_rows_and_columns_join_without_touching_what_is_known() -> None:
    table = filled()
    table.add_candidates(2)
    table.add_examples(3)
    assert table.cells.shape == (5, 7)
    assert table.cells[:3, :4].tolist() == filled().cells.tolist()
    assert not table.cells[3:].any()
    assert not table.cells[:, 4:].any()
    table.ask(Ask(5, Pair(4, 6), ""))
    table.tell(Tell(5, State.DONE, 1.0))
    np.testing.assert_allclose(table.mean(), [0.3, np.nan, np.nan, np.nan, 1.0])
    assert table.n_unseen.tolist() == [4, 7, 5, 7, 6]


def test_growing_one_by_one_is_cheap() -> None:
    """Doubling: 2,000 rows and columns join a grid in about a dozen copies each."""
    table = ScoreTable(1, 1)
    copies, cells = 0, table.cells.base
    for _ in range(2000):
        table.add_candidates(1)
        table.add_examples(1)
        copies, cells = copies + (table.cells.base is not cells), table.cells.base
    assert table.cells.shape == (2001, 2001)
    assert copies <= 24


@pytest.mark.slow
def test_a_study_of_24_million_cells_opens_and_asks_in_little_memory() -> None:
    tracemalloc.start()
    try:
        selector = opened("ucb-e", 2000, 12_000)
        asks = selector.ask(3000)
        selector.tell([Tell(ask.seq, State.DONE, 0.5) for ask in asks])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len({ask.pair.candidate for ask in asks}) == 2000
    assert peak < 200e6  # the grid itself takes 24 MB


def compare(run: WorldRun, told: dict[Pair, Tell]) -> None:
    """Check a selector's table against a naive count of all that it was asked and told."""
    table = run.selector.table
    for i in range(table.n_candidates):
        tells = [tell for pair, tell in told.items() if pair.candidate == i]
        scores = [tell.score for tell in tells if tell.state != State.VOID]
        pending = [ask for ask in run.waiting if ask.pair.candidate == i]
        assert table.n_scored[i] == len(scores)
        assert table.count(State.PENDING)[i] == len(pending)
        assert table.count(State.VOID)[i] == len(tells) - len(scores)
        assert table.total[i] == pytest.approx(sum(scores))
        of_row = [pair for pair in run.pairs if pair.candidate == i]
        assert [Pair(i, int(table.example[s])) for s in table.row(i)] == of_row
        assert table.spent[i] == pytest.approx(0.1 * len(tells))
    assert table.n_asked == len(run.pairs) == len(set(run.pairs))


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.sampled_from(["ask", "tell", "again", "rows"]), st.integers(0)), max_size=40
    ),
    st.integers(0, 3),
)
@pytest.mark.parametrize("rule", ["auto", "opt-mai", "ucb-e"])
def test_any_interleaving_keeps_the_counts_right(
    rule: str, acts: list[tuple[str, int]], seed: int
) -> None:
    selector = opened(rule, 3, 5, seed=seed, budget=2000 if seed % 2 else 12)
    run, told = WorldRun(selector, World.with_failures((60, 70), seed)), dict[Pair, Tell]()
    for act, number in acts:
        if act == "ask":
            run.ask(number % 6)
        elif act == "tell" and run.waiting:
            ask = run.waiting[place := number % len(run.waiting)]
            told[ask.pair] = run.world.outcome(ask)
            run.tell(place)
        elif act == "again" and told:
            with pytest.raises(ValueError, match="was told before"):
                selector.tell([list(told.values())[number % len(told)]])
        elif act == "rows":
            run.grow(candidates=number % 3)
        compare(run, told)
