"""The course of a run and the matrix of its pairs, from the log alone."""

from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.domain.events import Asked, Event, Told
from bestarm_agent.domain.outcome import Scored
from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.engine.results.standing import Status
from bestarm_agent.report import matrix as matrix_module
from bestarm_agent.report.history import MOMENTS, watch
from bestarm_agent.report.matrix import matrix_of
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem, State, Tell
from tests.support.standings import standing_of, state_of

LABELS = ["a", "b", "c", "d"]


def logged(n: int) -> list[Event]:
    """A run on 100 examples: the candidates are right with probability .95, .6, .3 and .1."""
    rng, events = np.random.default_rng(3), list[Event]()
    selector = make_selector("auto", Problem(4, 100, seed=1))
    for _ in range(n):
        [ask] = selector.ask(1)
        score = float(rng.random() < (0.95, 0.6, 0.3, 0.1)[ask.pair[0]])
        selector.tell([Tell(ask.seq, State.DONE, score)])
        events.append(Asked(ask.seq, *ask.pair, ask.propensity, ask.reason))
        outcome = Scored(score, None, Usage(), Spend(pulls=1), 0.0, f"k{ask.seq}", cached=False)
        events.append(Told(ask.seq, outcome, score))
    return events


def test_the_course_ends_where_the_run_stands() -> None:
    events, selector = logged(200), make_selector("auto", Problem(4, 100, seed=1))
    course = watch(events, selector)
    standing = standing_of(LABELS, selector, 100)
    assert [moment.asked for moment in course.moments][-1] == 200
    assert len(course.moments) == MOMENTS
    for row in standing.rows:
        assert course.moments[-1].mean[row.index] == row.estimate
        assert (row.index in course.left) == (row.status is Status.BEATEN)
    assert course.left, "the worst are ruled out"
    assert set(course.beaten_by.values()) == {0}
    assert watch(events, make_selector("auto", Problem(4, 100, seed=1)), 0).moments == []


def test_the_matrix_samples_large_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_of(LABELS, 100)
    for event in logged(120)[:-1]:
        state.apply(event)
    whole = matrix_of(state, [0, 1, 2, 3])
    cells = "".join(whole.cells)
    assert cells.count("p") == 1, "the last one is pending"
    assert cells.count("9") + cells.count("0") == 119
    means = [[c for c in column if c in "09"] for column in zip(*whole.cells, strict=True)]
    assert set(means[0]) == {"9"}, "the easiest example comes first"
    monkeypatch.setattr(matrix_module, "_MOST_ROWS", 2)
    monkeypatch.setattr(matrix_module, "_MOST_COLUMNS", 5)
    part = matrix_of(state, [0, 1, 2, 3])
    assert (len(part.rows), len(part.columns)) == (2, 5)
    assert [len(line) for line in part.cells] == [5, 5]
