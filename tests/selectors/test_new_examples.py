"""Runs that end by what holds for new examples: shown, or nearer than the examples can tell."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from benchmarks.baselines.filled_subset import FilledSubset
from numpy.typing import NDArray

from bestarm_agent.selectors.answer import Answer
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem, State, Stop, Tell
from bestarm_agent.stats.betting import bounds_on_new, early_bets
from bestarm_agent.stats.new_examples import Lead, nearness
from tests.support.selector_suite import World, WorldRun, opened, replay

N = 300
LEVEL = World.bernoulli([0.8, 0.8], N, 1)
CLEAR = World.bernoulli([0.9, 0.6, 0.5], N, 2)

EXACT = 1e-9  # a reach that only equals have: with it, runs do not end as level
STOPS = {"stop_when_separated": True}


def seen_lead(answer: Answer, one: int, other: int) -> Lead:
    return answer.on_new.leads_over(one, [other]).each()[0]


def finished(world: World, rule: str = "auto", **asked: Any) -> WorldRun:  # noqa: ANN401
    asked = STOPS | {"seed": 1, "open_ended": True} | asked
    return WorldRun(opened(rule, len(world.scores), N, **asked), world).finish()


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["auto", "racing"])
def test_level_candidates_end_a_run_early_and_change_no_ask_before(rule: str) -> None:
    whole = finished(LEVEL, rule, within=EXACT)
    level = finished(LEVEL, rule)
    assert level.selector.stopped() is Stop.LEVEL
    assert len(level.pairs) < 0.7 * len(whole.pairs)
    assert whole.pairs[: len(level.pairs)] == level.pairs
    assert not level.selector.answer.best().separated
    rebuilt = replay(level.events, make_selector(rule, level.selector.rule.problem))
    assert rebuilt.stopped() is Stop.LEVEL
    rebuilt.add_candidates(1)
    assert rebuilt.stopped() is None, "a candidate that joins opens the run again"
    assert 2 in {ask.pair.candidate for ask in rebuilt.ask(4)}


@pytest.mark.parametrize("in_clusters", [False, True])
def test_a_clear_lead_is_shown_for_new_examples(in_clusters: bool) -> None:
    world, gap, own = CLEAR, 0.3, tuple[int, ...]()
    if in_clusters:  # 100 of 3 examples
        scores = np.random.default_rng(4).random((3, 100)) < [[0.9], [0.45], [0.4]]
        cluster, gap = np.repeat(np.arange(100), 3), 0.45
        world, own = World.of(scores[:, cluster]), one_of_each(cluster, np.random.default_rng(5))
    run = finished(world, for_new=True, independent=own)
    answer = run.selector.answer
    assert run.selector.stopped() is Stop.SEPARATED
    assert len(run.pairs) < 0.6 * CLEAR.scores.size
    assert answer.on_new.n_independent == (100 if in_clusters else N)
    assert answer.on_new.rivals(0) == []
    assert answer.on_new.behind(0) == 0.0
    lower, upper = answer.on_new.mean(0)
    assert lower < 0.9 < upper
    lower, upper = answer.on_new.lead(0, 1)
    assert lower < gap < upper
    assert seen_lead(answer, 0, 1).n <= answer.on_new.n_independent
    assert 0 in answer.on_new.rivals(1)
    assert answer.on_new.behind(1) > 0.0


@pytest.mark.slow
def test_a_leader_that_is_shown_to_be_near_enough_ends_a_run() -> None:
    ended = 0
    for seed in range(4):
        world = World.bernoulli([0.85, 0.81, 0.6], N, seed)
        whole = finished(world, "racing", within=EXACT)
        near = finished(world, "racing")
        answer, leader = near.selector.answer, near.selector.answer.best().best
        lead = seen_lead(answer, leader, 1 - leader)
        if near.selector.stopped() is Stop.LEVEL and not lead.is_level(N, answer.on_new.alpha):
            ended += 1
            assert near.selector.answer.margin() <= nearness(0.4, N)
            assert len(near.pairs) < len(whole.pairs)
            means = world.scores.mean(axis=1)
            assert means[leader] >= means.max() - nearness(0.4, N)
    assert ended


def test_for_new_examples_takes_more_than_for_those_of_the_study() -> None:
    near = World.bernoulli([0.85, 0.77], N, 5)
    seen = finished(near, "racing", within=EXACT)
    new = finished(near, "racing", within=EXACT, for_new=True)
    assert len(seen.pairs) < len(new.pairs)
    assert seen.pairs == new.pairs[: len(seen.pairs)]


@pytest.mark.slow
def test_what_was_beaten_by_little_is_asked_on_to_show_it_for_new_examples() -> None:
    shown, pairs = [0, 0], [0, 0]
    for seed in range(8):
        world = World.bernoulli([0.9, 0.7], N, seed)
        for k, asked in enumerate(({"within": EXACT}, {})):
            run = finished(world, "racing", **asked)
            best = run.selector.answer.best().best
            shown[k] += run.selector.answer.on_new.behind(best) == 0.0
            pairs[k] += len(run.pairs)
    assert shown[0] < shown[1]
    assert pairs[1] <= 1.6 * pairs[0]


def test_nothing_is_said_of_new_examples_where_the_order_is_not_random() -> None:
    for name in ("ucb-e-lrf", "auto"):
        selector = opened(name, 3, N, seed=1, budget=200, track_intervals=name != "auto")
        assert not WorldRun(selector, CLEAR).go(60).selector.answer.speaks_of_new


def test_rules_without_a_common_order_compare_means() -> None:
    run = WorldRun(opened("ucb-e", 3, N, seed=1, budget=700, **STOPS), CLEAR).go(700)
    answer = run.selector.answer
    (low, high), (least, most) = answer.on_new.mean(0), answer.on_new.mean(2)
    assert answer.on_new.lead(0, 2) == (low - most, high - least)
    assert answer.on_new.behind(2) > 0.0
    assert seen_lead(answer, 0, 2).mean == pytest.approx(
        run.selector.table.mean()[0] - run.selector.table.mean()[2]
    )


def test_of_those_that_are_left_the_leads_of_pairs_decide() -> None:
    selector = finished(CLEAR, "uniform", stop_when_separated=False).selector
    assert selector.answer.on_new.rivals(1) == [0]
    selector.bar([0])
    behind = selector.answer.on_new.behind(1)
    assert behind == max(0.0, -selector.answer.on_new.lead(1, 2)[0])


def test_pairs_in_flight_are_waited_for_and_void_ones_count_against_the_leader() -> None:
    known, hidden = (opened("uniform", 2, 60, seed=1, **STOPS) for _ in range(2))
    for selector in (known, hidden):
        for ask in selector.ask(100):
            candidate, _ = ask.pair
            is_void = selector is hidden and candidate == 0 and ask.seq % 10 == 0
            state = State.VOID if is_void else State.DONE
            selector.tell([Tell(ask.seq, state, float(candidate == 0))])
        selector.ask(10)
    assert known.answer.on_new.behind(0) == 0.0
    assert hidden.answer.on_new.lead(0, 1)[0] < known.answer.on_new.lead(0, 1)[0]
    assert hidden.answer.on_new.mean(0)[0] < known.answer.on_new.mean(0)[0]
    assert np.isclose(seen_lead(hidden.answer, 0, 1).mean, 1.0, atol=0.11)


def errors(pairs: Pairs) -> tuple[bool, bool, bool]:
    """Tell which statements are wrong of candidates of mean .7: "shown", a mean, a lead."""
    answer, k = pairs.answer, pairs.rule.problem.n_candidates
    means = [answer.on_new.mean(one) for one in range(k)]
    leads = [answer.on_new.lead(one, other) for one, other in permutations(range(k), 2)]
    return (
        any(answer.on_new.behind(one) == 0.0 for one in range(k)),
        any(not lower <= 0.7 <= upper for lower, upper in means),
        any(not lower <= 0.0 <= upper for lower, upper in leads),
    )


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize(("draws", "alike"), [(6, True), (3, False)])
def test_draws_of_one_example_count_once(draws: int, alike: bool) -> None:
    """Equal candidates, K = 2 and 3, 40 examples: "shown" and intervals of means and leads.

    At most 5 % of 60 runs may err in each: more than 10 have a probability of .0002 at that rate.
    """
    n, wrong = 40, np.zeros(3, dtype=int)
    for seed in range(60):
        k = 2 + seed % 2
        rng = np.random.default_rng(seed)
        always = rng.random((k, n)) < 0.7
        chance = always if alike else rng.beta(1.4, 0.6, (k, n))
        world = World.of(np.hstack([rng.random((k, n)) < chance for _ in range(draws)]))
        selector = opened(FilledSubset, k, n * draws, seed=seed, draws=draws)
        wrong += errors(WorldRun(selector, world, 4).finish().selector)
    assert wrong.max() <= 10


def test_a_draw_tells_of_new_examples_what_the_first_one_does() -> None:
    """Three draws of each that are alike: bounds as for one, in the order of the firsts."""
    scores = (np.random.default_rng(3).random((2, 50)) < [[0.9], [0.5]]).astype(float)
    run = WorldRun(opened("uniform", 2, 150, seed=1, draws=3), World.of(np.tile(scores, 3)))
    pairs = run.finish().selector
    for row in (0, 1):
        order = [pair.example for pair in run.pairs if pair.candidate == row]
        first = list(dict.fromkeys(example % 50 for example in order))
        values = scores[row, first]
        bets = early_bets(150, 0.05 / 4)
        assert pairs.answer.on_new.mean(row) == bounds_on_new(values, values, 0.05 / 2, bets)
    assert pairs.answer.on_new.n_independent == 50
    with pytest.raises(ValueError, match="draws must divide"):
        Problem(2, 150, draws=4)


def clustered(k: int, rng: np.random.Generator) -> tuple[World, NDArray[np.int64]]:
    """Equal candidates on 40 clusters of 1 or 12 examples; in a cluster all score alike.

    The first one is better on large clusters, and worse by as much on small ones. Returns the
    cluster of every example, too.
    """
    large = rng.random(40) < 0.5
    right = rng.random((k, 40)) < 0.7
    right[0] = rng.random(40) < np.where(large, 0.9, 0.5)
    cluster = np.repeat(np.arange(40), np.where(large, 12, 1))
    return World.of(right[:, cluster]), cluster


def one_of_each(cluster: NDArray[np.int64], rng: np.random.Generator) -> tuple[int, ...]:
    order = rng.permutation(len(cluster)).tolist()
    return tuple(sorted({int(cluster[example]): example for example in order}.values()))


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize(("rule", "runs", "most"), [("uniform", 60, 11), ("racing", 24, 7)])
def test_of_dependent_examples_only_one_of_each_cluster_counts(
    rule: str, runs: int, most: int
) -> None:
    """Equal candidates, K = 2 and 3: "shown" and intervals of means and leads, calls in flight.

    At most 5 % of the runs may err in each: more than ``most`` have a probability below 1e-4 at
    that rate. As if no example depended on another, more than half of the runs err.
    """
    wrong, naive = np.zeros(3, dtype=int), 0
    for seed in range(runs):
        k, rng = 2 + seed % 2, np.random.default_rng(seed)
        world, cluster = clustered(k, rng)
        for own in (one_of_each(cluster, rng), ())[: 2 if rule == "uniform" else 1]:
            asked = {"for_new": True, **STOPS} if rule != "uniform" else {}
            selector = opened(rule, k, len(cluster), seed=seed, independent=own, **asked)
            found = errors(WorldRun(selector, world, 4).finish().selector)
            if own:
                wrong += found
            else:
                naive += any(found)
    assert wrong.max() <= most
    assert rule != "uniform" or naive > runs / 2


@pytest.mark.parametrize("rule", ["auto", "uniform"])
def test_leads_over_many_are_those_over_each(rule: str) -> None:
    world = World.bernoulli([0.9, 0.6, 0.6, 0.2, 0.5], 40, 6)
    answer = WorldRun(opened(rule, 5, 40, budget=90, seed=2), world).finish().selector.answer
    others = [3, 1, 4, 2]
    for lead, other in zip(answer.on_new.leads_over(0, others).each(), others, strict=True):
        assert lead == seen_lead(answer, 0, other)
    if rule == "uniform":  # others are ruled out by a test of their own
        assert answer.on_new.rivals(0) == [
            k for k in range(1, 5) if answer.on_new.lead(0, k)[0] <= 0.0
        ]
