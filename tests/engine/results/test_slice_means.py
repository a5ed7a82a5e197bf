"""Means by slice: Simpson's paradox, answers under way, how often all intervals hold."""

from __future__ import annotations

import numpy as np
import pytest

from bestarm_agent.domain.events import Asked, CandidatesAdded, Event, ExamplesAdded, Started, Told
from bestarm_agent.domain.values import Candidate, Outcome, Score, Slice
from bestarm_agent.engine.results.means import SliceMeans, slice_means
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import FloatArray, Problem
from bestarm_agent.store.run_state import RunState, fold
from tests.stats.conftest import RateCheck
from tests.support.standings import PROMPT

EASY, HARD = range(100), range(100, 200)


def state_of(asked: list[list[int]], scores: FloatArray, told: int | None = None) -> RunState:
    """A run on easy and hard examples; of each candidate's asks the first ``told`` have scores."""
    n = scores.shape[1]
    ids = tuple(f"e{j}" for j in range(n))
    slices = (Slice("kind=easy", tuple(range(n // 2))), Slice("kind=hard", tuple(range(n // 2, n))))
    candidates = tuple(Candidate("p", f"m{i}", PROMPT, {}, f"c{i}") for i in range(len(scores)))
    events: list[Event] = [
        Started("study", "2026-01-01T00:00:00+00:00", "0.1.0", {}, "."),
        ExamplesAdded(ids, ids, slices),
        CandidatesAdded(candidates, tuple(0.0 for _ in candidates)),
    ]
    pairs = [(row, example) for row, examples in enumerate(asked) for example in examples]
    events += [Asked(seq, int(row), int(column), "rule") for seq, (row, column) in enumerate(pairs)]
    for seq, (row, example) in enumerate(pairs):
        if told is None or asked[row].index(example) < told:
            value = float(scores[row, example])
            events.append(Told(seq, Outcome(Score(value), seconds=1.0), value))
    return fold(events)


def found_of(state: RunState, confidence: float = 0.9) -> tuple[SliceMeans, ...]:
    problem = Problem(len(state.candidates), len(state.example_ids), stop_when_separated=False)
    ranking = list(range(len(state.candidates)))
    return slice_means(state, make_selector("uniform", problem), ranking, confidence)


def test_one_that_saw_easier_examples_is_still_worse_on_every_slice() -> None:
    """Simpson's paradox: candidate 0 has the better mean of all it answered."""
    scores = np.zeros((2, 200))
    scores[0, EASY[:80]] = scores[1, EASY[:90]] = 1.0
    scores[0, HARD[:20]] = scores[1, HARD[:40]] = 1.0
    rng = np.random.default_rng(0)
    asked = [[*EASY, *rng.permutation(HARD[16:36])], [*rng.permutation(EASY[72:92]), *HARD]]
    state = state_of(asked, scores)
    seen = [scores[row, asked[row]].mean() for row in (0, 1)]
    assert seen[0] > seen[1]
    easy, hard = found_of(state)
    assert (easy.name, hard.n_examples) == ("kind=easy", 100)
    assert [one.n for one in easy.means] == [100, 20]
    assert [one.mean.value for one in easy.means] == pytest.approx([0.8, 0.9])
    assert easy.means[0].mean == pytest.approx([0.8] * 3), "all was seen"
    assert hard.means[1].mean == pytest.approx([0.4] * 3)
    assert hard.means[0].mean.lower < 0.2 < hard.means[0].mean.upper


def test_what_comes_after_a_pending_pair_moves_no_interval() -> None:
    scores = np.ones((1, 200))
    done, waiting = found_of(state_of([[*EASY]], scores)), state_of([[*EASY]], scores, told=30)
    assert done[0].means[0].mean.lower == 1.0
    early = found_of(waiting)[0].means[0]
    assert (early.n, early.mean.value) == (30, 1.0)
    assert 0.8 < early.mean.lower < 1.0
    unseen = found_of(waiting)[1].means[0]
    assert (unseen.n, unseen.mean.upper) == (0, 1.0)


@pytest.mark.slow
@pytest.mark.coverage
def test_all_intervals_of_all_candidates_and_slices_hold_together(check_rate: RateCheck) -> None:
    # Binomial test at 1e-6 of the joint rate .2, after a number of examples that the worst look at
    # so far sets: 2 candidates, 2 slices of 20, 60 runs.
    misses, runs = 0, 60
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        scores = (rng.random((2, 40)) < 0.5).astype(float)
        order = rng.permutation(40).tolist()
        true = scores.reshape(2, 2, 20).mean(axis=2)
        is_missed = False
        for n in (6, 12, 20):
            found = found_of(state_of([order[:n], order[:n]], scores), 0.8)
            is_missed |= any(
                not one.mean.lower - 1e-9 <= true[row, k] <= one.mean.upper + 1e-9
                for k, part in enumerate(found)
                for row, one in enumerate(part.means)
            )
        misses += is_missed
    check_rate(misses, runs, 0.2)
