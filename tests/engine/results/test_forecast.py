"""The forecast of the pairs that would settle a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bestarm_agent.engine.results.effects import forecast
from bestarm_agent.report.words import caveat, headline, outlook
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Guarantee, Problem, State, Tell
from tests.support.standings import standing_of, standing_with


def halves(right: int, n: int = 40) -> list[float]:
    """Scores in an order of their own, so that two candidates are right on different examples."""
    scores = [1.0] * right + [0.0] * (n - right)
    return [float(x) for x in np.random.default_rng(right).permutation(scores)]


def test_a_smaller_gap_needs_more_pairs() -> None:
    far = forecast(standing_with(["a", "b"], [halves(30), halves(22)], n_examples=2000))
    near = forecast(standing_with(["a", "b"], [halves(30), halves(27)], n_examples=2000))
    assert far is not None
    assert near is not None
    assert 0 < far.pairs < near.pairs <= 4000 - 80


def test_leaders_that_are_level_are_said_to_be() -> None:
    standing = standing_with(["a", "b"], [halves(30), halves(30)[::-1]], n_examples=2000)
    found = forecast(standing)
    assert found is not None
    assert found.level
    assert found.most == 4000 - 80, "all pairs may be needed"
    assert outlook(standing) == "", "the first line says so"


def test_an_estimate_without_a_score_is_no_ground_for_a_forecast() -> None:
    """Rules that know axes have one of candidates that were never asked."""
    standing = standing_with(["a", "b", "c"], [halves(30), halves(22), []], n_examples=2000)
    rows = [replace(row, estimate=row.estimate or 0.9) for row in standing.rows]
    rows.sort(key=lambda row: -(row.estimate or 0))
    guessed = replace(standing, rows=tuple(rows))
    assert guessed.best == rows[0]
    assert not rows[0].n
    assert forecast(guessed) is None
    assert outlook(guessed) == ""
    assert "1 of 3 candidates have no score" in caveat(guessed)


def test_nothing_is_forecast_where_nothing_can_be_said() -> None:
    open_one = standing_with(["a", "b"], [halves(30), halves(22)], n_examples=2000)
    assert outlook(open_one).startswith("About ")
    assert forecast(replace(open_one, guarantee=Guarantee.HEURISTIC)) is None
    assert forecast(standing_with(["a", "b"], [[1.0, 0.0], []])) is None
    guessed = [replace(row, n=0) for row in open_one.rows[1:]]  # from the scores of its model
    assert forecast(replace(open_one, rows=(open_one.rows[0], *guessed))) is None
    settled = standing_with(["a", "b"], [[1.0] * 90, [0.0] * 90], n_examples=100)
    assert outlook(settled) == ""
    name, said = headline(settled)
    assert (name, said[:39]) == ("a", "leads on your 100 examples, and no rema")
    assert said.endswith("ahead of all others: shown (95%).")
    name, said = headline(open_one)
    assert said.startswith("leads on your 2,000 examples so far; 1 other is still open")
    assert headline(replace(open_one, margin=0.0))[1].startswith(
        "leads on your 2,000 examples, and"
    )


def test_the_range_holds_the_count_and_never_more_than_is_left() -> None:
    far = forecast(standing_with(["a", "b"], [halves(30), halves(22)], n_examples=2000))
    assert far is not None
    assert far.fewest < far.pairs < far.most < 4000 - 80
    assert far.most / far.fewest == pytest.approx(1.8 / 0.2, rel=0.05)
    near = forecast(standing_with(["a", "b"], [halves(30), halves(29)], n_examples=100))
    assert near is not None
    assert near.most == 120, "all that are left"


def test_a_forecast_early_in_a_run_is_of_the_right_size() -> None:
    rng = np.random.default_rng(4)
    scores = (rng.random((8, 400)) < np.linspace(0.3, 0.9, 8)[:, None]).astype(float)
    selector = make_selector("auto", Problem(8, 400, seed=1, stop_when_separated=True))
    found, asked = 0, 0
    while asks := selector.ask(1):
        asked += 1
        selector.tell([Tell(ask.seq, State.DONE, float(scores[ask.pair])) for ask in asks])
        if asked == 200:
            early = forecast(standing_of([f"c{i}" for i in range(8)], selector, 400))
            assert early is not None
            found = early.pairs
    assert (asked - 200) / 4 < found < (asked - 200) * 4
