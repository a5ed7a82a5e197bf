"""Two candidates on the same examples, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bestarm_agent.domain.events import Asked, Told
from bestarm_agent.engine.results.compare import Flip, compare_candidates
from bestarm_agent.errors import ConfigError
from bestarm_agent.store.run_state import RunState, fold
from tests.support.store_runs import asked, failed, grid, started, told

Scores = Sequence[float | None]


def state_of(a: Scores, b: Scores, n_examples: int) -> RunState:
    """A run in which two candidates were asked the first examples; None is a void pair."""
    asks: list[Asked] = []
    outcomes: list[Told] = []
    for row, scores in enumerate((a, b)):
        for example, score in enumerate(scores):
            seq = len(asks)
            asks.append(asked(seq, row, example))
            outcomes.append(failed(seq) if score is None else told(seq, score))
    return fold([started(), *grid(2, n_examples), *asks, *outcomes])


def test_the_whole_grid_by_hand() -> None:
    a, b = [1.0] * 6 + [0.0, 1.0], [0.0] * 6 + [1.0, 1.0]
    found = compare_candidates(state_of(a, b, 8), "model 0", "model 1")
    assert (found.both, found.only_a, found.only_b, found.neither, found.n) == (1, 6, 1, 0, 8)
    assert (found.mean_a, found.mean_b) == (7 / 8, 2 / 8)
    assert found.difference.value == 5 / 8
    assert found.difference.lower < 0.3, "all examples were seen, and say little about new ones"
    assert found.difference.lower < 0.0
    # q = (7 + 1.5) / 18, c = sqrt(2 log 40) + .8416: n = c^2 q / (5 / 8)^2
    assert found.examples_needed is None, "eight examples forecast nothing"
    assert found.resolution == pytest.approx(3.5578 * (8.5 / 18 / 8) ** 0.5, abs=1e-4)
    assert found.flips[0] == Flip("example-0", 1.0, 0.0, 0, 8)
    assert [flip.example for flip in found.flips] == [f"example-{j}" for j in range(7)]


def test_only_common_examples_count() -> None:
    found = compare_candidates(
        state_of([1.0, 0.0, 0.0, 0.0], [1.0, 1.0], 100), "model 0", "model 1"
    )
    assert (found.scored_a, found.scored_b, found.n) == (4, 2, 2)
    assert (found.mean_a, found.mean_b) == (0.5, 1.0)
    assert found.difference.lower < found.difference.value == -0.5 < found.difference.upper


def test_a_void_pair_widens_the_interval_and_counts_nowhere_else() -> None:
    a, b = [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]
    whole = compare_candidates(state_of(a, b, 3), "model 0", "model 1")
    void = compare_candidates(state_of([1.0, 1.0, None], b, 3), "model 0", "model 1")
    assert whole.difference.value == void.difference.value == 1.0
    assert void.n == 2
    assert void.difference.lower < whole.difference.lower


def test_scores_between_0_and_1() -> None:
    found = compare_candidates(
        state_of([0.9, 0.8, 0.7, 0.2], [0.8, 0.7, 0.6, 0.2], 4), "model 0", "model 1"
    )
    assert (found.both, found.neither, found.only_a) == (3, 1, 0)
    assert found.difference.value == pytest.approx(0.075)
    assert len(found.flips) == 3


def test_what_cannot_be_compared_is_refused() -> None:
    state = state_of([1.0], [], 2)
    with pytest.raises(ConfigError, match="no example was scored for both"):
        compare_candidates(state, "model 0", "model 1")
    with pytest.raises(ConfigError, match="with itself"):
        compare_candidates(state, "model 0", "model 0")
    with pytest.raises(ConfigError, match="no candidate 'x'"):
        compare_candidates(state, "x", "model 0")


def test_two_runs_are_compared_on_the_examples_that_both_have() -> None:
    one, other = state_of([1.0, 1.0, 0.0], [0.0] * 3, 3), state_of([1.0] * 3, [0.0, 0.0, 1.0], 3)
    found = compare_candidates(one, "model 0", "model 1", other=other)
    assert (found.n, found.n_examples, found.only_a, found.only_b) == (3, 3, 2, 1)
    assert found.difference.value == pytest.approx(1 / 3)
    other.example_digests[0] = "another text under the same id"
    found = compare_candidates(one, "model 0", "model 1", other=other)
    assert (found.n, found.n_examples) == (2, 2)
    assert [flip.example for flip in found.flips] == ["example-1", "example-2"]


def test_scores_of_two_judges_are_not_compared() -> None:
    one, other = state_of([1.0], [0.0], 1), state_of([1.0], [0.0], 1)
    other.started = replace(other.started, judge="another digest")
    with pytest.raises(ConfigError, match="different judges scored the two runs"):
        compare_candidates(one, "model 0", "model 0", other=other)
