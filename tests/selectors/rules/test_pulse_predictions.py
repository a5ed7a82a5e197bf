from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.selectors.rules.pulse_predictions import Predictions, Rest
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import Ask, Pair, State, Tell
from bestarm_agent.stats.models.example_factors import Factors


def factors(n: int) -> Factors:
    rng = np.random.default_rng(1)
    return Factors(rng.normal(size=n), rng.normal(size=(n, 2)))


def score(table: ScoreTable, candidate: int, examples: list[int], state: State) -> None:
    for example in examples:
        ask = Ask(table.n_asked, Pair(candidate, example), None, "")
        table.ask(ask)
        if state is not State.PENDING:
            table.tell(Tell(ask.seq, state, 0.75))


def test_a_candidate_moves_when_refitted_to_new_scores_only() -> None:
    known, table = factors(6), ScoreTable(2, 6)
    predictions = Predictions(known, table)
    before = predictions.row(0)
    np.testing.assert_array_equal(before, known.predict(np.zeros(2)))
    score(table, 0, [3, 1], State.DONE)
    assert predictions.row(0) is before  # until it is refitted
    assert predictions.refit(0)
    expected = known.predict(known.locate(np.array([3, 1]), np.array([0.75, 0.75])))
    np.testing.assert_allclose(predictions.row(0), expected, atol=1e-5)
    assert not predictions.refit(0)
    np.testing.assert_array_equal(predictions.row(1), before)


def test_pending_and_void_pairs_teach_nothing() -> None:
    table = ScoreTable(1, 6)
    predictions = Predictions(factors(6), table)
    score(table, 0, [0], State.PENDING)
    score(table, 0, [1], State.VOID)
    assert not predictions.refit(0)
    score(table, 0, [2], State.FAILED)
    assert predictions.refit(0)


def test_newcomers_are_average() -> None:
    known, table = factors(6), ScoreTable(1, 6)
    predictions = Predictions(known, table)
    score(table, 0, [0, 1], State.DONE)
    predictions.refit(0)
    before = predictions.row(0)
    table.add_examples(2)
    table.add_candidates(1)
    predictions.grow()
    np.testing.assert_allclose(predictions.row(0)[:6], before)
    np.testing.assert_allclose(predictions.row(1)[6:], 1 / (1 + np.exp(-known.offset.mean())))


def test_the_rest_is_summed_up_as_it_shrinks() -> None:
    rng = np.random.default_rng(2)
    row, left = rng.random(20).astype(np.float32), rng.random(20) < 0.7
    rest = Rest(row, left.copy(), focused=True)
    dropped = int(np.flatnonzero(left)[2])
    rest.drop(dropped)
    left[dropped] = False
    assert rest.n == left.sum()
    assert rest.total == pytest.approx(row[left].sum())
    assert rest.squares == pytest.approx((row[left] ** 2).sum())
    assert sum(rest.share(int(j)) for j in np.flatnonzero(left)) == pytest.approx(1.0)


def test_focused_draws_never_repeat_and_follow_their_shares() -> None:
    """Chi-square of 3,000 draws of 5 examples; 99.9999 % point of 4 degrees is 34."""
    row = np.array([0.5, 0.9, 0.1, 0.999999, 0.5, 0.7], dtype=np.float32)
    rest = Rest(row, np.full(6, True), focused=True)
    rng = np.random.default_rng(3)
    rest.drop(4)
    drawn = np.bincount([rest.draw(rng) for _ in range(3000)], minlength=6)
    assert drawn[4] == 0
    expected = 3000 * np.array([rest.share(j) for j in range(6)])
    kept = np.arange(6) != 4
    assert ((drawn - expected)[kept] ** 2 / expected[kept]).sum() < 34
