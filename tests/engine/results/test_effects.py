"""Effects per axis: their values, what cannot be told apart, and how often intervals hold."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binomtest

from bestarm_agent.domain.values import Candidate, PromptTemplate
from bestarm_agent.engine.results.effects import axis_effects
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.report.html_page import _effect_title
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem, State, Tell
from tests.support.standings import standing_with

N_EXAMPLES = 200
GRID = list(product(range(3), range(4)))  # models by prompts


def named(standing: Standing, levels: list[tuple[int, int]]) -> Standing:
    """Give candidate i the model and the prompt of ``levels[i]``."""
    rows = []
    for row in standing.rows:
        model, prompt = levels[row.index]
        template = PromptTemplate(f"p{prompt}", text="{{ question }}")
        rows.append(replace(row, candidate=Candidate("api", f"m{model}", template)))
    return replace(standing, rows=tuple(rows))


def standing_of_totals(n: NDArray[np.int64], total: NDArray[np.float64]) -> Standing:
    standing = standing_with([f"c{i}" for i in range(len(n))], [[1.0]] * len(n))
    rows = [replace(row, n=int(n[row.index]), total=total[row.index]) for row in standing.rows]
    return named(replace(standing, rows=tuple(rows), n_examples=N_EXAMPLES), GRID)


def test_effects_of_a_full_grid_are_differences_of_means() -> None:
    means = [0.5, 0.7, 0.9, 0.1, 0.1, 0.3]
    levels = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    scores = [[1.0] * round(10 * mean) + [0.0] * round(10 * (1 - mean)) for mean in means]
    standing = named(standing_with([f"c{i}" for i in range(6)], scores, n_examples=10), levels)
    model, prompt = axis_effects(standing)
    assert (model.axis, prompt.axis) == ("model", "prompt")
    assert [one.level for one in model.levels] == ["m0", "m1"]
    assert model.levels[0].effect.value == pytest.approx(0.8 / 3)
    assert prompt.levels[0].effect.value == pytest.approx(0.6 - 2.6 / 6)
    assert model.levels[0].effect == pytest.approx([0.8 / 3] * 3), "all was seen"


@pytest.mark.parametrize("seed", range(5))
def test_effects_of_a_part_of_a_grid_are_the_least_squares_solution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kept = sorted(rng.choice(12, 9, replace=False).tolist())
    levels = [GRID[k] for k in kept]
    scores = [[float(x) for x in rng.random(4) < 0.5] for _ in kept]
    standing = named(standing_with([f"c{i}" for i in range(9)], scores), levels)
    design = np.array([[m == i for i in range(3)] + [p == j for j in range(4)] for m, p in levels])
    solution = np.linalg.lstsq(design.astype(float), np.mean(scores, axis=1), rcond=None)[0]
    for axis in axis_effects(standing):
        own = solution[:3] if axis.axis == "model" else solution[3:]
        expected = own - own.mean()
        found = {level.level: level.effect.value for level in axis.levels}
        assert [found[name] for name in sorted(found)] == pytest.approx(expected.tolist())


def test_as_many_levels_as_candidates_need_no_matrix_of_that_size() -> None:
    standing = standing_with([f"c{i}" for i in range(800)], [[1.0]] * 800)
    grid = named(standing, [(i, i % 2) for i in range(800)])
    tracemalloc.start()
    try:
        assert axis_effects(grid) == (), "a model stands for its prompt"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 800 * 800 * 8 / 4


def test_axes_that_move_together_are_left_out() -> None:
    scores = [[1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]
    standing = named(standing_with(["a", "b", "c"], scores), [(0, 0), (1, 1), (2, 2)])
    assert axis_effects(standing) == ()
    alone = named(standing_with(["a", "b"], scores[:2]), [(0, 0), (1, 0)])
    assert [one.axis for one in axis_effects(alone)] == ["model"]


def world(rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw scores of a grid in which model and prompt interact, and examples differ."""
    chance = rng.normal(0.3, 1.0, (len(GRID), 1)) + rng.normal(0.0, 1.0, N_EXAMPLES)
    return (rng.random((len(GRID), N_EXAMPLES)) < 1 / (1 + np.exp(-chance))).astype(float)


def true_effect(scores: NDArray[np.float64], axis: str, level: str) -> float:
    means, place = scores.mean(axis=1), ("model", "prompt").index(axis)
    same = [means[i] for i, at in enumerate(GRID) if "mp"[place] + str(at[place]) == level]
    return float(np.mean(same) - means.mean())


def misses(standing: Standing, scores: NDArray[np.float64]) -> list[bool]:
    return [
        not one.effect.lower <= true_effect(scores, axis.axis, one.level) <= one.effect.upper
        for axis in axis_effects(standing)
        for one in axis.levels
    ]


@pytest.mark.slow
@pytest.mark.coverage
def test_intervals_hold_as_often_as_they_say_for_random_examples() -> None:
    rng, missed, total = np.random.default_rng(11), 0, 0
    for _ in range(300):
        scores = world(rng)
        n = rng.integers(3, 80, len(GRID))
        seen = np.array(
            [rng.choice(row, k, replace=False).sum() for row, k in zip(scores, n, strict=True)]
        )
        missed += any(misses(standing_of_totals(n, seen), scores))
        total += 1
    # level .001: fails by chance once in a thousand if some interval misses in 5 % of the worlds
    assert binomtest(missed, total, 0.05, alternative="greater").pvalue > 0.001


@pytest.mark.coverage
@pytest.mark.slow
def test_intervals_hold_where_a_rule_leaves_bad_candidates_early() -> None:
    rng, missed, total = np.random.default_rng(12), 0, 0
    for seed in range(40):
        scores = world(rng)
        selector = make_selector(
            "racing", Problem(len(GRID), N_EXAMPLES, seed=seed, stop_when_separated=False)
        )
        for _ in range(300):
            for ask in selector.ask(1):
                selector.tell([Tell(ask.seq, State.DONE, float(scores[ask.pair]))])
        table = selector.table
        missed += any(misses(standing_of_totals(table.n_scored, table.total), scores))
        total += 1
    # level .001, as above
    assert binomtest(missed, total, 0.05, alternative="greater").pvalue > 0.001


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("hf/models/small", "openai/large"), {"small", "large"}),
        (("hf/a/small", "hf/b/small"), {"hf/a/small", "hf/b/small"}),
    ],
)
def test_models_have_short_names_if_these_differ(names: tuple[str, str], shown: set[str]) -> None:
    prompt, rows = PromptTemplate(name="p", text="{{ q }}"), []
    standing = standing_with(["a", "b"], [[1.0, 1.0], [0.0, 1.0]])
    for row in standing.rows:
        provider, _, model = names[row.index].partition("/")
        rows.append(replace(row, candidate=Candidate(provider, model, prompt)))
    [axis] = axis_effects(replace(standing, rows=tuple(rows)))
    assert {one.level for one in axis.levels} == shown


@pytest.mark.parametrize("seed", range(20))
def test_an_axis_is_clear_exactly_where_an_interval_of_its_levels_leaves_out_0(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = rng.integers(5, 60, len(GRID))
    means = 0.5 + rng.normal(0, 0.15, len(n)).clip(-0.4, 0.4)
    standing = standing_of_totals(n, rng.binomial(n, means).astype(np.float64))
    for axis in axis_effects(standing):
        ends = [(level.effect.lower, level.effect.upper) for level in axis.levels]
        assert axis.is_clear == any(low > 0 or high < 0 for low, high in ends)
        title = _effect_title(axis)
        assert axis.is_clear != title.endswith("no clear difference")
