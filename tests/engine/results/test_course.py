"""The course of a run and the matrix of its pairs, from the log alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from bestarm_agent.domain.events import Asked, Event, Told
from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Outcome, Score
from bestarm_agent.engine.results.from_log import build_standing
from bestarm_agent.engine.results.standing import Status
from bestarm_agent.report import html_page as matrix_module
from bestarm_agent.report.html_page import course, departures, matrix_of
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Ask, Pair, Problem, State, Tell
from bestarm_agent.store.codec import line_of
from bestarm_agent.store.run_state import RunState
from tests.support.standings import state_of

LABELS = ["a", "b", "c", "d"]


def logged(n: int) -> list[Event]:
    """A run on 100 examples: the candidates are right with probability .95, .6, .3 and .1."""
    rng, events = np.random.default_rng(3), list[Event]()
    selector = make_selector("auto", Problem(4, 100, seed=1, stop_when_separated=False))
    for _ in range(n):
        [ask] = selector.ask(1)
        score = float(rng.random() < (0.95, 0.6, 0.3, 0.1)[ask.pair[0]])
        selector.tell([Tell(ask.seq, State.DONE, score)])
        events.append(Asked(ask.seq, *ask.pair, ask.reason))
        outcome = Outcome(Score(score), spend=Spend(answers=1))
        events.append(Told(ask.seq, outcome, score))
    return events


def run_of(events: Sequence[Event]) -> RunState:
    state = state_of(LABELS, 100)
    state.take([line_of(event) for event in events])
    return state


def test_the_course_ends_where_the_run_stands() -> None:
    state = run_of(logged(200))
    rule = make_selector("uniform", Problem(4, 100, seed=1, stop_when_separated=False))
    for seq, (row, example, _) in enumerate(state.asks.tolist()):
        rule.adopt([Ask(seq, Pair(row, example), "")])
        rule.tell([Tell(seq, State.DONE, float(state.told["score"][seq]))])
    standing = build_standing(state, rule, "run")
    for row in standing.rows:
        moments, means = course(state, row.index, 0.05 / 4)
        assert moments[-1] == 200
        assert means[-1] == pytest.approx((row.total / row.n, row.lower, row.upper), abs=0.03)
    gone = departures(standing, state)
    assert gone.keys() == {row.index for row in standing.rows if row.status is Status.WORSE}
    last = {row: np.flatnonzero(state.asks["candidate"] == row).max() + 1 for row in gone}
    assert gone == last


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 131])
def test_moments_are_even_and_the_last_one_is_now(n: int) -> None:
    moments, means = course(run_of(logged(n)), 0, 0.05)
    assert len(means) == len(moments) <= 32
    assert moments[-1:] == [n][:n]
    assert set(np.diff(moments).tolist()) <= {n // 32, n // 32 + 1}


def test_what_was_pending_moves_no_mean_of_then() -> None:
    """The first answer of a candidate comes last: until then no later one says anything."""
    asked = [Asked(seq, 0, seq, "rule") for seq in range(40)]
    told = [
        Told(seq, Outcome(Score(1.0), spend=Spend(answers=1)), 1.0) for seq in (*range(1, 40), 0)
    ]
    moments, means = course(run_of([*asked, *told]), 0, 0.05)
    assert [tuple(mean)[1:] for mean in means[:-1]] == [(0.0, 1.0)] * (len(moments) - 1)
    assert (means[-1].value, means[-1].upper) == (1.0, 1.0)
    assert means[-1].lower > 0.8


def test_the_matrix_samples_large_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    state = run_of(logged(120)[:-1])
    whole = matrix_of(state, [0, 1, 2, 3])
    cells = "".join(whole.cells)
    assert cells.count("p") == 1, "the last one is pending"
    assert cells.count("9") + cells.count("0") == 119
    scores = np.array([[{"9": 1.0, "0": 0.0}.get(c, np.nan) for c in line] for line in whole.cells])
    above = np.nansum(scores - np.nanmean(scores, axis=1, keepdims=True), axis=0)
    above /= 1 + np.isfinite(scores).sum(axis=0)
    assert (np.diff(above) < 1e-9).all(), "the easiest example, for those asked on it, comes first"
    monkeypatch.setattr(matrix_module, "_MOST_ROWS", 2)
    monkeypatch.setattr(matrix_module, "_MOST_COLUMNS", 5)
    part = matrix_of(state, [0, 1, 2, 3])
    assert (len(part.rows), len(part.columns)) == (2, 5)
    assert [len(line) for line in part.cells] == [5, 5]
