from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.selectors.rules.pulse_estimates import OneStepEstimates, Step, Tally
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import Ask, Pair, State, Tell


def told(*outcomes: tuple[int, State, float], n_examples: int = 4) -> tuple[ScoreTable, list[Ask]]:
    """A table of one candidate where the examples in turn were asked, and told."""
    table = ScoreTable(1, n_examples)
    asks = [Ask(seq, Pair(0, outcome[0]), None, "") for seq, outcome in enumerate(outcomes)]
    for ask, (_, state, score) in zip(asks, outcomes, strict=True):
        table.ask(ask)
        if state is not State.PENDING:
            table.tell(Tell(ask.seq, state, score))
    return table, asks


def test_equation_2_by_hand() -> None:
    """N = 4, predictions (.5, .25, .75, 1), weight 1/2, draws 2 then 0, scores 1 then 0.

    First: (0 + 1/2 * 2.5 + 4 * (1 - .375)) / 4 = 3.75 / 4.
    Second: (1 + 1/2 * 1.75 + 3 * (0 - .25)) / 4 = 1.125 / 4. Their mean is 2.4375 / 4.
    """
    table, _ = told((2, State.DONE, 1.0), (0, State.DONE, 0.0))
    estimates = OneStepEstimates(table)
    estimates.asked(Step(0.5, 2.5, 4, 4), 0.75, 4.0)
    estimates.asked(Step(0.5, 1.75, 3, 4), 0.5, 3.0)
    estimates.advance(0)
    tally = estimates.of(0)
    assert tally.mean == pytest.approx(2.4375 / 4)
    assert tally.variance == pytest.approx(((3.75 - 1.125) / 8) ** 2)
    assert tally.mean_residual == pytest.approx((2.5 - 0.75) / 2)


def test_the_batch_form_by_hand() -> None:
    """Both draws from all four, each likely 2/4: (0 + 1.25 + (.625 - .25) / (2/4)) / 4."""
    table, _ = told((2, State.DONE, 1.0), (0, State.DONE, 0.0))
    estimates, step = OneStepEstimates(table), Step(0.5, 2.5, 4, 4)
    estimates.asked(step, 0.75, 4.0)
    estimates.asked(step, 0.5, 4.0)
    estimates.advance(0)
    assert estimates.of(0).mean == pytest.approx((1.25 + 0.375 * 2) / 4)


def test_unequal_probabilities_are_weighed_out_by_hand() -> None:
    """Draw of probability 1/10: (0 + 2.5 + 10 (1 - .75)) / 4."""
    table, _ = told((2, State.DONE, 1.0))
    estimates = OneStepEstimates(table)
    estimates.asked(Step(1.0, 2.5, 4, 4), 0.75, 10.0)
    estimates.advance(0)
    assert estimates.of(0).mean == pytest.approx(5.0 / 4)


def test_draws_wait_for_those_asked_before_them() -> None:
    table, _ = told((2, State.PENDING, 0.0), (0, State.DONE, 0.0))
    estimates = OneStepEstimates(table)
    estimates.asked(Step(0.5, 2.5, 4, 4), 0.75, 4.0)
    estimates.asked(Step(0.5, 1.75, 3, 4), 0.5, 3.0)
    estimates.advance(0)
    assert estimates.of(0).n == 0
    table.tell(Tell(0, State.DONE, 1.0))
    estimates.advance(0)
    assert estimates.of(0).n == 2
    assert estimates.of(0).mean == pytest.approx(2.4375 / 4)


def test_a_void_draw_is_left_out_with_its_example() -> None:
    """The second step knows of three examples: (0 + 1.75 + 3 (1 - .5)) / 3."""
    table, _ = told((2, State.VOID, 0.0), (0, State.DONE, 1.0))
    estimates = OneStepEstimates(table)
    estimates.asked(Step(1.0, 2.5, 4, 4), 0.75, 4.0)
    estimates.asked(Step(1.0, 1.75, 3, 4), 0.5, 3.0)
    estimates.advance(0)
    assert estimates.of(0).n == 1
    assert estimates.of(0).mean == pytest.approx(3.25 / 3)


def test_the_slope_is_a_regression_drawn_towards_one() -> None:
    rng = np.random.default_rng(0)
    guesses, tally = rng.random(200), Tally()
    scores = 0.2 + 0.3 * guesses + 0.01 * rng.random(200)
    step = Step(1.0, 200 * float(guesses.mean()), 200, 200)
    for guess, score in zip(guesses, scores, strict=True):
        tally.take(step, float(guess), 200.0, float(score))
    assert tally.slope(0.0) == pytest.approx(np.polyfit(guesses, scores, 1)[0], abs=1e-9)
    assert tally.slope(1e9) == pytest.approx(1.0)
    assert Tally().slope(1.0) == 1.0
    assert Tally().slope(0.0) == 0.0  # predictions that do not differ change nothing


def test_plain_draws_do_not_count_as_residuals() -> None:
    tally = Tally()
    tally.take(Step(0.0, 2.0, 4, 4, plain=True), 0.5, 4.0, 1.0)
    assert (tally.n, tally.n_residual, tally.mean_residual) == (1, 0, 0.0)
