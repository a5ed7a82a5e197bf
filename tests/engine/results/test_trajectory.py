"""The trajectory of a run and the matrix of its pairs, from the log alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import numpy as np
import pytest

from bestarm_agent.domain.events import Asked, CandidatesBarred, Event, Told
from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Outcome, Score
from bestarm_agent.engine.record import RunRecord
from bestarm_agent.engine.results.standing import Status
from bestarm_agent.engine.results.trajectory import MOMENTS, Trajectory, follow
from bestarm_agent.report import html_page as matrix_module
from bestarm_agent.report.html_page import matrix_of
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem, State, Tell
from bestarm_agent.store.codec import Line, line_of
from tests.support.standings import standing_of, state_of
from tests.support.store_runs import grid, started

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
        outcome = Outcome(Score(score), spend=Spend(pulls=1))
        events.append(Told(ask.seq, outcome, score))
    return events


def trajectory_of(events: Sequence[Event]) -> tuple[Trajectory, Pairs]:
    """The trajectory of the run whose log these are, and the rule."""
    rule = make_selector("auto", Problem(4, 100, seed=1, stop_when_separated=False))
    record = RunRecord(lambda _size, _candidates: rule)
    lines = [line_of(event) for event in (started(), *grid(4, 100), *events)]

    async def pages() -> AsyncIterator[Sequence[Line]]:
        for start in range(0, len(lines), 33):
            yield lines[start : start + 33]

    n_told = sum(isinstance(event, Told) for event in events)
    return asyncio.run(follow(record, pages(), n_told)), rule


def test_the_course_ends_where_the_run_stands() -> None:
    trajectory, selector = trajectory_of(logged(200))
    standing = standing_of(LABELS, selector, 100)
    asked = [moment.asked for moment in trajectory.moments]
    assert asked == [*range(7, 201, 7), 200]
    for row in standing.rows:
        assert trajectory.moments[-1].mean[row.index] == row.estimate
        assert (row.index in trajectory.left) == (row.status is Status.BEATEN)
    assert trajectory.left, "the worst are ruled out"
    assert set(trajectory.beaten_by.values()) == {0}


@pytest.mark.parametrize("n", [0, 1, 47, 48, 49, 131])
def test_moments_are_even_and_the_last_one_is_now(n: int) -> None:
    trajectory, _ = trajectory_of(logged(n))
    told = [moment.told for moment in trajectory.moments]
    steps = set(np.diff(told[:-1]).tolist())
    assert len(steps) <= 1, "even but for the last step"
    assert told[-1:] == [n][:n]
    assert len(told) <= MOMENTS + 1


def test_a_candidate_that_is_barred_leaves() -> None:
    trajectory, _ = trajectory_of([*logged(4), CandidatesBarred((2,), "too dear"), *logged(5)[8:]])
    assert trajectory.left == {2: 5}


def test_the_matrix_samples_large_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_of(LABELS, 100)
    for event in logged(120)[:-1]:
        state.take([line_of(event)])
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
